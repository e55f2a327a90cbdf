//! The rules of a commit, written once for all stores.
//!
//! [`decide`] asks [`Before`] for what is stored now and answers with a [`Plan`] of writes, or with the first guard that
//! does not hold. An adapter calls it inside a transaction that keeps others from changing what was asked for.

mod event_rules;
mod row_rules;

use onward_base::{Payload, Timestamp};
use onward_journal::ExecutionId;
use onward_runs::{
    IdempotencyKey, RunEventId, RunEventRecord, RunEventType, RunEventWrite, RunId, RunSeq, StepId,
};

use crate::tables::ShardLeaseRow;
use crate::{
    AdmittedCommit, ColumnCodec, ColumnValue, CommitConflict, CommitReceipt, Error, InvalidRequest,
    JournalAppend, ReaderAdvance, RowChange, RowKey, RunHead, ShardEpoch, ShardFence, ShardId,
    StoredRow, TableRecord, TableRow, TableSchema,
};

/// What is stored before a commit.
pub trait StoredState {
    /// The epoch a shard is at; [`Epoch::NONE`] when nobody ever owned it.
    fn shard_epoch(&mut self, shard: ShardId) -> Result<ShardEpoch, Error> {
        ShardLeaseRow::epoch_from_row(
            self.stored_row(ShardLeaseRow::TABLE, &RowKey(vec![shard.to_value()]))?
                .as_ref(),
        )
    }

    /// How many events the journal of an execution has.
    fn journal_length(&mut self, execution: ExecutionId) -> Result<u64, Error>;

    /// The row with this key.
    fn stored_row(
        &mut self,
        table: &'static TableSchema,
        key: &RowKey,
    ) -> Result<Option<StoredRow>, Error>;

    /// The row with these values in the columns `table.unique[unique]`.
    fn row_by_unique(
        &mut self,
        table: &'static TableSchema,
        unique: usize,
        values: &[ColumnValue],
    ) -> Result<Option<StoredRow>, Error>;

    /// Whether the row that this change is about need not be looked at: the database objects if it is there and is to be new,
    /// or is not at the version that is to be amended; and all is decided again.
    fn is_enforced_by_database(&self, _change: &RowChange) -> bool {
        false
    }

    /// The head of a run, if it has events.
    fn run_head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error>;

    /// The event of a run with this idempotency key.
    fn event_by_key(
        &mut self,
        run: &RunId,
        key: &IdempotencyKey,
    ) -> Result<Option<StoredEvent>, Error>;

    /// Whether any run has an event with this id.
    fn has_event_id(&mut self, id: &RunEventId) -> Result<bool, Error>;
}

/// An event that is stored already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Its id.
    pub event_id: RunEventId,
    /// Its place.
    pub run_seq: RunSeq,
    /// When it was stored.
    pub persisted_at: Timestamp,
    /// What happened.
    pub event_type: RunEventType,
    /// The step that it is about, if it is about one.
    pub step_id: Option<StepId>,
    /// What it carries.
    pub payload: Option<Payload>,
}

impl StoredEvent {
    /// What is known of `event`, which is stored here.
    pub fn from_write(event: &RunEventWrite, run_seq: RunSeq, persisted_at: Timestamp) -> Self {
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

impl From<&RunEventRecord> for StoredEvent {
    fn from(record: &RunEventRecord) -> Self {
        Self::from_write(&record.event, record.run_seq, record.persisted_at)
    }
}

/// Whether to look for duplicates before writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// Take every event for new, and where the adapter says so every row that is to be new, and every row that is to be
    /// amended for what it is believed to be; and let the database object. Nearly all of them are, and not looking is twice
    /// as fast. When the database objects, decide again with [`Care::Look`]; and likewise when a guard does not hold, because
    /// what was not looked at may be the first that does not fit.
    Optimistic,
    /// Look.
    Checked,
}

/// What to write, and what to answer once it is durable.
#[derive(Debug, Default)]
pub struct WritePlan<'a> {
    /// Journal chunks to insert.
    pub journals: Vec<&'a JournalAppend>,
    /// Rows to write.
    pub rows: Vec<RowWrite<'a>>,
    /// Run events to insert.
    pub events: Vec<PlannedEvent<'a>>,
    /// Heads of runs as they are to be, inserted or updated.
    pub heads: Vec<RunHead>,
    /// The answer.
    pub receipt: CommitReceipt,
}

/// A row to write.
#[derive(Debug)]
pub enum RowWrite<'a> {
    /// Insert with version 1; the store assigns a serial key.
    Insert(&'static TableSchema, &'a TableRow),
    /// Write those columns that change, with this version.
    Update(&'static TableSchema, &'a TableRow, u64, ChangedColumns),
    /// The same to a row that nobody has looked at: only if it is at this version, to which one is added. Where it is not, the
    /// adapter objects.
    UpdateIfVersion(&'static TableSchema, &'a TableRow, u64, ChangedColumns),
    /// Delete, if it is there.
    Delete(&'static TableSchema, &'a RowKey),
}

/// Which columns of a row are to hold something else, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangedColumns(u64);

