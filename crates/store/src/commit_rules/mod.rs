//! The rules of a commit, written once for all stores.
//!
//! [`plan_commit`] reads the current state through [`StoredState`] and returns a [`WritePlan`], or
//! the first guard that fails. An adapter calls it inside a transaction that prevents concurrent
//! changes to the state it has read.

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

/// Read access to the stored state before a commit.
pub trait StoredState {
    /// Returns the epoch of a shard, or [`ShardEpoch::NONE`] if it never had an owner.
    fn shard_epoch(&mut self, shard: ShardId) -> Result<ShardEpoch, Error> {
        ShardLeaseRow::epoch_from_row(
            self.stored_row(ShardLeaseRow::TABLE, &RowKey(vec![shard.to_value()]))?
                .as_ref(),
        )
    }

    /// Returns the number of events in the journal of an execution.
    fn journal_length(&mut self, execution: ExecutionId) -> Result<u64, Error>;

    /// Returns the row with this key, or `None` if it does not exist.
    fn stored_row(
        &mut self,
        table: &'static TableSchema,
        key: &RowKey,
    ) -> Result<Option<StoredRow>, Error>;

    /// Returns the row with these values in the columns `table.unique[unique]`.
    fn row_by_unique(
        &mut self,
        table: &'static TableSchema,
        unique: usize,
        values: &[ColumnValue],
    ) -> Result<Option<StoredRow>, Error>;

    /// Whether [`plan_commit`] may skip reading the row of this change, because the database
    /// rejects the write if a row to insert exists or a row to update is at another version. The
    /// adapter then plans the commit again.
    fn is_enforced_by_database(&self, _change: &RowChange) -> bool {
        false
    }

    /// Returns the head of a run, or `None` if the run has no events.
    fn run_head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error>;

    /// Returns the event of a run with this idempotency key.
    fn event_by_key(
        &mut self,
        run: &RunId,
        key: &IdempotencyKey,
    ) -> Result<Option<StoredEvent>, Error>;

    /// Whether an event of any run has this id.
    fn has_event_id(&mut self, id: &RunEventId) -> Result<bool, Error>;
}

/// The parts of a stored event that duplicate detection needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredEvent {
    /// Id of the event, unique among all runs.
    pub event_id: RunEventId,
    /// Sequence number of the event in its run.
    pub run_seq: RunSeq,
    /// When the event was stored.
    pub persisted_at: Timestamp,
    /// Type of the event.
    pub event_type: RunEventType,
    /// The step that the event is about; `None` if it is about the run.
    pub step_id: Option<StepId>,
    /// Payload of the event, if it has one.
    pub payload: Option<Payload>,
}

impl StoredEvent {
    /// Returns the stored form of `event` at this sequence number and timestamp.
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

/// Whether to check for duplicates before writing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Duplicates {
    /// Assumes that every event is new and lets the database reject duplicates. Where the adapter
    /// allows it ([`StoredState::is_enforced_by_database`]), also assumes that every row to insert
    /// is new and that every row to update is at the expected version. Nearly all of them are, and
    /// skipping the reads is twice as fast.
    ///
    /// If the database rejects a write, plan again with [`Duplicates::Checked`]. Do the same if a
    /// guard fails, because an unchecked part may be the first that conflicts.
    Optimistic,
    /// Reads the stored state to detect duplicates before writing.
    Checked,
}

/// The writes of a commit, and the receipt to return once they are durable.
#[derive(Debug, Default)]
pub struct WritePlan<'a> {
    /// Journal chunks to insert.
    pub journals: Vec<&'a JournalAppend>,
    /// Rows to write.
    pub rows: Vec<RowWrite<'a>>,
    /// Run events to insert.
    pub events: Vec<PlannedEvent<'a>>,
    /// Run heads to insert or update, with their new values.
    pub heads: Vec<RunHead>,
    /// The receipt to return to the caller.
    pub receipt: CommitReceipt,
}

/// A write to one row.
#[derive(Debug)]
pub enum RowWrite<'a> {
    /// Inserts a row with version 1; the store assigns a serial key.
    Insert(&'static TableSchema, &'a TableRow),
    /// Writes the changed columns and sets the row to this version.
    Update(&'static TableSchema, &'a TableRow, u64, ChangedColumns),
    /// Writes the changed columns of a row that was not read: only if the row is at this version,
    /// which is then incremented. If it is not, the adapter rejects the write.
    UpdateIfVersion(&'static TableSchema, &'a TableRow, u64, ChangedColumns),
    /// Deletes a row if it exists.
    Delete(&'static TableSchema, &'a RowKey),
}

/// The set of columns of a row that change, one bit per column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangedColumns(u64);

impl ChangedColumns {
    /// Returns the columns in which `row` differs from `stored`.
    pub fn between_rows(stored: &TableRow, row: &TableRow) -> Self {
        let differs = |(place, (before, now))| u64::from(before != now) << place;
        Self(stored.0.iter().zip(&row.0).enumerate().map(differs).sum())
    }

    /// Returns the set of columns at these positions.
    pub fn from_positions(places: impl IntoIterator<Item = usize>) -> Self {
        Self(places.into_iter().fold(0, |all, place| all | 1 << place))
    }

    /// Copies the changed columns from `row` to `stored`.
    pub fn copy_changed(self, stored: &mut TableRow, row: &TableRow) {
        let changes = stored
            .0
            .iter_mut()
            .zip(&row.0)
            .enumerate()
            .filter(|(place, _)| self.contains(*place));
        changes.for_each(|(_, (before, now))| before.clone_from(now));
    }

    /// Returns the positions of the changed columns, in ascending order.
    pub fn positions(self) -> impl Iterator<Item = usize> {
        (0..64).filter(move |place| self.contains(*place))
    }

    /// Whether the column at this position changes.
    pub const fn contains(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }
}

impl RowWrite<'_> {
    /// Returns the table that this write goes to.
    pub const fn table(&self) -> &'static TableSchema {
        match self {
            Self::Insert(table, _)
            | Self::Update(table, ..)
            | Self::UpdateIfVersion(table, ..)
            | Self::Delete(table, _) => table,
        }
    }
}

/// A run event to insert, with its sequence number and timestamp.
#[derive(Debug, Clone, Copy)]
pub struct PlannedEvent<'a> {
    /// The event as the caller sent it.
    pub event: &'a RunEventWrite,
    /// Sequence number of the event in its run.
    pub run_seq: RunSeq,
    /// Timestamp of the commit, never earlier than that of the previous event of the run.
    pub persisted_at: Timestamp,
}

/// Plans the writes of `commit` at time `now`. Fails with the first guard that does not hold:
/// fences first, then journals, rows, reader positions and run events, each in the given order.
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
        let duplicates = if is_safe && before.is_enforced_by_database(change) {
            Duplicates::Optimistic
        } else {
            Duplicates::Checked
        };
        row_rules::plan_change(change, before, &mut plan, duplicates)?;
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

/// Returns the tables in which the commit may free a key or unique value. A new row must not reuse
/// such a value in the same commit, and the database would not reject it, so rows inserted into
/// these tables must be checked.
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
