//! Integrity checks of the file: damaged pages, orphaned rows, and tables, indexes or triggers that
//! were removed or changed.

use std::collections::BTreeMap;

use onward_base::Timestamp;
use onward_store::Error;
use rusqlite::Connection;

use crate::{error, migrate};

/// Maximum number of findings per check.
const FINDINGS_MAX: i64 = 100;

/// Queries that select violations, and the message for each.
const CONSISTENCY_CHECKS: &[(&str, &str)] = &[
    (
        "SELECT run_seq, run_no FROM run_events WHERE run_no NOT IN (SELECT run_no FROM runs) LIMIT ?1",
        "event {} belongs to run number {}, which does not exist",
    ),
    (
        "SELECT run_id, run_no FROM runs WHERE NOT EXISTS (SELECT 1 FROM run_events \
         WHERE place BETWEEN runs.run_no << 32 AND runs.run_no << 32 | 0xffffffff) LIMIT ?1",
        "run {} (number {}) has no events",
    ),
    (
        "SELECT first_sequence, journal_no FROM journal WHERE journal_no NOT IN (SELECT journal_no FROM journals) LIMIT ?1",
        "the events from {} on belong to journal number {}, which does not exist",
    ),
    (
        "SELECT lower(hex(execution_id)), journal_no FROM journals \
         WHERE journal_no NOT IN (SELECT journal_no FROM journal) LIMIT ?1",
        "the journal of {} (number {}) has no events",
    ),
    (
        "SELECT first_sequence, journal_no FROM journal GROUP BY journal_no, first_sequence HAVING count(*) > 1 LIMIT ?1",
        "the events from {} on of journal number {} are stored more than once",
    ),
    (
        "SELECT place, journal_no FROM journal WHERE place <= (SELECT max(place) & -64 FROM journal) AND place NOT IN \
         (SELECT place FROM journal_index WHERE journal_index.journal_no = journal.journal_no \
          AND journal_index.first_sequence = journal.first_sequence) LIMIT ?1",
        "the events at {} of journal number {} are missing from the index",
    ),
    (
        "SELECT place, journal_no FROM journal_index WHERE place NOT IN \
         (SELECT place FROM journal WHERE journal.place = journal_index.place \
          AND journal.journal_no = journal_index.journal_no AND journal.first_sequence = journal_index.first_sequence) LIMIT ?1",
        "no events are stored at {}, where the index refers to journal number {}",
    ),
    (
        "SELECT run_id, last_event_seq FROM run_snapshots WHERE run_id NOT IN (SELECT run_id FROM runs) LIMIT ?1",
        "a snapshot of run {} at event {} exists, but the run does not",
    ),
    (
        "SELECT lower(hex(event_id)), count(*) FROM run_events GROUP BY event_id HAVING count(*) > 1 LIMIT ?1",
        "event id {} is stored {} times",
    ),
    (
        "SELECT lower(hex(event_id)), run_seq FROM run_events WHERE event_id NOT IN (SELECT event_id FROM event_ids) LIMIT ?1",
        "the id {} of an event {} is missing from the index of event ids",
    ),
    (
        "SELECT lower(hex(event_id)), 'none' FROM event_ids WHERE event_id NOT IN (SELECT event_id FROM run_events) LIMIT ?1",
        "event id {} is in the index of event ids, but belongs to no event",
    ),
    (
        "SELECT run_id, last_seq FROM (SELECT run_id, projected_seq, delivered_seq, to_project, to_deliver, \
         (SELECT coalesce(max(place) & 0xffffffff, 0) FROM run_events \
          WHERE place BETWEEN runs.run_no << 32 AND runs.run_no << 32 | 0xffffffff) AS last_seq FROM runs) \
         WHERE to_project <> (projected_seq < last_seq) OR to_deliver <> (delivered_seq < last_seq) \
         OR projected_seq > last_seq OR delivered_seq > last_seq LIMIT ?1",
        "the reader positions of run {} do not fit a log that ends at event {}",
    ),
];

pub(crate) fn check_integrity(db: &Connection) -> Result<Vec<String>, Error> {
    let mut found = check_pages(db)?;
    found.extend(check_schema(db)?);
    for (sql, message) in CONSISTENCY_CHECKS {
        let mut statement = db.prepare(sql).map_err(error::from_sqlite_error)?;
        let mut rows = statement
            .query([FINDINGS_MAX])
            .map_err(error::from_sqlite_error)?;
        while let Some(row) = rows.next().map_err(error::from_sqlite_error)? {
            let value = |place| {
                row.get::<_, rusqlite::types::Value>(place)
                    .map(format_value)
                    .map_err(error::from_sqlite_error)
            };
            found.push(
                message
                    .replacen("{}", &value(0)?, 1)
                    .replacen("{}", &value(1)?, 1),
            );
        }
    }
    Ok(found)
}

fn format_value(value: rusqlite::types::Value) -> String {
    match value {
        rusqlite::types::Value::Integer(number) => number.to_string(),
        rusqlite::types::Value::Text(text) => text,
        other => format!("{other:?}"),
    }
}

/// Runs SQLite's own check, which reads every page and compares every index with its table.
fn check_pages(db: &Connection) -> Result<Vec<String>, Error> {
    let mut statement = db
        .prepare(&format!("PRAGMA integrity_check({FINDINGS_MAX})"))
        .map_err(error::from_sqlite_error)?;
    let rows = statement
        .query_map([], |row| row.get::<_, String>(0))
        .map_err(error::from_sqlite_error)?;
    let rows: Vec<String> = rows
        .collect::<rusqlite::Result<_>>()
        .map_err(error::from_sqlite_error)?;
    Ok(rows
        .into_iter()
        .filter(|row| row != "ok")
        .map(|row| format!("SQLite integrity check: {row}"))
        .collect())
}

/// Checks that the tables, indexes and triggers are those that the migrations create. Additional
/// objects are ignored.
fn check_schema(db: &Connection) -> Result<Vec<String>, Error> {
    let mut fresh = Connection::open_in_memory().map_err(error::from_sqlite_error)?;
    migrate::apply_migrations(&mut fresh, Timestamp::EPOCH)?;
    let there = read_schema(db)?;
    let differs = |(name, sql): (String, String)| match there.get(&name) {
        None => Some(format!("{name} is missing from the schema")),
        Some(found) if *found != sql => Some(format!(
            "{name} differs from its definition in the migrations"
        )),
        Some(_) => None,
    };
    Ok(read_schema(&fresh)?
        .into_iter()
        .filter_map(differs)
        .collect())
}

/// Returns the SQL of each schema object by type and name; objects that SQLite creates itself have
/// no SQL.
fn read_schema(db: &Connection) -> Result<BTreeMap<String, String>, Error> {
    let sql = "SELECT type || ' ' || name, coalesce(sql, '') FROM sqlite_schema";
    let mut statement = db.prepare(sql).map_err(error::from_sqlite_error)?;
    let rows = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))
        .map_err(error::from_sqlite_error)?;
    rows.collect::<rusqlite::Result<_>>()
        .map_err(error::from_sqlite_error)
}