impl ChangedColumns {
    /// What tells `row` from `stored`.
    pub fn between_rows(stored: &TableRow, row: &TableRow) -> Self {
        let differs = |(place, (before, now))| u64::from(before != now) << place;
        Self(stored.0.iter().zip(&row.0).enumerate().map(differs).sum())
    }

    /// The columns in these places.
    pub fn from_positions(places: impl IntoIterator<Item = usize>) -> Self {
        Self(places.into_iter().fold(0, |all, place| all | 1 << place))
    }

    /// What `row` makes of `stored`.
    pub fn copy_changed(self, stored: &mut TableRow, row: &TableRow) {
        let changes = stored
            .0
            .iter_mut()
            .zip(&row.0)
            .enumerate()
            .filter(|(place, _)| self.contains(*place));
        changes.for_each(|(_, (before, now))| before.clone_from(now));
    }

    /// Where they stand.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |place| self.contains(*place))
    }

    /// Whether the column in this place is to hold something else.
    pub const fn contains(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }
}

impl RowWrite<'_> {
    /// Where it is written.
    pub const fn table(&self) -> &'static TableSchema {
        match self {
            Self::Insert(table, _)
            | Self::Update(table, ..)
            | Self::UpdateIfVersion(table, ..)
            | Self::Delete(table, _) => table,
        }
    }
}

/// A run event to insert.
#[derive(Debug, Clone, Copy)]
pub struct PlannedEvent<'a> {
    /// The event.
    pub event: &'a RunEventWrite,
    /// Its place.
    pub run_seq: RunSeq,
    /// Its stamp.
    pub persisted_at: Timestamp,
}

/// What `commit` comes to, at `now`. The first guard that does not hold is the answer: fences first, then journals,
/// rows, positions and run events, each in the order given.
pub fn plan_commit<'a>(
    commit: &'a AdmittedCommit,
    before: &mut impl StoredState,
    now: Timestamp,
    care: Duplicates,
) -> Result<WritePlan<'a>, Error> {
    let commit = commit.commit();
    let mut plan = WritePlan::default();
    commit
        .fences
        .iter()
        .try_for_each(|fence| check_shard_fence(fence, before))?;
    for append in &commit.journals {
        check_journal_length(append, before)?;
        plan.journals.push(append);
    }
    let making_room = tables_with_freed_keys(&commit.changes);
    for change in &commit.changes {
        let is_safe = matches!(change, RowChange::UpdateColumns { .. })
            || !making_room.contains(&change.table().name);
        let is_trusted = is_safe && before.is_enforced_by_database(change);
        row_rules::plan_change(change, before, &mut plan, is_trusted)?;
    }
    let mut heads = event_rules::PendingRunHeads::default();
    commit
        .reader_advances
        .iter()
        .try_for_each(|step| check_reader_advance(step, before, &mut heads))?;
    event_rules::plan_events(
        &commit.events,
        before,
        &mut heads,
        &mut plan,
        event_rules::AppendContext {
            now,
            duplicates: care,
        },
    )?;
    plan.heads = heads.into_changed();
    Ok(plan)
}

/// Tables in which a commit may set free what identifies a row. A new one may go where another was before, which it must not,
/// and to which the database would not object.
fn tables_with_freed_keys(changes: &[RowChange]) -> Vec<&'static str> {
    let mut tables: Vec<&'static str> = Vec::new();
    for change in changes {
        let is_harmless = matches!(
            change,
            RowChange::Insert { .. }
                | RowChange::InsertOrKeep { .. }
                | RowChange::UpdateColumns { .. }
        );
        if !is_harmless && !tables.contains(&change.table().name) {
            tables.push(change.table().name);
        }
    }
    tables
}

fn check_shard_fence(fence: &ShardFence, before: &mut impl StoredState) -> Result<(), Error> {
    let held = before.shard_epoch(fence.shard)?;
    if held == fence.epoch {
        return Ok(());
    }
    Err(CommitConflict::Fenced {
        shard: fence.shard,
        held,
        given: fence.epoch,
    }
    .into())
}

fn check_journal_length(
    append: &JournalAppend,
    before: &mut impl StoredState,
) -> Result<(), Error> {
    let found = before.journal_length(append.execution)?;
    if found == append.expected_length {
        return Ok(());
    }
    Err(CommitConflict::JournalLength {
        execution: append.execution,
        expected: append.expected_length,
        found,
    }
    .into())
}

fn check_reader_advance(
    step: &ReaderAdvance,
    before: &mut impl StoredState,
    heads: &mut event_rules::PendingRunHeads,
) -> Result<(), Error> {
    let ReaderAdvance {
        run,
        reader,
        from,
        to,
    } = step.clone();
    let Some(head) = heads.get_or_load(&run, before)? else {
        return Err(InvalidRequest::NoSuchRun(run).into());
    };
    let found = head.reader_position(reader);
    if found != from {
        return Err(CommitConflict::ReaderPosition {
            run,
            reader,
            expected: from,
            found,
        }
        .into());
    }
    if to < from || to > head.last_seq {
        return Err(InvalidRequest::ReaderAdvance {
            run,
            reader,
            from,
            to,
            last: head.last_seq,
        }
        .into());
    }
    let moved = head.clone().with_reader_at(reader, to);
    heads.update_head(moved);
    Ok(())
}
