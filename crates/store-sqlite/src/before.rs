//! What is stored before a commit, asked of the writer's connection inside its transaction.

use onward_journal::ExecutionId;
use onward_runs::{EventId, IdempotencyKey, RunId};
use onward_store::{Before, Error, Key, Known, RunHead, Stored, Table, Value};
use rusqlite::Connection;

use crate::read;

pub(crate) struct Asked<'a>(pub(crate) &'a Connection);

impl Before for Asked<'_> {
    fn journal_length(&mut self, execution: ExecutionId) -> Result<u64, Error> {
        read::journal_length(self.0, execution)
    }

    fn row(&mut self, table: &'static Table, key: &Key) -> Result<Option<Stored>, Error> {
        read::row(self.0, table, key)
    }

    fn row_by_unique(
        &mut self,
        table: &'static Table,
        unique: usize,
        values: &[Value],
    ) -> Result<Option<Stored>, Error> {
        read::row_by_unique(self.0, table, unique, values)
    }

    fn head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error> {
        read::head(self.0, run)
    }

    fn event_by_key(&mut self, run: &RunId, key: &IdempotencyKey) -> Result<Option<Known>, Error> {
        read::known(self.0, run, key)
    }

    fn has_event(&mut self, id: &EventId) -> Result<bool, Error> {
        read::has_event(self.0, id)
    }
}
