//! Reads of rows, journals, run events and run heads.

use onward_base::{Payload, Timestamp};
use onward_journal::ExecutionId;
use onward_runs::{
    AttemptNumber, EmittedAt, ExtraFields, IdempotencyKey, RunEventId, RunEventRecord,
    RunEventWrite, RunId, RunSeq,
};
use onward_store::{
    ColumnValue, Error, JournalChunk, RowKey, RunEventReader, RunHead, StoredRow, TableScan,
    TableSchema,
};
use rusqlite::{Connection, OptionalExtension as _, Row, ToSql, params, params_from_iter};

use crate::sql;
use crate::values::{SqliteParameter, stored_from_row};
use crate::writer_cache::JournalEnd;
use crate::{checksum, error};

pub(crate) fn read_row(
    db: &Connection,
    table: &'static TableSchema,
    key: &RowKey,
) -> Result<Option<StoredRow>, Error> {
    query_one_row(db, table, &sql::table_statements(table).by_key, &key.0)
}

pub(crate) fn read_row_by_unique(
    db: &Connection,
    table: &'static TableSchema,
    unique: usize,
    values: &[ColumnValue],
) -> Result<Option<StoredRow>, Error> {
    query_one_row(
        db,
        table,
        &sql::table_statements(table).by_unique[unique],
        values,
    )
}

fn query_one_row(
    db: &Connection,
    table: &'static TableSchema,
    sql: &str,
    values: &[ColumnValue],
) -> Result<Option<StoredRow>, Error> {
    let mut statement = db.prepare_cached(sql).map_err(error::from_sqlite_error)?;
    let mut rows = statement
        .query(params_from_iter(values.iter().map(SqliteParameter)))
        .map_err(error::from_sqlite_error)?;
    rows.next()
        .map_err(error::from_sqlite_error)?
        .map(|row| stored_from_row(table.columns, row))
        .transpose()
}

/// Returns the parameters of a scan in the order of its statement.
fn scan_parameters<'a>(
    scan: &'a TableScan,
    limit: &'a ColumnValue,
) -> impl Iterator<Item = SqliteParameter<'a>> {
    let conditions = scan
        .equal
        .iter()
        .chain(&scan.until)
        .chain(scan.after.iter().flatten());
    conditions.chain([limit]).map(SqliteParameter)
}

pub(crate) fn count_rows(db: &Connection, scan: &TableScan) -> Result<u64, Error> {
    let limit = ColumnValue::Int(limit_to_sql(scan.limit));
    let mut statement = db
        .prepare_cached(&format!("SELECT count(*) FROM ({})", sql::build_scan(scan)))
        .map_err(error::from_sqlite_error)?;
    let counted = statement.query_row(params_from_iter(scan_parameters(scan, &limit)), |row| {
        row.get::<_, i64>(0)
    });
    Ok(u64::try_from(counted.map_err(error::from_sqlite_error)?).unwrap_or(0))
}

pub(crate) fn scan_rows(
    db: &Connection,
    scan: &TableScan,
    limit: usize,
) -> Result<Vec<StoredRow>, Error> {
    let limit = ColumnValue::Int(limit_to_sql(limit));
    let mut statement = db
        .prepare_cached(&sql::build_scan(scan))
        .map_err(error::from_sqlite_error)?;
    let mut rows = statement
        .query(params_from_iter(scan_parameters(scan, &limit)))
        .map_err(error::from_sqlite_error)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next().map_err(error::from_sqlite_error)? {
        found.push(stored_from_row(scan.table.columns, row)?);
    }
    Ok(found)
}

