//! What is stored before a commit, as far as it was looked at.

use onward_journal::ExecutionId;
use onward_runs::{EventId, IdempotencyKey, RunId};
use onward_store::memory::State;
use onward_store::{Before, Change, Error, Key, Known, RunHead, Stored, Table, Value};

use crate::writer::wish::Wish;

/// What was loaded for a wish.
pub(super) struct Seen<'a> {
    pub(super) state: &'a mut State,
    pub(super) wish: &'a Wish<'a>,
}

impl Before for Seen<'_> {
    fn journal_length(&mut self, execution: ExecutionId) -> Result<u64, Error> {
        self.state.journal_length(execution)
    }

    fn row(&mut self, table: &'static Table, key: &Key) -> Result<Option<Stored>, Error> {
        self.state.row(table, key)
    }

    fn row_by_unique(
        &mut self,
        table: &'static Table,
        unique: usize,
        values: &[Value],
    ) -> Result<Option<Stored>, Error> {
        self.state.row_by_unique(table, unique, values)
    }

    /// What was to be new and was not looked for is not in the state, and need not be trusted.
    fn objects(&self, change: &Change) -> bool {
        self.wish.is_amended_unseen(change)
    }

    fn head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.state.head(run)
    }

    fn event_by_key(&mut self, run: &RunId, key: &IdempotencyKey) -> Result<Option<Known>, Error> {
        self.state.event_by_key(run, key)
    }

    fn has_event(&mut self, id: &EventId) -> Result<bool, Error> {
        self.state.has_event(id)
    }
}
