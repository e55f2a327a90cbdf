//! The rules of a commit, written once for all stores.
//!
//! [`decide`] asks [`Before`] for what is stored now and answers with a [`Plan`] of writes, or with the first guard that
//! does not hold. An adapter calls it inside a transaction that keeps others from changing what was asked for.

mod events;
mod rows;

use onward_journal::{ExecutionId, Payload, Timestamp};
use onward_runs::{EventId, EventType, IdempotencyKey, RunEventRecord, RunEventWrite, RunId, RunSeq, StepId};

use crate::tables::ShardLease;
use crate::{
    Admitted, Change, Conflict, Epoch, Error, Fence, Field, Invalid, JournalAppend, Key, Move, Receipt, Record, Row,
    RunHead, Shard, Stored, Table, Value,
};

/// What is stored before a commit.
pub trait Before {
    /// The epoch a shard is at; [`Epoch::NONE`] when nobody ever owned it.
    fn epoch(&mut self, shard: Shard) -> Result<Epoch, Error> {
        ShardLease::epoch_of(self.row(ShardLease::TABLE, &Key(vec![shard.to_value()]))?.as_ref())
    }

    /// How many events the journal of an execution has.
    fn journal_length(&mut self, execution: ExecutionId) -> Result<u64, Error>;

    /// The row with this key.
    fn row(&mut self, table: &'static Table, key: &Key) -> Result<Option<Stored>, Error>;

    /// The row with these values in the columns `table.unique[unique]`.
    fn row_by_unique(
        &mut self,
        table: &'static Table,
        unique: usize,
        values: &[Value],
    ) -> Result<Option<Stored>, Error>;

    /// Whether the row that this change is about need not be looked at: the database objects if it is there and is to be new,
    /// or is not at the version that is to be amended; and all is decided again.
    fn objects(&self, _change: &Change) -> bool {
        false
    }

    /// The head of a run, if it has events.
    fn head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error>;

    /// The event of a run with this idempotency key.
    fn event_by_key(&mut self, run: &RunId, key: &IdempotencyKey) -> Result<Option<Known>, Error>;

    /// Whether any run has an event with this id.
    fn has_event(&mut self, id: &EventId) -> Result<bool, Error>;
}

/// An event that is stored already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its id.
    pub event_id: EventId,
    /// Its place.
    pub run_seq: RunSeq,
    /// When it was stored.
    pub persisted_at: Timestamp,
    /// What happened.
    pub event_type: EventType,
    /// The step that it is about, if it is about one.
    pub step_id: Option<StepId>,
    /// What it carries.
    pub payload: Option<Payload>,
}

impl Known {
    /// What is known of `event`, which is stored here.
    pub fn of(event: &RunEventWrite, run_seq: RunSeq, persisted_at: Timestamp) -> Self {
        Self {
            event_id: event.event_id,
            run_seq,
            persisted_at,
            event_type: event.event_type.clone(),
            step_id: event.step_id.clone(),
            payload: event.payload.clone(),
        }
    }
}

impl From<&RunEventRecord> for Known {
    fn from(record: &RunEventRecord) -> Self {
        Self::of(&record.event, record.run_seq, record.persisted_at)
    }
}

/// Whether to look for duplicates before writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// Take every event for new, and where the adapter says so every row that is to be new, and every row that is to be
    /// amended for what it is believed to be; and let the database object. Nearly all of them are, and not looking is twice
    /// as fast. When the database objects, decide again with [`Care::Look`]; and likewise when a guard does not hold, because
    /// what was not looked at may be the first that does not fit.
    Trust,
    /// Look.
    Look,
}

/// What to write, and what to answer once it is durable.
#[derive(Debug, Default)]
pub struct Plan<'a> {
    /// Journal chunks to insert.
    pub journals: Vec<&'a JournalAppend>,
    /// Rows to write.
    pub rows: Vec<Write<'a>>,
    /// Run events to insert.
    pub events: Vec<Planned<'a>>,
    /// Heads of runs as they are to be, inserted or updated.
    pub heads: Vec<RunHead>,
    /// The answer.
    pub receipt: Receipt,
}

/// A row to write.
#[derive(Debug)]
pub enum Write<'a> {
    /// Insert with version 1; the store assigns a serial key.
    Insert(&'static Table, &'a Row),
    /// Write those columns that change, with this version.
    Update(&'static Table, &'a Row, u64, Changed),
    /// The same to a row that nobody has looked at: only if it is at this version, to which one is added. Where it is not, the
    /// adapter objects.
    Amend(&'static Table, &'a Row, u64, Changed),
    /// Delete, if it is there.
    Delete(&'static Table, &'a Key),
}

