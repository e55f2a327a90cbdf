//! What the writer knows of the file without asking it: who owns which shard, and where journals end. Nearly every commit
//! wants to know both, of the few that are at work.
//!
//! It holds as long as nobody else writes to the file, and nothing that was noted is undone.

use std::collections::HashMap;

use onward_journal::ExecutionId;
use onward_store::tables::ShardLease;
use onward_store::{Epoch, Error, Field as _, Key, Record as _, Shard};
use rusqlite::Connection;

use crate::{error, read};

/// Journals that are remembered twice over: those of now, and those of before.
const REMEMBERED: usize = 4_096;

/// The end of a journal.
#[derive(Clone, Copy)]
pub(crate) struct JournalEnd {
    /// What stands for its execution.
    pub(crate) number: i64,
    /// How many events it has.
    pub(crate) length: u64,
}

#[derive(Default)]
pub(crate) struct Recent {
    /// Changes whenever another connection has written.
    version: Option<i64>,
    epochs: HashMap<Shard, Epoch>,
    ends: HashMap<ExecutionId, JournalEnd>,
    /// What was remembered before there was too much.
    former: HashMap<ExecutionId, JournalEnd>,
}

impl Recent {
    /// At the beginning of a transaction: what others have written since the last one is news.
    pub(crate) fn catch_up(&mut self, db: &Connection) -> Result<(), Error> {
        let mut statement = db.prepare_cached("PRAGMA data_version").map_err(error::from)?;
        let version = statement.query_row([], |row| row.get(0)).map_err(error::from)?;
        if self.version != Some(version) {
            self.forget();
            self.version = Some(version);
        }
        Ok(())
    }

    /// Something that was noted may have been undone.
    pub(crate) fn forget(&mut self) {
        *self = Self { version: self.version, ..Self::default() };
    }

    pub(crate) fn forget_epochs(&mut self) {
        self.epochs.clear();
    }

    /// The epoch of a shard.
    pub(crate) fn epoch(&mut self, db: &Connection, shard: Shard) -> Result<Epoch, Error> {
        if let Some(known) = self.epochs.get(&shard) {
            return Ok(*known);
        }
        let found = ShardLease::epoch_of(read::row(db, ShardLease::TABLE, &Key(vec![shard.to_value()]))?.as_ref())?;
        self.epochs.insert(shard, found);
        Ok(found)
    }

    /// Where a journal ends; nothing if there is none.
    pub(crate) fn journal_end(&mut self, db: &Connection, execution: ExecutionId) -> Result<Option<JournalEnd>, Error> {
        if let Some(known) = self.ends.get(&execution) {
            return Ok(Some(*known));
        }
        let end = match self.former.get(&execution) {
            Some(known) => Some(*known),
            None => read::journal_end(db, execution)?,
        };
        if let Some(end) = end {
            self.note_end(execution, end);
        }
        Ok(end)
    }

    /// The same, as far as it is known.
    pub(crate) fn known_end(&self, execution: ExecutionId) -> Option<JournalEnd> {
        self.ends.get(&execution).or_else(|| self.former.get(&execution)).copied()
    }

    pub(crate) fn note_end(&mut self, execution: ExecutionId, end: JournalEnd) {
        if self.ends.len() >= REMEMBERED {
            self.former = std::mem::take(&mut self.ends);
        }
        self.ends.insert(execution, end);
    }
}
