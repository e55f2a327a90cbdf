//! A commit: the changes that become visible atomically, and the guards that state what its author
//! expects to be stored before.

use std::sync::Arc;

use onward_journal::ExecutionId;
use onward_runs::{AppendResult, RunEventWrite, RunId, RunSeq};

use crate::{
    ChangedColumns, RowKey, RunEventReader, ShardEpoch, ShardId, StoredRow, TableRecord, TableRow,
    TableSchema,
};

/// A set of changes that the store applies atomically: all of them or none.
///
/// A commit touches each journal, row and reader position at most once, and all guards refer to the
/// state before the commit. The order of its parts therefore does not matter, except among the run
/// events of one run.
#[derive(Debug, Clone, Default)]
pub struct Commit {
    /// Fencing tokens: the shards whose ownership the commit depends on.
    pub fences: Vec<ShardFence>,
    /// Events to append to journals.
    pub journals: Vec<JournalAppend>,
    /// Rows to insert, update or delete.
    pub changes: Vec<RowChange>,
    /// Reader positions to move forward.
    pub reader_advances: Vec<ReaderAdvance>,
    /// Run events to append, in this order.
    pub events: Vec<RunEventWrite>,
    /// Whether the author does other work while the commit is stored. If set, the store does not
    /// run the commit on the author's thread, even where that is faster.
    pub is_background: bool,
}

impl Commit {
    /// Returns an empty commit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a fence: the commit fails unless `shard` is still at `epoch`.
    #[must_use]
    pub fn fence_shard(mut self, shard: ShardId, epoch: ShardEpoch) -> Self {
        self.fences.push(ShardFence { shard, epoch });
        self
    }

    /// Adds an append to a journal.
    #[must_use]
    pub fn append_journal(mut self, append: JournalAppend) -> Self {
        self.journals.push(append);
        self
    }

    /// Inserts a row. The commit fails if a row with this key or these unique values exists.
    #[must_use]
    pub fn insert(mut self, record: &impl TableRecord) -> Self {
        self.changes.push(RowChange::insert(record));
        self
    }

    /// Inserts a row unless a row with the same key or the same unique values exists. The store
    /// then keeps the existing row and still applies the rest of the commit.
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

    /// Updates only the columns in which `record` differs from `before`, if the row with the
    /// record's key is at `version`. `before` is the row that the caller expects at that version;
    /// with it the store can write without a read.
    ///
    /// ```
    /// use onward_store::tables::ComponentRow;
    /// use onward_store::{Commit, RowChange};
    ///
    /// # fn example(before: &ComponentRow, after: &ComponentRow) {
    /// let updated = Commit::new().update_columns(before, after, 3);
    /// assert!(matches!(updated.changes[..], [RowChange::UpdateColumns { version: 3, .. }]));
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

    /// Deletes the row with this key at any version. Does nothing if there is no such row, so it
    /// never conflicts.
    ///
    /// ```
    /// use onward_store::tables::JobRow;
    /// use onward_store::{ColumnValue, Commit, RowKey};
    ///
    /// let key = RowKey(vec![ColumnValue::Text("job-1".into())]);
    /// let deleted = Commit::new().delete_if_exists::<JobRow>(key);
    /// assert_eq!(deleted.changes.len(), 1);
    /// ```
    #[must_use]
    pub fn delete_if_exists<R: TableRecord>(mut self, key: RowKey) -> Self {
        self.changes.push(RowChange::delete_if_exists::<R>(key));
        self
    }

    /// Moves the position of a reader forward.
    #[must_use]
    pub fn advance_reader(mut self, step: ReaderAdvance) -> Self {
        self.reader_advances.push(step);
        self
    }

    /// Appends run events after those already in the commit.
    #[must_use]
    pub fn append_events(mut self, events: Vec<RunEventWrite>) -> Self {
        self.events.extend(events);
        self
    }
}

/// A fence: the commit fails unless the shard is still at this epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShardFence {
    /// The shard that the author of the commit owns.
    pub shard: ShardId,
    /// The epoch at which the author claimed the shard; it serves as the fencing token.
    pub epoch: ShardEpoch,
}

/// Events to append to the journal of one execution, encoded by the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JournalAppend {
    /// The execution whose journal grows.
    pub execution: ExecutionId,
    /// Guard: the number of events in the journal before the commit.
    pub expected_length: u64,
    /// Number of events in `records`; at least 1.
    pub count: u32,
    /// The encoded events, which the store does not interpret.
    pub records: Arc<[u8]>,
}