fn limit_to_sql(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The chunks of journals, joined by the position in their index.
macro_rules! parts {
    () => {
        "journal_places AS part JOIN journal ON journal.place = part.place AND journal.journal_no = part.journal_no \
         AND journal.first_sequence = part.first_sequence"
    };
}

/// Selects the last chunk of a journal. The ORDER BY must name a column: otherwise SQLite reads and
/// sorts all chunks.
const SELECT_JOURNAL_END: &str = concat!(
    "SELECT part.first_sequence, part.journal_no, events, records FROM ",
    parts!(),
    " WHERE part.journal_no = (SELECT journal_no FROM journals WHERE execution_id = ?1) \
     ORDER BY part.first_sequence DESC LIMIT 1"
);

/// Selects the chunks of a journal, starting with the one that contains a given event.
const SELECT_JOURNAL: &str = concat!(
    "SELECT part.first_sequence, events, records FROM ",
    parts!(),
    " WHERE part.journal_no = (SELECT journal_no FROM journals WHERE execution_id = ?1) \
     AND part.first_sequence + events > ?2 AND part.first_sequence >= coalesce( \
     (SELECT first_sequence FROM journal_places WHERE first_sequence <= ?2 \
      AND journal_no = (SELECT journal_no FROM journals WHERE execution_id = ?1) \
      ORDER BY first_sequence DESC LIMIT 1), 0) \
     ORDER BY part.first_sequence LIMIT ?3"
);

/// Returns the end of a journal; `None` if there is no journal.
pub(crate) fn read_journal_end(
    db: &Connection,
    execution: ExecutionId,
) -> Result<Option<JournalEnd>, Error> {
    let end = |row: &Row<'_>| {
        let (first, events): (i64, i64) = (row.get(0)?, row.get(2)?);
        Ok(JournalEnd {
            number: row.get(1)?,
            length: (first + events).cast_unsigned(),
        })
    };
    let mut statement = db
        .prepare_cached(SELECT_JOURNAL_END)
        .map_err(error::from_sqlite_error)?;
    statement
        .query_row([execution.as_bytes().as_slice()], end)
        .optional()
        .map_err(error::from_sqlite_error)
}

/// Returns the last chunk of a journal; `None` if there is no journal.
pub(crate) fn read_last_chunk(
    db: &Connection,
    execution: ExecutionId,
) -> Result<Option<JournalChunk>, Error> {
    let last = |row: &Row<'_>| {
        let first: i64 = row.get(0)?;
        Ok(JournalChunk {
            first: first.cast_unsigned(),
            count: row.get(2)?,
            records: row.get::<_, Vec<u8>>(3)?.into(),
        })
    };
    let mut statement = db
        .prepare_cached(SELECT_JOURNAL_END)
        .map_err(error::from_sqlite_error)?;
    statement
        .query_row([execution.as_bytes().as_slice()], last)
        .optional()
        .map_err(error::from_sqlite_error)
}

