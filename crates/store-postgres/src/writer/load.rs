//! First half of a pessimistic transaction: locks and reads the read set of a group, in one round
//! trip.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventWrite, RunId};
use onward_store::memory::MemoryState;
use onward_store::tables::ShardLeaseRow;
use onward_store::{ColumnValue, Error, JournalChunk, RowKey, TableRecord as _, TableSchema};
use tokio_postgres::Row;

use crate::error::{self, StatementFailure};
use crate::pipeline::{self, PipelineStatement, TransactionBoundary};
use crate::run_event;
use crate::run_head;
use crate::sql::{self, RowLock};
use crate::value::{
    PostgresParameter, PostgresTimestamp, PostgresUuid, count_from_sql, stored_from_row,
};
use crate::writer::read_set::ReadSet;

/// The stored state that a group of commits needs.
#[derive(Default)]
pub(super) struct LoadedState {
    /// State for the store's rules.
    pub(super) state: MemoryState,
    /// Keys of the rows that exist.
    pub(super) rows: BTreeSet<(&'static str, RowKey)>,
    /// Runs that exist.
    pub(super) runs: BTreeSet<RunId>,
    /// Serial numbers for new rows, by table name.
    pub(super) serials: BTreeMap<&'static str, VecDeque<i64>>,
    /// Time of the database's clock.
    pub(super) now: Option<Timestamp>,
    /// The id of the transaction (`xid8`) as text.
    pub(super) transaction: String,
}

/// Content of the answer to a statement.
enum LoadTarget {
    Nothing,
    Rows(&'static TableSchema),
    Serials(&'static TableSchema),
    Journals,
    Heads,
    Events,
    Transaction,
}

/// Begins a transaction, and locks and reads the read set.
pub(super) async fn load_read_set(
    client: &ClientWrapper,
    wish: &ReadSet<'_>,
) -> Result<LoadedState, StatementFailure> {
    let (about, steps): (Vec<LoadTarget>, Vec<PipelineStatement<'_>>) =
        load_statements(wish).into_iter().unzip();
    let answers = pipeline::send_pipeline(client, &steps, TransactionBoundary::Begin).await?;
    let mut loaded = LoadedState::default();
    for (about, rows) in about.iter().zip(&answers) {
        loaded
            .add_result(about, rows)
            .map_err(StatementFailure::Permanent)?;
    }
    Ok(loaded)
}

/// Locks precede the data they protect, because a statement sees only what was committed before it
/// started.
fn load_statements<'a>(wish: &'a ReadSet<'_>) -> Vec<(LoadTarget, PipelineStatement<'a>)> {
    let mut steps = Vec::new();
    if !wish.unlocked_executions.is_empty() {
        steps.push((
            LoadTarget::Nothing,
            lock_against_purge(&wish.unlocked_executions),
        ));
    }
    for rows in wish.tables.values() {
        if !rows.keys.is_empty() {
            let keys = rows.keys.iter().map(|key| key.0.as_slice());
            let names = sql::key_column_names(rows.table);
            steps.push((
                LoadTarget::Rows(rows.table),
                lock_rows_statement(rows.table, &names, keys, RowLock::Update),
            ));
        }
        for (&place, values) in &rows.unique {
            let values = values.iter().map(Vec::as_slice);
            let names = rows.table.unique[place];
            steps.push((
                LoadTarget::Rows(rows.table),
                lock_rows_statement(rows.table, names, values, RowLock::Update),
            ));
        }
        if rows.serials > 0 {
            steps.push((
                LoadTarget::Serials(rows.table),
                PipelineStatement::new(sql::build_next_serials(rows.table))
                    .with_param(rows.serials),
            ));
        }
    }
    if wish.requires_unowned_shard {
        steps.push((
            LoadTarget::Nothing,
            PipelineStatement::new("LOCK TABLE shards IN SHARE MODE"),
        ));
    }
    if !wish.fences.is_empty() {
        let table = ShardLeaseRow::TABLE;
        let keys = wish.fences.iter().map(|key| key.0.as_slice());
        steps.push((
            LoadTarget::Rows(table),
            lock_rows_statement(table, &sql::key_column_names(table), keys, RowLock::Share),
        ));
    }
    if !wish.runs.is_empty() {
        steps.push((LoadTarget::Heads, lock_heads_statement(&wish.runs)));
    }
    if !wish.executions.is_empty() {
        steps.push((
            LoadTarget::Journals,
            last_chunks_statement(&wish.executions),
        ));
    }
    if !wish.events.is_empty() {
        steps.push((LoadTarget::Events, events_by_key(&wish.events)));
        steps.push((LoadTarget::Events, events_by_id(&wish.events)));
    }
    let transaction =
        PipelineStatement::new("SELECT clock_timestamp(), pg_current_xact_id()::text");
    steps.push((LoadTarget::Transaction, transaction));
    steps
}

/// Locks and reads the rows with these values in the columns `by`.
fn lock_rows_statement<'a>(
    table: &'static TableSchema,
    by: &[&str],
    values: impl Iterator<Item = &'a [ColumnValue]>,
    lock: RowLock,
) -> PipelineStatement<'a> {
    let rows: Vec<&'a [ColumnValue]> = values.collect();
    let columns = (0..by.len()).map(|place| {
        rows.iter()
            .map(|row| PostgresParameter(&row[place]))
            .collect::<Vec<PostgresParameter<'a>>>()
    });
    PipelineStatement::new(sql::build_select_locked(table, by, lock))
        .with_params(columns.collect::<Vec<_>>())
}

/// Prevents a concurrent purge of these executions; see [`purge`](crate::purge). Writers share the
/// lock and do not block each other.
fn lock_against_purge<'a>(executions: &BTreeSet<ExecutionId>) -> PipelineStatement<'a> {
    let slots: BTreeSet<i32> = executions
        .iter()
        .map(crate::purge::purge_lock_slot)
        .collect();
    let slots: Vec<i32> = slots.into_iter().collect();
    PipelineStatement::new(
        "SELECT pg_advisory_xact_lock_shared($1, slot) FROM unnest($2::int[]) AS slot",
    )
    .with_param(crate::purge::PURGE_LOCK_CLASS)
    .with_param(slots)
}

fn last_chunks_statement(executions: &BTreeSet<ExecutionId>) -> PipelineStatement<'_> {
    let ids: Vec<&[u8]> = executions
        .iter()
        .map(|execution| execution.as_bytes().as_slice())
        .collect();
    PipelineStatement::new(include_str!("../../statements/last_chunks.sql")).with_param(ids)
}

