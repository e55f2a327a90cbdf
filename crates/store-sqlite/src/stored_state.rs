//! The stored state before a commit, read from the writer's connection inside its transaction.

use onward_journal::ExecutionId;
use onward_runs::{IdempotencyKey, RunEventId, RunId};
use onward_store::{
    ColumnValue, Duplicates, Error, RowChange, RowKey, RunHead, ShardEpoch, ShardId, StoredEvent,
    StoredRow, StoredState, TableSchema,
};
use rusqlite::Connection;

use crate::read;
use crate::writer_cache::WriterCache;

pub(crate) struct SqliteStoredState<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) cache: &'a mut WriterCache,
    pub(crate) duplicates: Duplicates,
}

impl StoredState for SqliteStoredState<'_> {
    fn shard_epoch(&mut self, shard: ShardId) -> Result<ShardEpoch, Error> {
        self.cache.shard_epoch(self.db, shard)
    }

    fn journal_length(&mut self, execution: ExecutionId) -> Result<u64, Error> {
        Ok(self
            .cache
            .journal_end(self.db, execution)?
            .map_or(0, |end| end.length))
    }

    fn stored_row(
        &mut self,
        table: &'static TableSchema,
        key: &RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        read::read_row(self.db, table, key)
    }

    fn row_by_unique(
        &mut self,
        table: &'static TableSchema,
        unique: usize,
        values: &[ColumnValue],
    ) -> Result<Option<StoredRow>, Error> {
        read::read_row_by_unique(self.db, table, unique, values)
    }

    fn is_enforced_by_database(&self, _change: &RowChange) -> bool {
        self.duplicates == Duplicates::Optimistic
    }

    fn run_head(&mut self, run: &RunId) -> Result<Option<RunHead>, Error> {
        read::read_run_head(self.db, run)
    }

    fn event_by_key(
        &mut self,
        run: &RunId,
        key: &IdempotencyKey,
    ) -> Result<Option<StoredEvent>, Error> {
        read::read_event_by_key(self.db, run, key)
    }

    fn has_event_id(&mut self, id: &RunEventId) -> Result<bool, Error> {
        read::has_event(self.db, id)
    }
}