/// Returns a page of at most `limit` chunks and `bytes_max` bytes, but at least one chunk.
pub(crate) fn read_journal(
    db: &Connection,
    execution: ExecutionId,
    from: u64,
    (limit, bytes_max): (usize, usize),
) -> Result<Vec<JournalChunk>, Error> {
    let from = i64::try_from(from).unwrap_or(i64::MAX);
    let mut statement = db
        .prepare_cached(SELECT_JOURNAL)
        .map_err(error::from_sqlite_error)?;
    let mut rows = statement
        .query(params![
            execution.as_bytes().as_slice(),
            from,
            limit_to_sql(limit)
        ])
        .map_err(error::from_sqlite_error)?;
    let (mut page, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next().map_err(error::from_sqlite_error)? {
        let records = row.get_ref(2).map_err(error::from_sqlite_error)?;
        let records = records.as_blob().map_err(Error::corrupt)?;
        bytes += records.len();
        if !page.is_empty() && bytes > bytes_max {
            break;
        }
        let first: i64 = row.get(0).map_err(error::from_sqlite_error)?;
        page.push(JournalChunk {
            first: first.cast_unsigned(),
            count: row.get(1).map_err(error::from_sqlite_error)?,
            records: records.into(),
        });
    }
    Ok(page)
}

/// Runs a statement and decodes all its rows with `read`.
fn query_rows<T>(
    db: &Connection,
    sql: &str,
    values: &[&dyn ToSql],
    read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
) -> Result<Vec<T>, Error> {
    let mut statement = db.prepare_cached(sql).map_err(error::from_sqlite_error)?;
    let rows = statement
        .query_map(values, read)
        .map_err(error::from_sqlite_error)?;
    rows.collect::<rusqlite::Result<Vec<T>>>()
        .map_err(error::from_sqlite_error)
}

/// Selects run heads. The last event of a run is at the end of its range in the log. It is read in
/// a subquery, because with a join SQLite would plan the statement again at every use.
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

pub(crate) fn read_run_head(db: &Connection, run: &RunId) -> Result<Option<RunHead>, Error> {
    let heads = query_rows(db, heads!("run_id = ?1"), params![&**run], |row| {
        Ok(run_head_from_row(row))
    })?;
    heads.into_iter().next().transpose()
}

pub(crate) fn list_run_heads(
    db: &Connection,
    behind: Option<RunEventReader>,
    after: Option<&RunId>,
    limit: usize,
) -> Result<Vec<RunHead>, Error> {
    let sql = match behind {
        None => heads!("run_id > ?1 ORDER BY run_id LIMIT ?2"),
        Some(RunEventReader::Projector) => {
            heads!("run_id > ?1 AND to_project ORDER BY run_id LIMIT ?2")
        }
        Some(RunEventReader::EventBus) => {
            heads!("run_id > ?1 AND to_deliver ORDER BY run_id LIMIT ?2")
        }
    };
    let after = after.map_or("", |run| run);
    query_rows(db, sql, params![after, limit_to_sql(limit)], |row| {
        Ok(run_head_from_row(row))
    })?
    .into_iter()
    .collect()
}

fn run_head_from_row(row: &Row<'_>) -> Result<RunHead, Error> {
    Ok(RunHead {
        run_id: parse_column(row, 0)?,
        tenant_id: parse_column(row, 1)?,
        project_id: parse_column(row, 2)?,
        environment_id: parse_column(row, 3)?,
        last_seq: run_seq_column(row, 4)?,
        last_persisted_at: timestamp_column(row, 5)?,
        projected_seq: run_seq_column(row, 6)?,
        delivered_seq: run_seq_column(row, 7)?,
    })
}

fn parse_column<T: std::str::FromStr<Err: std::fmt::Display>>(
    row: &Row<'_>,
    place: usize,
) -> Result<T, Error> {
    let text = row
        .get_ref(place)
        .map_err(error::from_sqlite_error)?
        .as_str()
        .map_err(Error::corrupt)?;
    text.parse().map_err(Error::corrupt)
}

fn run_seq_column(row: &Row<'_>, place: usize) -> Result<RunSeq, Error> {
    let number: i64 = row.get(place).map_err(error::from_sqlite_error)?;
    u64::try_from(number)
        .ok()
        .and_then(RunSeq::new)
        .ok_or_else(|| Error::corrupt("the sequence number is out of range"))
}

fn timestamp_column(row: &Row<'_>, place: usize) -> Result<Timestamp, Error> {
    let us: i64 = row.get(place).map_err(error::from_sqlite_error)?;
    Timestamp::from_micros(us).ok_or_else(|| Error::corrupt("the timestamp is out of range"))
}

/// The columns that [`run_event_from_row`] expects.
macro_rules! event_columns {
    () => {
        "run_seq, persisted_at, event_id, event_type, emitted_at, plan_id, plan_version, engine_attempt_id, \
         logical_attempt_id, idempotency_key, step_id, payload, extra, tenant_id, project_id, environment_id, checksum"
    };
}

pub(crate) fn read_run_events(
    db: &Connection,
    run: &RunId,
    after: RunSeq,
    limit: usize,
) -> Result<Vec<RunEventRecord>, Error> {
    let sql = concat!(
        "SELECT ",
        event_columns!(),
        " FROM runs JOIN run_events ON place > runs.run_no << 32 | min(?2, 0xffffffff) \
         AND place <= runs.run_no << 32 | 0xffffffff WHERE runs.run_id = ?1 ORDER BY place LIMIT ?3"
    );
    let after = after.as_u64().cast_signed();
    let event = |row: &Row<'_>| {
        Ok(run_event_from_row(run, row).map_err(|error| with_event_location(run, row, error)))
    };
    query_rows(db, sql, params![&**run, after, limit_to_sql(limit)], event)?
        .into_iter()
        .collect()
}

/// Adds the run and the sequence number of the unreadable event to the error.
fn with_event_location(run: &RunId, row: &Row<'_>, error: Error) -> Error {
    match (error, run_seq_column(row, 0)) {
        (Error::Corrupt(reason), Ok(run_seq)) => Error::UnreadableEvent {
            run: run.clone(),
            run_seq,
            reason,
        },
        (error, _) => error,
    }
}

