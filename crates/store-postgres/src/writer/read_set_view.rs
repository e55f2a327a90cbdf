//! The stored state before a commit, limited to what the read set contains.

use onward_journal::ExecutionId;
use onward_runs::{IdempotencyKey, RunEventId, RunId};
use onward_store::memory::MemoryState;
use onward_store::{
    ColumnValue, Error, RowChange, RowKey, RunHead, StoredEvent, StoredRow, StoredState,
    TableSchema,
};

use crate::writer::read_set::ReadSet;

/// The state that was loaded for a read set.
pub(super) struct ReadSetView<'a> {
    pub(super) state: &'a mut MemoryState,
    pub(super) read_set: &'a ReadSet<'a>,
}

impl StoredState for ReadSetView<'_> {
    fn journal_length(&mut self, execution: ExecutionId) -> Result<u64, Error> {
        self.state.journal_length(execution)
    }

    fn stored_row(
        &mut self,
        table: &'static TableSchema,
        key: &RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        self.state.stored_row(table, key)
    }

    fn row_by_unique(
        &mut self,
        table: &'static TableSchema,
        unique: usize,
        values: &[ColumnValue],
    ) -> Result<Option<StoredRow>, Error> {
        self.state.row_by_unique(table, unique, values)
    }

    /// Returns `true` for column updates whose rows were not read: the database checks their
    /// versions. Rows that were assumed to be new and were not read are absent from the state and
    /// need no further check here.
    fn is_enforced_by_database(&self, change: &RowChange) -> bool {
        self.read_set.is_unread_column_update(change)
    }

    fn run_head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.state.run_head(run)
    }

    fn event_by_key(
        &mut self,
        run: &RunId,
        key: &IdempotencyKey,
    ) -> Result<Option<StoredEvent>, Error> {
        self.state.event_by_key(run, key)
    }

    fn has_event_id(&mut self, id: &RunEventId) -> Result<bool, Error> {
        self.state.has_event_id(id)
    }
}
