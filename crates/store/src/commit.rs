//! A commit: everything that becomes true together, and what its author believes to be true before.

use std::sync::Arc;

use onward_journal::ExecutionId;
use onward_runs::{AppendResult, RunEventWrite, RunId, RunSeq};

use crate::{
    ChangedColumns, RowKey, RunEventReader, ShardEpoch, ShardId, StoredRow, TableRecord, TableRow,
    TableSchema,
};

/// Everything that becomes true together, or not at all.
///
/// A commit touches each journal, row and position at most once, and all guards speak of the state before it. So the
/// order of its parts does not matter, except among the run events of one run.
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// The shards whose ownership the commit depends on.
    pub fences: Vec<ShardFence>,
    /// Events to append to journals.
    pub journals: Vec<JournalAppend>,
    /// Rows to insert, update, delete or remove.
    pub changes: Vec<RowChange>,
    /// Positions of readers to move.
    pub reader_advances: Vec<ReaderAdvance>,
    /// Run events to append, in this order.
    pub events: Vec<RunEventWrite>,
    /// Whether its author has other things to do meanwhile: it is not made on the author's time, even where that is quicker.
    pub is_background: bool,
}

impl Commit {
    /// A commit that changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes the commit depend on `shard` still being at `epoch`.
    #[must_use]
    pub fn fence_shard(mut self, shard: ShardId, epoch: ShardEpoch) -> Self {
        self.fences.push(ShardFence { shard, epoch });
        self
    }

    /// Appends to a journal.
    #[must_use]
    pub fn append_journal(mut self, append: JournalAppend) -> Self {
        self.journals.push(append);
        self
    }

    /// Inserts a row that must not be there yet.
    #[must_use]
    pub fn insert(mut self, record: &impl TableRecord) -> Self {
        self.changes.push(RowChange::insert(record));
        self
    }

    /// Inserts a row unless it, or one it may not stand beside, is there: that one is kept, and the rest of the commit
    /// goes on.
    #[must_use]
    pub fn insert_or_keep(mut self, record: &impl TableRecord) -> Self {
        self.changes.push(RowChange::insert_or_keep(record));
        self
    }

    /// Updates the row with the record's key if it is at `version`.
    #[must_use]
    pub fn update<R: TableRecord>(mut self, record: &R, version: u64) -> Self {
        self.changes.push(RowChange::update(record, version));
        self
    }

    /// Changes the row with the record's key if it is at `version`, and only what tells the record from `before`: what the
    /// row is believed to be at that version. Whoever knows that lets the store write without a look.
    ///
    /// ```
    /// use onward_store::tables::Component;
    /// use onward_store::{Change, Commit};
    ///
    /// # fn example(before: &Component, after: &Component) {
    /// let amended = Commit::new().amend(before, after, 3);
    /// assert!(matches!(amended.changes[..], [Change::Amend { version: 3, .. }]));
    /// # }
    /// ```
    #[must_use]
    pub fn update_columns<R: TableRecord>(mut self, before: &R, record: &R, version: u64) -> Self {
        self.changes
            .push(RowChange::update_columns(before, record, version));
        self
    }

    /// Deletes the row with the record's key if it is at `version`.
    #[must_use]
    pub fn delete<R: TableRecord>(mut self, record: &R, version: u64) -> Self {
        self.changes.push(RowChange::delete(record, version));
        self
    }

    /// Removes the row with this key, whatever its version. Where there is none, nothing happens: it never conflicts.
    ///
    /// ```
    /// use onward_store::tables::Job;
    /// use onward_store::{Commit, Key, Value};
    ///
    /// let withdrawn = Commit::new().remove::<Job>(Key(vec![Value::Text("job-1".into())]));
    /// assert_eq!(withdrawn.changes.len(), 1);
    /// ```
    #[must_use]
    pub fn delete_if_exists<R: TableRecord>(mut self, key: RowKey) -> Self {
        self.changes.push(RowChange::delete_if_exists::<R>(key));
        self
    }

    /// Moves a reader's position.
    #[must_use]
    pub fn advance_reader(mut self, step: ReaderAdvance) -> Self {
        self.reader_advances.push(step);
        self
    }

    /// Appends run events.
    #[must_use]
    pub fn append_events(mut self, events: Vec<RunEventWrite>) -> Self {
        self.events.extend(events);
        self
    }
}

/// The commit depends on a shard still being at an epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardFence {
    /// The shard.
    pub shard: ShardId,
    /// The epoch at which the author of the commit took it over.
    pub epoch: ShardEpoch,
}

/// Events to append to the journal of an execution, encoded by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalAppend {
    /// The execution.
    pub execution: ExecutionId,
    /// How many events its journal has now.
    pub expected_length: u64,
    /// How many events `records` holds.
    pub count: u32,
    /// The encoded events.
    pub records: Arc<[u8]>,
}