fn run_event_from_row(run: &RunId, row: &Row<'_>) -> Result<RunEventRecord, Error> {
    let event = RunEventWrite {
        event_id: event_id_column(row, 2)?,
        event_type: parse_column(row, 3)?,
        emitted_at: parse_column::<EmittedAt>(row, 4)?,
        run_id: run.clone(),
        tenant_id: parse_column(row, 13)?,
        project_id: parse_column(row, 14)?,
        environment_id: parse_column(row, 15)?,
        plan_id: parse_column(row, 5)?,
        plan_version: parse_column(row, 6)?,
        engine_attempt_id: attempt_column(row, 7)?,
        logical_attempt_id: attempt_column(row, 8)?,
        idempotency_key: IdempotencyKey::from_bytes(row.get(9).map_err(error::from_sqlite_error)?),
        step_id: if text_column(row, 10)?.is_some() {
            Some(parse_column(row, 10)?)
        } else {
            None
        },
        payload: text_column(row, 11)?
            .map(Payload::parse)
            .transpose()
            .map_err(Error::corrupt)?,
        extra: text_column(row, 12)?
            .map_or(Ok(ExtraFields::NONE), ExtraFields::parse)
            .map_err(Error::corrupt)?,
    };
    let record = RunEventRecord {
        event,
        run_seq: run_seq_column(row, 0)?,
        persisted_at: timestamp_column(row, 1)?,
    };
    let stored: i64 = row.get(16).map_err(error::from_sqlite_error)?;
    if stored != checksum::expected_checksum(&record, stored) {
        return Err(Error::corrupt(
            "the checksum does not match: the event was changed after it was written",
        ));
    }
    Ok(record)
}

pub(crate) fn event_id_column(row: &Row<'_>, place: usize) -> Result<RunEventId, Error> {
    RunEventId::from_bytes(row.get(place).map_err(error::from_sqlite_error)?)
        .map_err(Error::corrupt)
}

fn attempt_column(row: &Row<'_>, place: usize) -> Result<AttemptNumber, Error> {
    let number: u32 = row.get(place).map_err(error::from_sqlite_error)?;
    AttemptNumber::new(number).ok_or_else(|| Error::corrupt("attempt 0"))
}

fn text_column<'a>(row: &'a Row<'_>, place: usize) -> Result<Option<&'a str>, Error> {
    row.get_ref(place)
        .map_err(error::from_sqlite_error)?
        .as_str_or_null()
        .map_err(Error::corrupt)
}

/// Reads the event with this idempotency key, for the writer's duplicate check. A damaged event is
/// an error and not a duplicate: what it says was never acknowledged.
pub(crate) fn read_event_by_key(
    db: &Connection,
    run: &RunId,
    key: &IdempotencyKey,
) -> Result<Option<onward_store::StoredEvent>, Error> {
    let sql = concat!(
        "SELECT ",
        event_columns!(),
        " FROM runs JOIN run_events ON run_events.run_no = runs.run_no WHERE runs.run_id = ?1 AND idempotency_key = ?2"
    );
    let event = |row: &Row<'_>| {
        Ok(run_event_from_row(run, row).map_err(|error| with_event_location(run, row, error)))
    };
    let found = query_rows(db, sql, params![&**run, key.as_bytes().as_slice()], event)?;
    let found = found.into_iter().next().transpose()?;
    Ok(found.map(|record| {
        onward_store::StoredEvent::from_write(&record.event, record.run_seq, record.persisted_at)
    }))
}

pub(crate) fn has_event(db: &Connection, id: &RunEventId) -> Result<bool, Error> {
    let mut statement = db
        .prepare_cached("SELECT 1 FROM event_ids WHERE event_id = ?1")
        .map_err(error::from_sqlite_error)?;
    statement
        .exists([id.as_bytes().as_slice()])
        .map_err(error::from_sqlite_error)
}

#[cfg(test)]
mod tests {
    use onward_base::Timestamp;
    use rusqlite::Connection;

    use super::{SELECT_JOURNAL, SELECT_JOURNAL_END};
    use crate::migrate;

    /// The plan must not depend on the length or the number of journals.
    #[test]
    fn journal_reads_use_the_index() {
        let mut db = Connection::open_in_memory().unwrap();
        migrate::apply_migrations(&mut db, Timestamp::EPOCH).unwrap();
        for sql in [SELECT_JOURNAL_END, SELECT_JOURNAL] {
            let mut explained = db.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let mut rows = explained.raw_query();
            let mut plan = String::new();
            while let Some(row) = rows.next().unwrap() {
                plan += &format!("{}\n", row.get::<_, String>(3).unwrap());
            }
            assert!(
                plan.contains("MERGE (UNION ALL)\nLEFT\nSEARCH journal_index USING PRIMARY KEY"),
                "{plan}"
            );
            assert!(!plan.contains("SCAN"), "{plan}");
        }
    }
}