/// Which columns of a row are to hold something else, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Changed(u64);

impl Changed {
    /// What tells `row` from `stored`.
    pub fn between(stored: &Row, row: &Row) -> Self {
        let differs = |(place, (before, now))| u64::from(before != now) << place;
        Self(stored.0.iter().zip(&row.0).enumerate().map(differs).sum())
    }

    /// The columns in these places.
    pub fn of(places: impl IntoIterator<Item = usize>) -> Self {
        Self(places.into_iter().fold(0, |all, place| all | 1 << place))
    }

    /// What `row` makes of `stored`.
    pub fn apply(self, stored: &mut Row, row: &Row) {
        let changes = stored.0.iter_mut().zip(&row.0).enumerate().filter(|(place, _)| self.has(*place));
        changes.for_each(|(_, (before, now))| before.clone_from(now));
    }

    /// Where they stand.
    pub fn places(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |place| self.has(*place))
    }

    /// Whether the column in this place is to hold something else.
    pub const fn has(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }
}

impl Write<'_> {
    /// Where it is written.
    pub const fn table(&self) -> &'static Table {
        match self {
            Self::Insert(table, _) | Self::Update(table, ..) | Self::Amend(table, ..) | Self::Delete(table, _) => table,
        }
    }
}

/// A run event to insert.
#[derive(Debug, Clone, Copy)]
pub struct Planned<'a> {
    /// The event.
    pub event: &'a RunEventWrite,
    /// Its place.
    pub run_seq: RunSeq,
    /// Its stamp.
    pub persisted_at: Timestamp,
}

/// What `commit` comes to, at `now`. The first guard that does not hold is the answer: fences first, then journals,
/// rows, positions and run events, each in the order given.
pub fn decide<'a>(
    commit: &'a Admitted,
    before: &mut impl Before,
    now: Timestamp,
    care: Care,
) -> Result<Plan<'a>, Error> {
    let commit = commit.commit();
    let mut plan = Plan::default();
    commit.fences.iter().try_for_each(|fence| check_fence(fence, before))?;
    for append in &commit.journals {
        check_journal(append, before)?;
        plan.journals.push(append);
    }
    let making_room = making_room(&commit.changes);
    for change in &commit.changes {
        let is_safe = matches!(change, Change::Amend { .. }) || !making_room.contains(&change.table().name);
        let is_trusted = is_safe && before.objects(change);
        rows::decide(change, before, &mut plan, is_trusted)?;
    }
    let mut heads = events::Heads::default();
    commit.moves.iter().try_for_each(|step| check_move(step, before, &mut heads))?;
    events::decide(&commit.events, before, &mut heads, &mut plan, events::Stamp { now, care })?;
    plan.heads = heads.changed();
    Ok(plan)
}

/// Tables in which a commit may set free what identifies a row. A new one may go where another was before, which it must not,
/// and to which the database would not object.
fn making_room(changes: &[Change]) -> Vec<&'static str> {
    let mut tables: Vec<&'static str> = Vec::new();
    for change in changes {
        let is_harmless = matches!(change, Change::Insert { .. } | Change::InsertOrKeep { .. } | Change::Amend { .. });
        if !is_harmless && !tables.contains(&change.table().name) {
            tables.push(change.table().name);
        }
    }
    tables
}

fn check_fence(fence: &Fence, before: &mut impl Before) -> Result<(), Error> {
    let held = before.epoch(fence.shard)?;
    if held == fence.epoch {
        return Ok(());
    }
    Err(Conflict::Fenced { shard: fence.shard, held, given: fence.epoch }.into())
}

fn check_journal(append: &JournalAppend, before: &mut impl Before) -> Result<(), Error> {
    let found = before.journal_length(append.execution)?;
    if found == append.expected {
        return Ok(());
    }
    Err(Conflict::JournalLength { execution: append.execution, expected: append.expected, found }.into())
}

fn check_move(step: &Move, before: &mut impl Before, heads: &mut events::Heads) -> Result<(), Error> {
    let Move { run, reader, from, to } = step.clone();
    let Some(head) = heads.get(&run, before)? else {
        return Err(Invalid::NoSuchRun(run).into());
    };
    let found = head.position(reader);
    if found != from {
        return Err(Conflict::Position { run, reader, expected: from, found }.into());
    }
    if to < from || to > head.last_seq {
        return Err(Invalid::Move { run, reader, from, to, last: head.last_seq }.into());
    }
    let moved = head.clone().moved(reader, to);
    heads.set(moved);
    Ok(())
}
