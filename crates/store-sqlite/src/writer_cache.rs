//! The writer's cache of shard epochs and journal ends. Nearly every commit needs both, for the few
//! shards and executions that are active.
//!
//! It is valid as long as no other connection writes to the file and no cached change is rolled
//! back.

use std::collections::HashMap;

use onward_journal::ExecutionId;
use onward_store::tables::ShardLeaseRow;
use onward_store::{ColumnCodec as _, Error, RowKey, ShardEpoch, ShardId, TableRecord as _};
use rusqlite::Connection;

use crate::{error, read};

/// Number of journals per generation. There are two generations: the current and the previous one.
const GENERATION_CAPACITY: usize = 4_096;

/// The end of a journal.
#[derive(Clone, Copy)]
pub(crate) struct JournalEnd {
    /// The journal's number in the file, which represents its execution.
    pub(crate) number: i64,
    /// Number of events in the journal.
    pub(crate) length: u64,
}

#[derive(Default)]
pub(crate) struct WriterCache {
    /// SQLite's `data_version`, which changes whenever another connection has written.
    data_version: Option<i64>,
    epochs: HashMap<ShardId, ShardEpoch>,
    journal_ends: HashMap<ExecutionId, JournalEnd>,
    /// The previous generation, replaced when the current one is full.
    previous_journal_ends: HashMap<ExecutionId, JournalEnd>,
}

impl WriterCache {
    /// Called at the beginning of a transaction: clears the cache if another connection has written
    /// since the last one.
    pub(crate) fn invalidate_if_stale(&mut self, db: &Connection) -> Result<(), Error> {
        let mut statement = db
            .prepare_cached("PRAGMA data_version")
            .map_err(error::from_sqlite_error)?;
        let version = statement
            .query_row([], |row| row.get(0))
            .map_err(error::from_sqlite_error)?;
        if self.data_version != Some(version) {
            self.invalidate_all();
            self.data_version = Some(version);
        }
        Ok(())
    }

    /// Clears the cache, because a cached change may have been rolled back.
    pub(crate) fn invalidate_all(&mut self) {
        *self = Self {
            data_version: self.data_version,
            ..Self::default()
        };
    }

    pub(crate) fn invalidate_epochs(&mut self) {
        self.epochs.clear();
    }

    /// Returns the epoch of a shard, from the cache or from the database.
    pub(crate) fn shard_epoch(
        &mut self,
        db: &Connection,
        shard: ShardId,
    ) -> Result<ShardEpoch, Error> {
        if let Some(known) = self.epochs.get(&shard) {
            return Ok(*known);
        }
        let found = ShardLeaseRow::epoch_from_row(
            read::read_row(db, ShardLeaseRow::TABLE, &RowKey(vec![shard.to_value()]))?.as_ref(),
        )?;
        self.epochs.insert(shard, found);
        Ok(found)
    }

    /// Returns the end of a journal, from the cache or from the database; `None` if there is no
    /// journal.
    pub(crate) fn journal_end(
        &mut self,
        db: &Connection,
        execution: ExecutionId,
    ) -> Result<Option<JournalEnd>, Error> {
        if let Some(known) = self.journal_ends.get(&execution) {
            return Ok(Some(*known));
        }
        let end = match self.previous_journal_ends.get(&execution) {
            Some(known) => Some(*known),
            None => read::read_journal_end(db, execution)?,
        };
        if let Some(end) = end {
            self.cache_journal_end(execution, end);
        }
        Ok(end)
    }

    /// Returns the end of a journal if it is cached.
    pub(crate) fn cached_journal_end(&self, execution: ExecutionId) -> Option<JournalEnd> {
        self.journal_ends
            .get(&execution)
            .or_else(|| self.previous_journal_ends.get(&execution))
            .copied()
    }

    pub(crate) fn cache_journal_end(&mut self, execution: ExecutionId, end: JournalEnd) {
        if self.journal_ends.len() >= GENERATION_CAPACITY {
            self.previous_journal_ends = std::mem::take(&mut self.journal_ends);
        }
        self.journal_ends.insert(execution, end);
    }
}
