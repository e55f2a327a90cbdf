//! What is stored before a commit, asked of the writer's connection inside its transaction.

use onward_journal::ExecutionId;
use onward_runs::{EventId, IdempotencyKey, RunId};
use onward_store::{Before, Care, Change, Epoch, Error, Key, Known, RunHead, Shard, Stored, Table, Value};
use rusqlite::Connection;

use crate::read;
use crate::recent::Recent;

pub(crate) struct Asked<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) recent: &'a mut Recent,
    pub(crate) care: Care,
}

impl Before for Asked<'_> {
    fn epoch(&mut self, shard: Shard) -> Result<Epoch, Error> {
        self.recent.epoch(self.db, shard)
    }

    fn journal_length(&mut self, execution: ExecutionId) -> Result<u64, Error> {
        Ok(self.recent.journal_end(self.db, execution)?.map_or(0, |end| end.length))
    }

    fn row(&mut self, table: &'static Table, key: &Key) -> Result<Option<Stored>, Error> {
        read::row(self.db, table, key)
    }

    fn row_by_unique(
        &mut self,
        table: &'static Table,
        unique: usize,
        values: &[Value],
    ) -> Result<Option<Stored>, Error> {
        read::row_by_unique(self.db, table, unique, values)
    }

    fn objects(&self, _change: &Change) -> bool {
        self.care == Care::Trust
    }

    fn head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error> {
        read::head(self.db, run)
    }

    fn event_by_key(&mut self, run: &RunId, key: &IdempotencyKey) -> Result<Option<Known>, Error> {
        read::known(self.db, run, key)
    }

    fn has_event(&mut self, id: &EventId) -> Result<bool, Error> {
        read::has_event(self.db, id)
    }
}
