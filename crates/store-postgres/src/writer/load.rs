//! The first half of a careful transaction: everything that a group of commits is about, locked and read, in one go.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use deadpool_postgres::ClientWrapper;
use onward_journal::{ExecutionId, Timestamp};
use onward_runs::{RunEventWrite, RunId};
use onward_store::memory::State;
use onward_store::tables::ShardLease;
use onward_store::{Error, JournalChunk, Key, Record as _, Table, Value};
use tokio_postgres::Row;

use crate::error::{self, Trouble};
use crate::event;
use crate::head;
use crate::pipeline::{self, Frame, Step};
use crate::sql::{self, Lock};
use crate::value::{Cell, Time, Uuid, stored, unsigned};
use crate::writer::wish::Wish;

/// What is stored, as far as a group of commits is concerned.
#[derive(Default)]
pub(super) struct Loaded {
    /// What the rules may ask for.
    pub(super) state: State,
    /// The rows that are there.
    pub(super) rows: BTreeSet<(&'static str, Key)>,
    /// The runs that are there.
    pub(super) runs: BTreeSet<RunId>,
    /// Numbers for new rows, by table.
    pub(super) serials: BTreeMap<&'static str, VecDeque<i64>>,
    /// The database's clock.
    pub(super) now: Option<Timestamp>,
    /// The transaction's own id.
    pub(super) transaction: String,
}

/// What the answer to a step holds.
enum About {
    Nothing,
    Rows(&'static Table),
    Serials(&'static Table),
    Journals,
    Heads,
    Events,
    Transaction,
}

/// Begins a transaction, locks and reads.
pub(super) async fn load(client: &ClientWrapper, wish: &Wish<'_>) -> Result<Loaded, Trouble> {
    let (about, steps): (Vec<About>, Vec<Step<'_>>) = steps(wish).into_iter().unzip();
    let answers = pipeline::send(client, &steps, Frame::Begin).await?;
    let mut loaded = Loaded::default();
    for (about, rows) in about.iter().zip(&answers) {
        loaded.take(about, rows).map_err(Trouble::Refused)?;
    }
    Ok(loaded)
}

/// Locks come before what they protect: a statement sees what was committed before it was begun.
fn steps<'a>(wish: &'a Wish<'_>) -> Vec<(About, Step<'a>)> {
    let mut steps = Vec::new();
    if !wish.unheld.is_empty() {
        steps.push((About::Nothing, keep_executions(&wish.unheld)));
    }
    for rows in wish.tables.values() {
        if !rows.keys.is_empty() {
            let keys = rows.keys.iter().map(|key| key.0.as_slice());
            let names = sql::key_names(rows.table);
            steps.push((About::Rows(rows.table), locked(rows.table, &names, keys, Lock::Update)));
        }
        for (&place, values) in &rows.unique {
            let values = values.iter().map(Vec::as_slice);
            let names = rows.table.unique[place];
            steps.push((About::Rows(rows.table), locked(rows.table, names, values, Lock::Update)));
        }
        if rows.serials > 0 {
            steps.push((About::Serials(rows.table), Step::new(sql::serials(rows.table)).with(rows.serials)));
        }
    }
    if wish.has_no_owner {
        steps.push((About::Nothing, Step::new("LOCK TABLE shards IN SHARE MODE")));
    }
    if !wish.fences.is_empty() {
        let table = ShardLease::TABLE;
        let keys = wish.fences.iter().map(|key| key.0.as_slice());
        steps.push((About::Rows(table), locked(table, &sql::key_names(table), keys, Lock::Share)));
    }
    if !wish.runs.is_empty() {
        steps.push((About::Heads, heads(&wish.runs)));
    }
    if !wish.executions.is_empty() {
        steps.push((About::Journals, journals(&wish.executions)));
    }
    if !wish.events.is_empty() {
        steps.push((About::Events, events_by_key(&wish.events)));
        steps.push((About::Events, events_by_id(&wish.events)));
    }
    let transaction = Step::new("SELECT clock_timestamp(), pg_current_xact_id()::text");
    steps.push((About::Transaction, transaction));
    steps
}

/// The rows with these values in the columns `by`.
fn locked<'a>(table: &'static Table, by: &[&str], values: impl Iterator<Item = &'a [Value]>, lock: Lock) -> Step<'a> {
    let rows: Vec<&'a [Value]> = values.collect();
    let columns = (0..by.len()).map(|place| rows.iter().map(|row| Cell(&row[place])).collect::<Vec<Cell<'a>>>());
    Step::new(sql::locked(table, by, lock)).with_all(columns.collect::<Vec<_>>())
}

/// Keeps executions from being purged meanwhile; see [`purge`](crate::purge). Writers do not hinder each other.
fn keep_executions<'a>(executions: &BTreeSet<ExecutionId>) -> Step<'a> {
    let slots: BTreeSet<i32> = executions.iter().map(crate::purge::slot).collect();
    let slots: Vec<i32> = slots.into_iter().collect();
    Step::new("SELECT pg_advisory_xact_lock_shared($1, slot) FROM unnest($2::int[]) AS slot")
        .with(crate::purge::LOCKS)
        .with(slots)
}

fn journals(executions: &BTreeSet<ExecutionId>) -> Step<'_> {
    let ids: Vec<&[u8]> = executions.iter().map(|execution| execution.as_bytes().as_slice()).collect();
    Step::new(include_str!("../../statements/last_chunks.sql")).with(ids)
}

fn heads<'a>(runs: &BTreeSet<&'a RunId>) -> Step<'a> {
    let runs: Vec<&'a str> = runs.iter().map(|run| &***run).collect();
    Step::new(include_str!("../../statements/lock_heads.sql")).with(runs)
}

fn events_by_key<'a>(events: &[&'a RunEventWrite]) -> Step<'a> {
    let runs: Vec<&str> = events.iter().map(|event| &*event.run_id).collect();
    let keys: Vec<&[u8]> = events.iter().map(|event| event.idempotency_key.as_bytes().as_slice()).collect();
    Step::new(include_str!("../../statements/events_by_key.sql")).with(runs).with(keys)
}