/// A change of one row.
#[derive(Debug, Clone)]
pub enum RowChange {
    /// Insert; a row that is there already is a conflict.
    Insert {
        /// The table.
        table: &'static TableSchema,
        /// The row.
        row: TableRow,
    },
    /// Insert unless there is one already.
    InsertOrKeep {
        /// The table.
        table: &'static TableSchema,
        /// The row.
        row: TableRow,
    },
    /// Update; a row that is absent or at another version is a conflict.
    Update {
        /// The table.
        table: &'static TableSchema,
        /// The row as it is to be.
        row: TableRow,
        /// The version it has now.
        version: u64,
    },
    /// Update some columns, and leave the others as they are; a row that is absent or at another version is a conflict.
    /// Columns that identify a row, by key or by being unique, are not among them.
    UpdateColumns {
        /// The table.
        table: &'static TableSchema,
        /// The row as it is to be, as far as it changes.
        row: TableRow,
        /// Which of its columns count.
        changed: ChangedColumns,
        /// The version it has now.
        version: u64,
    },
    /// Delete; a row that is absent or at another version is a conflict.
    Delete {
        /// The table.
        table: &'static TableSchema,
        /// The row's key.
        key: RowKey,
        /// The version it has now.
        version: u64,
    },
    /// Remove, whatever is there: no row and any version will do. It is for rows that others change meanwhile, by whoever
    /// has the last word on them.
    DeleteIfExists {
        /// The table.
        table: &'static TableSchema,
        /// The row's key.
        key: RowKey,
    },
}

impl RowChange {
    /// Inserts `record`, which must not be there yet.
    pub fn insert<R: TableRecord>(record: &R) -> Self {
        Self::Insert {
            table: R::TABLE,
            row: record.to_row(),
        }
    }

    /// Inserts `record` unless there is one already.
    pub fn insert_or_keep<R: TableRecord>(record: &R) -> Self {
        Self::InsertOrKeep {
            table: R::TABLE,
            row: record.to_row(),
        }
    }

    /// Updates the row with the record's key if it is at `version`.
    pub fn update<R: TableRecord>(record: &R, version: u64) -> Self {
        Self::Update {
            table: R::TABLE,
            row: record.to_row(),
            version,
        }
    }

    /// Changes what tells `record` from `before`, if the row with its key is at `version`. Where that is what identifies the
    /// row, all of it is updated.
    pub fn update_columns<R: TableRecord>(before: &R, record: &R, version: u64) -> Self {
        let (table, row) = (R::TABLE, record.to_row());
        let changed = ChangedColumns::between_rows(&before.to_row(), &row);
        if changed
            .positions()
            .any(|place| table.is_identifying_column(place))
        {
            return Self::Update {
                table,
                row,
                version,
            };
        }
        Self::UpdateColumns {
            table,
            row,
            changed,
            version,
        }
    }

    /// Deletes the row with the record's key if it is at `version`.
    pub fn delete<R: TableRecord>(record: &R, version: u64) -> Self {
        Self::Delete {
            table: R::TABLE,
            key: R::TABLE.key_of(&record.to_row()),
            version,
        }
    }

    /// Removes the row with this key, whatever its version, if there is one.
    pub const fn delete_if_exists<R: TableRecord>(key: RowKey) -> Self {
        Self::DeleteIfExists {
            table: R::TABLE,
            key,
        }
    }

    /// The table it changes.
    pub const fn table(&self) -> &'static TableSchema {
        match self {
            Self::Insert { table, .. }
            | Self::InsertOrKeep { table, .. }
            | Self::Update { table, .. }
            | Self::UpdateColumns { table, .. }
            | Self::Delete { table, .. }
            | Self::DeleteIfExists { table, .. } => table,
        }
    }

    /// The row it writes, if it does.
    pub const fn row(&self) -> Option<&TableRow> {
        match self {
            Self::Insert { row, .. }
            | Self::InsertOrKeep { row, .. }
            | Self::Update { row, .. }
            | Self::UpdateColumns { row, .. } => Some(row),
            Self::Delete { .. } | Self::DeleteIfExists { .. } => None,
        }
    }

    /// The key of the row it is about.
    pub fn key(&self) -> RowKey {
        match self {
            Self::Delete { key, .. } | Self::DeleteIfExists { key, .. } => key.clone(),
            Self::Insert { table, row }
            | Self::InsertOrKeep { table, row }
            | Self::Update { table, row, .. }
            | Self::UpdateColumns { table, row, .. } => table.key_of(row),
        }
    }
}

/// A reader has dealt with events of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderAdvance {
    /// The run.
    pub run: RunId,
    /// Who.
    pub reader: RunEventReader,
    /// The last event it had dealt with before.
    pub from: RunSeq,
    /// The last event it has dealt with now.
    pub to: RunSeq,
}

/// What a commit came to, part by part, in the order of its parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitReceipt {
    /// What became of each change of a row.
    pub changes: Vec<ChangeOutcome>,
    /// What became of each run event.
    pub events: Vec<EventReceipt>,
}

/// What became of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// It was made. A row that was to be removed is not there now; whether it was before is not told.
    Applied,
    /// There was a row already, which is kept as it is.
    Kept(StoredRow),
}

/// What became of a run event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventReceipt {
    /// The answer of the contract.
    pub result: AppendResult,
    /// Whether the event is a duplicate that says something else than the one that was kept: another payload, or even
    /// another type or step under the same key.
    pub differs: bool,
}

/// What retention removes: always the whole of something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeTarget {
    /// A run: its events, positions and snapshot.
    Run(RunId),
    /// An execution: its journal, its row, its timers, its tasks and its messages.
    Execution(ExecutionId),
}
