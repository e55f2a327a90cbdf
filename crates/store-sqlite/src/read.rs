//! Reading: rows, journals, events and heads of runs.

use onward_journal::{ExecutionId, Payload, Timestamp};
use onward_runs::{Attempt, EmittedAt, EventId, Extra, IdempotencyKey, RunEventRecord, RunEventWrite, RunId, RunSeq};
use onward_store::{Error, JournalChunk, Key, Reader, RunHead, Scan, Stored, Table, Value};
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params, params_from_iter};

use crate::recent::JournalEnd;
use crate::sql;
use crate::values::{Bound, stored};
use crate::{checksum, error};

pub(crate) fn row(db: &Connection, table: &'static Table, key: &Key) -> Result<Option<Stored>, Error> {
    one(db, table, &sql::of(table).by_key, &key.0)
}

pub(crate) fn row_by_unique(
    db: &Connection,
    table: &'static Table,
    unique: usize,
    values: &[Value],
) -> Result<Option<Stored>, Error> {
    one(db, table, &sql::of(table).by_unique[unique], values)
}

fn one(db: &Connection, table: &'static Table, sql: &str, values: &[Value]) -> Result<Option<Stored>, Error> {
    let mut statement = db.prepare_cached(sql).map_err(error::from)?;
    let mut rows = statement.query(params_from_iter(values.iter().map(Bound))).map_err(error::from)?;
    rows.next().map_err(error::from)?.map(|row| stored(table.columns, row)).transpose()
}

/// What a scan is asked with.
fn parameters<'a>(scan: &'a Scan, limit: &'a Value) -> impl Iterator<Item = Bound<'a>> {
    let conditions = scan.equal.iter().chain(&scan.until).chain(scan.after.iter().flatten());
    conditions.chain([limit]).map(Bound)
}

pub(crate) fn count_rows(db: &Connection, scan: &Scan) -> Result<u64, Error> {
    let limit = Value::Int(count(scan.limit));
    let mut statement =
        db.prepare_cached(&format!("SELECT count(*) FROM ({})", sql::scan(scan))).map_err(error::from)?;
    let counted = statement.query_row(params_from_iter(parameters(scan, &limit)), |row| row.get::<_, i64>(0));
    Ok(u64::try_from(counted.map_err(error::from)?).unwrap_or(0))
}

pub(crate) fn rows(db: &Connection, scan: &Scan, limit: usize) -> Result<Vec<Stored>, Error> {
    let limit = Value::Int(count(limit));
    let mut statement = db.prepare_cached(&sql::scan(scan)).map_err(error::from)?;
    let mut rows = statement.query(params_from_iter(parameters(scan, &limit))).map_err(error::from)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(error::from)? {
        found.push(stored(scan.table.columns, row)?);
    }
    Ok(found)
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The parts of journals, each where its index says that it is.
macro_rules! parts {
    () => {
        "journal_places AS part JOIN journal ON journal.place = part.place AND journal.journal_no = part.journal_no \
         AND journal.first_sequence = part.first_sequence"
    };
}

/// The last part of a journal. What it is ordered by has to be a column: else SQLite reads and sorts all parts.
const JOURNAL_END: &str = concat!(
    "SELECT part.first_sequence, part.journal_no, events FROM ",
    parts!(),
    " WHERE part.journal_no = (SELECT journal_no FROM journals WHERE execution_id = ?1) \
     ORDER BY part.first_sequence DESC LIMIT 1"
);

/// The parts of a journal from the one that holds an event.
const JOURNAL: &str = concat!(
    "SELECT part.first_sequence, events, records FROM ",
    parts!(),
    " WHERE part.journal_no = (SELECT journal_no FROM journals WHERE execution_id = ?1) \
     AND part.first_sequence + events > ?2 AND part.first_sequence >= coalesce( \
     (SELECT first_sequence FROM journal_places WHERE first_sequence <= ?2 \
      AND journal_no = (SELECT journal_no FROM journals WHERE execution_id = ?1) \
      ORDER BY first_sequence DESC LIMIT 1), 0) \
     ORDER BY part.first_sequence LIMIT ?3"
);

/// Where a journal ends; nothing if there is none.
pub(crate) fn journal_end(db: &Connection, execution: ExecutionId) -> Result<Option<JournalEnd>, Error> {
    let end = |row: &Row<'_>| {
        let (first, events): (i64, i64) = (row.get(0)?, row.get(2)?);
        Ok(JournalEnd { number: row.get(1)?, length: (first + events).cast_unsigned() })
    };
    let mut statement = db.prepare_cached(JOURNAL_END).map_err(error::from)?;
    statement.query_row([execution.as_bytes().as_slice()], end).optional().map_err(error::from)
}