fn lock_heads_statement<'a>(runs: &BTreeSet<&'a RunId>) -> PipelineStatement<'a> {
    let runs: Vec<&'a str> = runs.iter().map(|run| &***run).collect();
    PipelineStatement::new(include_str!("../../statements/lock_heads.sql")).with_param(runs)
}

fn events_by_key<'a>(events: &[&'a RunEventWrite]) -> PipelineStatement<'a> {
    let runs: Vec<&str> = events.iter().map(|event| &*event.run_id).collect();
    let keys: Vec<&[u8]> = events
        .iter()
        .map(|event| event.idempotency_key.as_bytes().as_slice())
        .collect();
    PipelineStatement::new(include_str!("../../statements/events_by_key.sql"))
        .with_param(runs)
        .with_param(keys)
}

fn events_by_id<'a>(events: &[&'a RunEventWrite]) -> PipelineStatement<'a> {
    let ids: Vec<PostgresUuid> = events
        .iter()
        .map(|event| PostgresUuid(*event.event_id.as_bytes()))
        .collect();
    PipelineStatement::new(include_str!("../../statements/events_by_id.sql")).with_param(ids)
}

impl LoadedState {
    fn add_result(&mut self, about: &LoadTarget, rows: &[Row]) -> Result<(), Error> {
        match about {
            LoadTarget::Nothing => Ok(()),
            LoadTarget::Rows(table) => rows.iter().try_for_each(|row| self.add_row(table, row)),
            LoadTarget::Serials(table) => self.add_serials(table, rows),
            LoadTarget::Journals => rows.iter().try_for_each(|row| self.add_journal_end(row)),
            LoadTarget::Heads => rows.iter().try_for_each(|row| {
                let head = run_head::head_from_row(row)?;
                self.runs.insert(head.run_id.clone());
                self.state.put_head(head);
                Ok(())
            }),
            LoadTarget::Events => rows.iter().try_for_each(|row| {
                self.state.insert_event(run_event::event_from_row(row)?);
                Ok(())
            }),
            LoadTarget::Transaction => rows.iter().try_for_each(|row| {
                self.now = Some(
                    row.try_get::<_, PostgresTimestamp>(0)
                        .map_err(error::from_postgres_error)?
                        .0,
                );
                self.transaction = row.try_get(1).map_err(error::from_postgres_error)?;
                Ok(())
            }),
        }
    }

    fn add_row(&mut self, table: &'static TableSchema, row: &Row) -> Result<(), Error> {
        let stored = stored_from_row(table, row)?;
        self.rows.insert((table.name, table.key_of(&stored.row)));
        self.state.put_row(table, stored.row, stored.version);
        Ok(())
    }

    fn add_serials(&mut self, table: &'static TableSchema, rows: &[Row]) -> Result<(), Error> {
        let numbers = rows
            .iter()
            .map(|row| row.try_get(0))
            .collect::<Result<VecDeque<i64>, _>>()
            .map_err(error::from_postgres_error)?;
        self.state.reserve_serials(table, numbers.iter().copied());
        self.serials.insert(table.name, numbers);
        Ok(())
    }

    /// Adds the last chunk of a journal. The rules only need the length, so the chunk represents
    /// the whole journal.
    fn add_journal_end(&mut self, row: &Row) -> Result<(), Error> {
        let unreadable = |cause: tokio_postgres::Error| error::unreadable_row("journal", &cause);
        let id: &[u8] = row.try_get(0).map_err(unreadable)?;
        let id = id
            .try_into()
            .map_err(|cause| error::unreadable_row("journal", &cause))?;
        let count = u32::try_from(row.try_get::<_, i64>(2).map_err(unreadable)?);
        let count = count.map_err(|cause| error::unreadable_row("journal", &cause))?;
        let first = count_from_sql(row.try_get(1).map_err(unreadable)?)?;
        let chunk = JournalChunk {
            first,
            count,
            records: Arc::from([]),
        };
        self.state.put_chunk(ExecutionId::from_bytes(id), chunk);
        Ok(())
    }
}
