//! What the writer knows of the file without asking it: who owns which shard, and where journals end. Nearly every commit
//! wants to know both, of the few that are at work.
//!
//! It holds as long as nobody else writes to the file, and nothing that was noted is undone.

use std::collections::HashMap;

use onward_journal::ExecutionId;
use onward_store::tables::ShardLeaseRow;
use onward_store::{ColumnCodec as _, Error, RowKey, ShardEpoch, ShardId, TableRecord as _};
use rusqlite::Connection;

use crate::{error, read};

/// Journals that are remembered twice over: those of now, and those of before.
const GENERATION_CAPACITY: usize = 4_096;

/// The end of a journal.
#[derive(Clone, Copy)]
pub(crate) struct JournalEnd {
    /// What stands for its execution.
    pub(crate) number: i64,
    /// How many events it has.
    pub(crate) length: u64,
}

#[derive(Default)]
pub(crate) struct WriterCache {
    /// Changes whenever another connection has written.
    data_version: Option<i64>,
    epochs: HashMap<ShardId, ShardEpoch>,
    journal_ends: HashMap<ExecutionId, JournalEnd>,
    /// What was remembered before there was too much.
    previous_journal_ends: HashMap<ExecutionId, JournalEnd>,
}

impl WriterCache {
    /// At the beginning of a transaction: what others have written since the last one is news.
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

    /// Something that was noted may have been undone.
    pub(crate) fn invalidate_all(&mut self) {
        *self = Self {
            data_version: self.data_version,
            ..Self::default()
        };
    }

    pub(crate) fn invalidate_epochs(&mut self) {
        self.epochs.clear();
    }

    /// The epoch of a shard.
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

    /// Where a journal ends; nothing if there is none.
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

    /// The same, as far as it is known.
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