/// A change to one row.
#[derive(Debug, Clone)]
pub enum RowChange {
    /// Inserts a row. Conflicts if a row with this key or these unique values exists.
    Insert {
        /// The table to insert into.
        table: &'static TableSchema,
        /// The row to insert.
        row: TableRow,
    },
    /// Inserts a row unless a row with this key or these unique values exists.
    InsertOrKeep {
        /// The table to insert into.
        table: &'static TableSchema,
        /// The row to insert.
        row: TableRow,
    },
    /// Replaces a row. Conflicts if the row does not exist or is at another version.
    Update {
        /// The table to update.
        table: &'static TableSchema,
        /// The new values of all columns.
        row: TableRow,
        /// Guard: the version of the row before the commit.
        version: u64,
    },
    /// Updates some columns and leaves the others unchanged. Conflicts if the row does not exist or
    /// is at another version. Columns of the key or of a unique set are not allowed.
    UpdateColumns {
        /// The table to update.
        table: &'static TableSchema,
        /// The new row; only its key and the columns in `changed` are used.
        row: TableRow,
        /// The columns to write.
        changed: ChangedColumns,
        /// Guard: the version of the row before the commit.
        version: u64,
    },
    /// Deletes a row. Conflicts if the row does not exist or is at another version.
    Delete {
        /// The table to delete from.
        table: &'static TableSchema,
        /// The key of the row to delete.
        key: RowKey,
        /// Guard: the version of the row before the commit.
        version: u64,
    },
    /// Deletes a row at any version; a missing row is not a conflict. It is for rows that other
    /// processes change concurrently, and for the caller whose decision is final.
    DeleteIfExists {
        /// The table to delete from.
        table: &'static TableSchema,
        /// The key of the row to delete.
        key: RowKey,
    },
}

impl RowChange {
    /// Inserts `record`; conflicts if a row with its key or unique values exists.
    pub fn insert<R: TableRecord>(record: &R) -> Self {
        Self::Insert {
            table: R::TABLE,
            row: record.to_row(),
        }
    }

    /// Inserts `record` unless a row with its key or unique values exists.
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

    /// Updates the columns in which `record` differs from `before`, if the row with its key is at
    /// `version`. If a column of the key or of a unique set differs, this becomes a full
    /// [`Update`](Self::Update).
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

    /// Deletes the row with this key at any version, if it exists.
    pub const fn delete_if_exists<R: TableRecord>(key: RowKey) -> Self {
        Self::DeleteIfExists {
            table: R::TABLE,
            key,
        }
    }

    /// Returns the table that this change writes to.
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

    /// Returns the row to write, or `None` for a deletion.
    pub const fn row(&self) -> Option<&TableRow> {
        match self {
            Self::Insert { row, .. }
            | Self::InsertOrKeep { row, .. }
            | Self::Update { row, .. }
            | Self::UpdateColumns { row, .. } => Some(row),
            Self::Delete { .. } | Self::DeleteIfExists { .. } => None,
        }
    }

    /// Returns the key of the row to change.
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

/// Moves a reader past the events of a run that it has processed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReaderAdvance {
    /// The run whose events the reader processed.
    pub run: RunId,
    /// The reader to move.
    pub reader: RunEventReader,
    /// Guard: the last event that the reader had processed before the commit.
    pub from: RunSeq,
    /// The last event that the reader has processed now.
    pub to: RunSeq,
}

/// The result of a commit for each of its parts, in the order of the parts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommitReceipt {
    /// One outcome for each row change.
    pub changes: Vec<ChangeOutcome>,
    /// One receipt for each run event.
    pub events: Vec<EventReceipt>,
}

/// The result of one row change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeOutcome {
    /// The store applied the change. After a [`RowChange::DeleteIfExists`] the row does not exist;
    /// the outcome does not show whether it existed before.
    Applied,
    /// A row existed already; the store kept it unchanged and returns it here.
    Kept(StoredRow),
}

/// The result of appending one run event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventReceipt {
    /// The append result that the run event contract defines.
    pub result: AppendResult,
    /// Whether the event is a duplicate whose content differs from the stored event: another
    /// payload, or even another type or step under the same idempotency key.
    pub differs: bool,
}

/// What retention deletes: always a complete run or execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PurgeTarget {
    /// A run: its events, reader positions, snapshot and alerts.
    Run(RunId),
    /// An execution: its journal, row, timers, tasks and inbox messages.
    Execution(ExecutionId),
}
