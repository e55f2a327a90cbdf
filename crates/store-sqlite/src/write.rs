//! Writes a plan inside the writer's transaction, statement by statement.

use std::collections::BTreeMap;

use onward_runs::{RunEventId, RunId, RunSeq};
use onward_store::tables::ShardLeaseRow;
use onward_store::{
    JournalAppend, PlannedEvent, PurgeTarget, RowWrite, RunEventReader, RunHead, TableRecord as _,
    WritePlan, event_checksum,
};
use rusqlite::{Connection, OptionalExtension as _, Result, ToSql, params, params_from_iter};

use crate::sql;
use crate::values::SqliteParameter;
use crate::writer_cache::{JournalEnd, WriterCache};

pub(crate) fn write_plan(
    db: &Connection,
    recent: &mut WriterCache,
    plan: &WritePlan<'_>,
) -> Result<()> {
    for append in &plan.journals {
        let known = recent
            .cached_journal_end(append.execution)
            .map(|end| end.number);
        recent.cache_journal_end(append.execution, append_journal(db, append, known)?);
    }
    plan.rows
        .iter()
        .try_for_each(|write| write_row(db, write))?;
    if plan
        .rows
        .iter()
        .any(|write| write.table().name == ShardLeaseRow::TABLE.name)
    {
        recent.invalidate_epochs();
    }
    let numbers = plan
        .heads
        .iter()
        .map(|head| Ok((&head.run_id, upsert_run_head(db, head)?)));
    insert_events(db, &plan.events, &numbers.collect::<Result<_>>()?)
}

/// Number of journal rows that are added to the index together; the schema uses the same number.
const INDEX_BATCH_ROWS: i64 = 64;

/// Appends to a journal, which gets its number with its first events. Returns the new end of the
/// journal.
fn append_journal(
    db: &Connection,
    append: &JournalAppend,
    known: Option<i64>,
) -> Result<JournalEnd> {
    let id = append.execution.as_bytes().as_slice();
    let number = match known {
        Some(number) => number,
        None if append.expected_length == 0 => db
            .prepare_cached("INSERT INTO journals (execution_id) VALUES (?1)")?
            .insert([id])?,
        None => db
            .prepare_cached("SELECT journal_no FROM journals WHERE execution_id = ?1")?
            .query_row([id], |row| row.get(0))?,
    };
    let sql =
        "INSERT INTO journal (journal_no, first_sequence, events, records) VALUES (?1, ?2, ?3, ?4)";
    let values = params![
        number,
        append.expected_length.cast_signed(),
        append.count,
        &*append.records
    ];
    let place = db.prepare_cached(sql)?.insert(values)?;
    if place % INDEX_BATCH_ROWS == 0 {
        index_journal_rows(db, place)?;
    }
    Ok(JournalEnd {
        number,
        length: append.expected_length + u64::from(append.count),
    })
}

/// Adds the row at `last` and the rows before it to the index, in the index's order. The index's
/// key rejects two rows of a journal that begin with the same event.
fn index_journal_rows(db: &Connection, last: i64) -> Result<()> {
    let sql = "INSERT INTO journal_index (journal_no, first_sequence, place) \
               SELECT journal_no, first_sequence, place FROM journal WHERE place > ?1 - ?2 AND place <= ?1 \
               AND NOT EXISTS (SELECT 1 FROM journal_index AS its WHERE its.journal_no = journal.journal_no \
                               AND its.first_sequence = journal.first_sequence AND its.place = journal.place) \
               ORDER BY journal_no, first_sequence";
    db.prepare_cached(sql)?
        .execute([last, INDEX_BATCH_ROWS])
        .map(drop)
}

fn write_row(db: &Connection, write: &RowWrite<'_>) -> Result<()> {
    match *write {
        RowWrite::Insert(table, row) => {
            db.prepare_cached(&sql::table_statements(table).insert)?
                .execute(params_from_iter(row.0.iter().map(SqliteParameter)))?;
        }
        RowWrite::Update(table, row, version, changed) => {
            let version = onward_store::ColumnValue::Int(version.cast_signed());
            let values = row.0.iter().chain([&version]).map(SqliteParameter);
            db.prepare_cached(&sql::table_statements(table).update_statement(table, changed))?
                .execute(params_from_iter(values))?;
        }
        RowWrite::UpdateIfVersion(table, row, version, changed) => {
            let version = onward_store::ColumnValue::Int(version.cast_signed());
            let changed_values = changed.positions().map(|place| &row.0[place]);
            let values = row.0[..table.key_length]
                .iter()
                .chain(changed_values)
                .chain([&version])
                .map(SqliteParameter);
            let made = db
                .prepare_cached(
                    &sql::table_statements(table).column_update_statement(table, changed),
                )?
                .execute(params_from_iter(values))?;
            if made != 1 {
                return Err(rusqlite::Error::StatementChangedRows(made));
            }
        }
        RowWrite::Delete(table, key) => {
            db.prepare_cached(&sql::table_statements(table).delete)?
                .execute(params_from_iter(key.0.iter().map(SqliteParameter)))?;
        }
    }
    Ok(())
}

/// The columns of a run's row that describe the positions of its readers.
#[derive(PartialEq, Eq)]
struct RunReaderPositions {
    projected: i64,
    delivered: i64,
    to_project: bool,
    to_deliver: bool,
}

impl RunReaderPositions {
    fn from_head(head: &RunHead) -> Self {
        let is_behind = |reader| head.reader_position(reader) < head.last_seq;
        Self {
            projected: head.projected_seq.as_u64().cast_signed(),
            delivered: head.delivered_seq.as_u64().cast_signed(),
            to_project: is_behind(RunEventReader::Projector),
            to_deliver: is_behind(RunEventReader::EventBus),
        }
    }
}