pub(crate) fn journal(
    db: &Connection,
    execution: ExecutionId,
    from: u64,
    limit: usize,
) -> Result<Vec<JournalChunk>, Error> {
    let from = i64::try_from(from).unwrap_or(i64::MAX);
    let chunk = |row: &Row<'_>| {
        let first: i64 = row.get(0)?;
        Ok(JournalChunk { first: first.cast_unsigned(), count: row.get(1)?, records: row.get::<_, Vec<u8>>(2)?.into() })
    };
    all(db, JOURNAL, params![execution.as_bytes().as_slice(), from, count(limit)], chunk)
}

/// All rows of a statement, read by `read`.
fn all<T>(
    db: &Connection,
    sql: &str,
    values: &[&dyn ToSql],
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Error> {
    let mut statement = db.prepare_cached(sql).map_err(error::from)?;
    let rows = statement.query_map(values, read).map_err(error::from)?;
    rows.collect::<rusqlite::Result<Vec<T>>>().map_err(error::from)
}

/// The last event of a run is where its part of the log ends. Asked for in a join, SQLite would plan anew at every use.
macro_rules! heads {
    ($which:literal) => {
        concat!(
            "SELECT run_id, tenant_id, project_id, environment_id, coalesce(",
            heads!(last "run_seq"),
            ", 0), coalesce(",
            heads!(last "persisted_at"),
            ", 0), projected_seq, delivered_seq FROM runs WHERE ",
            $which
        )
    };
    (last $column:literal) => {
        concat!(
            "(SELECT ",
            $column,
            " FROM run_events WHERE place BETWEEN runs.run_no << 32 AND runs.run_no << 32 | 0xffffffff \
             ORDER BY place DESC LIMIT 1)"
        )
    };
}

pub(crate) fn head(db: &Connection, run: &RunId) -> Result<Option<RunHead>, Error> {
    let heads = all(db, heads!("run_id = ?1"), params![&**run], |row| Ok(read_head(row)))?;
    heads.into_iter().next().transpose()
}

pub(crate) fn heads(
    db: &Connection,
    behind: Option<Reader>,
    after: Option<&RunId>,
    limit: usize,
) -> Result<Vec<RunHead>, Error> {
    let sql = match behind {
        None => heads!("run_id > ?1 ORDER BY run_id LIMIT ?2"),
        Some(Reader::Projector) => heads!("run_id > ?1 AND to_project ORDER BY run_id LIMIT ?2"),
        Some(Reader::EventBus) => heads!("run_id > ?1 AND to_deliver ORDER BY run_id LIMIT ?2"),
    };
    let after = after.map_or("", |run| run);
    all(db, sql, params![after, count(limit)], |row| Ok(read_head(row)))?.into_iter().collect()
}

fn read_head(row: &Row<'_>) -> Result<RunHead, Error> {
    Ok(RunHead {
        run_id: parsed(row, 0)?,
        tenant_id: parsed(row, 1)?,
        project_id: parsed(row, 2)?,
        environment_id: parsed(row, 3)?,
        last_seq: seq(row, 4)?,
        last_persisted_at: time(row, 5)?,
        projected_seq: seq(row, 6)?,
        delivered_seq: seq(row, 7)?,
    })
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(row: &Row<'_>, place: usize) -> Result<T, Error> {
    let text = row.get_ref(place).map_err(error::from)?.as_str().map_err(Error::corrupt)?;
    text.parse().map_err(Error::corrupt)
}

fn seq(row: &Row<'_>, place: usize) -> Result<RunSeq, Error> {
    let number: i64 = row.get(place).map_err(error::from)?;
    u64::try_from(number).ok().and_then(RunSeq::new).ok_or_else(|| Error::corrupt("a negative sequence"))
}

fn time(row: &Row<'_>, place: usize) -> Result<Timestamp, Error> {
    let us: i64 = row.get(place).map_err(error::from)?;
    Timestamp::from_micros(us).ok_or_else(|| Error::corrupt("an instant that cannot be written"))
}

pub(crate) fn run_events(
    db: &Connection,
    run: &RunId,
    after: RunSeq,
    limit: usize,
) -> Result<Vec<RunEventRecord>, Error> {
    let sql = "SELECT run_seq, persisted_at, event_id, event_type, emitted_at, plan_id, plan_version, engine_attempt_id, \
               logical_attempt_id, idempotency_key, step_id, payload, extra, tenant_id, project_id, environment_id, checksum \
               FROM runs JOIN run_events ON place > runs.run_no << 32 | min(?2, 0xffffffff) \
               AND place <= runs.run_no << 32 | 0xffffffff WHERE runs.run_id = ?1 ORDER BY place LIMIT ?3";
    let after = after.get().cast_signed();
    let event = |row: &Row<'_>| Ok(read_event(run, row).map_err(|error| located(run, row, &error)));
    all(db, sql, params![&**run, after, count(limit)], event)?.into_iter().collect()
}

/// Says which event cannot be read.
fn located(run: &RunId, row: &Row<'_>, error: &Error) -> Error {
    let place = row.get::<_, i64>(0).map_or_else(|_| "?".to_owned(), |place| place.to_string());
    match error {
        Error::Corrupt(what) => Error::Corrupt(format!("event {place} of run {run}: {what}")),
        other => other.clone(),
    }
}

fn read_event(run: &RunId, row: &Row<'_>) -> Result<RunEventRecord, Error> {
    let event = RunEventWrite {
        event_id: event_id(row, 2)?,
        event_type: parsed(row, 3)?,
        emitted_at: parsed::<EmittedAt>(row, 4)?,
        run_id: run.clone(),
        tenant_id: parsed(row, 13)?,
        project_id: parsed(row, 14)?,
        environment_id: parsed(row, 15)?,
        plan_id: parsed(row, 5)?,
        plan_version: parsed(row, 6)?,
        engine_attempt_id: attempt(row, 7)?,
        logical_attempt_id: attempt(row, 8)?,
        idempotency_key: IdempotencyKey::from_bytes(row.get(9).map_err(error::from)?),
        step_id: if text(row, 10)?.is_some() { Some(parsed(row, 10)?) } else { None },
        payload: text(row, 11)?.map(Payload::parse).transpose().map_err(Error::corrupt)?,
        extra: text(row, 12)?.map_or(Ok(Extra::NONE), Extra::parse).map_err(Error::corrupt)?,
    };
    let record = RunEventRecord { event, run_seq: seq(row, 0)?, persisted_at: time(row, 1)? };
    let stored: i64 = row.get(16).map_err(error::from)?;
    if stored != i64::from(checksum::of(&record.event, record.persisted_at)) {
        return Err(Error::corrupt("it is not what was written: its checksum does not fit"));
    }
    Ok(record)
}

pub(crate) fn event_id(row: &Row<'_>, place: usize) -> Result<EventId, Error> {
    EventId::from_bytes(row.get(place).map_err(error::from)?).map_err(Error::corrupt)
}

fn attempt(row: &Row<'_>, place: usize) -> Result<Attempt, Error> {
    let number: u32 = row.get(place).map_err(error::from)?;
    Attempt::new(number).ok_or_else(|| Error::corrupt("attempt 0"))
}

fn text<'a>(row: &'a Row<'_>, place: usize) -> Result<Option<&'a str>, Error> {
    row.get_ref(place).map_err(error::from)?.as_str_or_null().map_err(Error::corrupt)
}

/// What is known of the event with this key, looked up by the writer.
pub(crate) fn known(db: &Connection, run: &RunId, key: &IdempotencyKey) -> Result<Option<onward_store::Known>, Error> {
    let sql = "SELECT event_id, run_seq, persisted_at, event_type, step_id, payload FROM run_events \
               WHERE run_no = (SELECT run_no FROM runs WHERE run_id = ?1) AND idempotency_key = ?2";
    let known = |row: &Row<'_>| -> Result<onward_store::Known, Error> {
        Ok(onward_store::Known {
            event_id: event_id(row, 0)?,
            run_seq: seq(row, 1)?,
            persisted_at: time(row, 2)?,
            event_type: parsed(row, 3)?,
            step_id: if text(row, 4)?.is_some() { Some(parsed(row, 4)?) } else { None },
            payload: text(row, 5)?.map(Payload::parse).transpose().map_err(Error::corrupt)?,
        })
    };
    let read = |row: &Row<'_>| Ok(known(row));
    all(db, sql, params![&**run, key.as_bytes().as_slice()], read)?.into_iter().next().transpose()
}

pub(crate) fn has_event(db: &Connection, id: &EventId) -> Result<bool, Error> {
    let mut statement = db.prepare_cached("SELECT 1 FROM event_ids WHERE event_id = ?1").map_err(error::from)?;
    statement.exists([id.as_bytes().as_slice()]).map_err(error::from)
}

#[cfg(test)]
mod tests {
    use onward_journal::Timestamp;
    use rusqlite::Connection;

    use super::{JOURNAL, JOURNAL_END};
    use crate::migrate;

    /// However long a journal is, and however many there are.
    #[test]
    fn parts_of_journals_are_found_one_by_one() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate::to_newest(&mut db, Timestamp::EPOCH).unwrap();
        for sql in [JOURNAL_END, JOURNAL] {
            let mut explained = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let mut rows = explained.raw_query();
            let mut plan = String::new();
            while let Some(row) = rows.next().unwrap() {
                plan += &format!("{}\n", row.get::<_, String>(3).unwrap());
            }
            assert!(plan.contains("MERGE (UNION ALL)\nLEFT\nSEARCH journal_index USING PRIMARY KEY"), "{plan}");
            assert!(!plan.contains("SCAN"), "{plan}");
        }
    }
}