fn events_by_id<'a>(events: &[&'a RunEventWrite]) -> Step<'a> {
    let ids: Vec<Uuid> = events.iter().map(|event| Uuid(*event.event_id.as_bytes())).collect();
    Step::new(include_str!("../../statements/events_by_id.sql")).with(ids)
}

impl Loaded {
    fn take(&mut self, about: &About, rows: &[Row]) -> Result<(), Error> {
        match about {
            About::Nothing => Ok(()),
            About::Rows(table) => rows.iter().try_for_each(|row| self.take_row(table, row)),
            About::Serials(table) => self.take_serials(table, rows),
            About::Journals => rows.iter().try_for_each(|row| self.take_journal(row)),
            About::Heads => rows.iter().try_for_each(|row| {
                let head = head::head(row)?;
                self.runs.insert(head.run_id.clone());
                self.state.put_head(head);
                Ok(())
            }),
            About::Events => rows.iter().try_for_each(|row| {
                self.state.insert_event(event::record(row)?);
                Ok(())
            }),
            About::Transaction => rows.iter().try_for_each(|row| {
                self.now = Some(row.try_get::<_, Time>(0).map_err(error::from)?.0);
                self.transaction = row.try_get(1).map_err(error::from)?;
                Ok(())
            }),
        }
    }

    fn take_row(&mut self, table: &'static Table, row: &Row) -> Result<(), Error> {
        let stored = stored(table, row)?;
        self.rows.insert((table.name, table.key_of(&stored.row)));
        self.state.put(table, stored.row, stored.version);
        Ok(())
    }

    fn take_serials(&mut self, table: &'static Table, rows: &[Row]) -> Result<(), Error> {
        let numbers =
            rows.iter().map(|row| row.try_get(0)).collect::<Result<VecDeque<i64>, _>>().map_err(error::from)?;
        self.state.reserve_serials(table, numbers.iter().copied());
        self.serials.insert(table.name, numbers);
        Ok(())
    }

    /// The rules ask for the length only, so the chunk stands for the whole journal.
    fn take_journal(&mut self, row: &Row) -> Result<(), Error> {
        let unreadable = |cause: tokio_postgres::Error| error::unreadable("journal", &cause);
        let id: &[u8] = row.try_get(0).map_err(unreadable)?;
        let id = id.try_into().map_err(|cause| error::unreadable("journal", &cause))?;
        let count = u32::try_from(row.try_get::<_, i64>(2).map_err(unreadable)?);
        let count = count.map_err(|cause| error::unreadable("journal", &cause))?;
        let first = unsigned(row.try_get(1).map_err(unreadable)?)?;
        let chunk = JournalChunk { first, count, records: Arc::from([]) };
        self.state.put_chunk(ExecutionId::from_bytes(id), chunk);
        Ok(())
    }
}