/// Inserts or updates the run's row and returns the number of the run. Most appends change no
/// reader position and no flag, and then nothing is written.
fn upsert_run_head(db: &Connection, head: &RunHead) -> Result<i64> {
    let stored = db
        .prepare_cached(
            "SELECT run_no, projected_seq, delivered_seq, to_project, to_deliver FROM runs WHERE run_id = ?1",
        )?
        .query_row([&*head.run_id], |row| {
            let (projected, delivered) = (row.get(1)?, row.get(2)?);
            Ok((row.get(0)?, RunReaderPositions { projected, delivered, to_project: row.get(3)?, to_deliver: row.get(4)? }))
        })
        .optional()?;
    let now = RunReaderPositions::from_head(head);
    let RunReaderPositions {
        projected,
        delivered,
        to_project,
        to_deliver,
    } = now;
    match stored {
        Some((run_no, stored)) => {
            if stored != now {
                db.prepare_cached(
                    "UPDATE runs SET projected_seq = ?2, delivered_seq = ?3, to_project = ?4, to_deliver = ?5 WHERE run_no = ?1",
                )?
                .execute(params![run_no, projected, delivered, to_project, to_deliver])?;
            }
            Ok(run_no)
        }
        None => {
            db.prepare_cached(
                "INSERT INTO runs (run_id, tenant_id, project_id, environment_id, projected_seq, delivered_seq, to_project, \
                 to_deliver) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                &*head.run_id,
                &*head.tenant_id,
                &*head.project_id,
                &*head.environment_id,
                projected,
                delivered,
                to_project,
                to_deliver
            ])?;
            Ok(db.last_insert_rowid())
        }
    }
}

/// Number of low bits of a place that hold the sequence number; the bits above are the number of
/// the run.
const SEQ_BITS: u32 = 32;

/// Combines the number of a run and a sequence number. Fails if the sequence number does not fit,
/// because it would change the run's number and put the log out of order.
fn event_place(run_no: i64, seq: RunSeq) -> Result<i64> {
    let seq = u32::try_from(seq.as_u64())
        .map_err(|cause| rusqlite::Error::ToSqlConversionFailure(Box::new(cause)))?;
    Ok(run_no << SEQ_BITS | i64::from(seq))
}

fn insert_events(
    db: &Connection,
    events: &[PlannedEvent<'_>],
    numbers: &BTreeMap<&RunId, i64>,
) -> Result<()> {
    let mut insert = db.prepare_cached(
        "INSERT INTO run_events (place, event_id, event_type, emitted_at, plan_id, plan_version, engine_attempt_id, \
         logical_attempt_id, idempotency_key, step_id, payload, extra, persisted_at, checksum) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
    )?;
    for planned in events {
        let event = planned.event;
        insert.execute(params![
            event_place(numbers[&event.run_id], planned.run_seq)?,
            event.event_id.as_bytes().as_slice(),
            &*event.event_type,
            event.emitted_at.as_str(),
            &*event.plan_id,
            &*event.plan_version,
            event.engine_attempt_id.as_u32(),
            event.logical_attempt_id.as_u32(),
            event.idempotency_key.as_bytes().as_slice(),
            event.step_id.as_deref(),
            event.payload.as_ref().map(|payload| payload.as_str()),
            event.extra.as_json(),
            planned.persisted_at.as_micros(),
            event_checksum::event_checksum(event, planned.run_seq, planned.persisted_at),
        ])?;
    }
    insert_event_ids(db, events)
}

/// Inserts the ids in sorted order, so that neighbouring index entries are inserted one after the
/// other.
fn insert_event_ids(db: &Connection, events: &[PlannedEvent<'_>]) -> Result<()> {
    let mut ids: Vec<&RunEventId> = events
        .iter()
        .map(|planned| &planned.event.event_id)
        .collect();
    ids.sort_unstable();
    let mut insert = db.prepare_cached("INSERT INTO event_ids (event_id) VALUES (?1)")?;
    for id in ids {
        insert.execute([id.as_bytes().as_slice()])?;
    }
    Ok(())
}

/// Deletes the run's or execution's own row first: while it exists, the database rejects deletes
/// from its log.
pub(crate) fn execute_purge(db: &Connection, purge: &PurgeTarget) -> Result<bool> {
    let (statements, id): (&[&str], &dyn ToSql) = match purge {
        PurgeTarget::Run(run) => {
            db.execute("DELETE FROM alerts WHERE subject = ?1", [&&**run])?;
            (
                &[
                    "DELETE FROM runs WHERE run_id = ?1",
                    "DELETE FROM run_snapshots WHERE run_id = ?1",
                ],
                &&**run,
            )
        }
        PurgeTarget::Execution(execution) => (
            &[
                "DELETE FROM executions WHERE execution_id = ?1",
                "DELETE FROM journal WHERE place IN (SELECT place FROM journal_places \
                 WHERE journal_no = (SELECT journal_no FROM journals WHERE execution_id = ?1))",
                "DELETE FROM journals WHERE execution_id = ?1",
                "DELETE FROM tasks WHERE execution_id = ?1",
                "DELETE FROM inbox WHERE execution_id = ?1",
            ],
            &execution.as_bytes().as_slice(),
        ),
    };
    let mut removed = 0;
    for statement in statements {
        removed += db.execute(statement, [id])?;
    }
    Ok(removed > 0)
}
