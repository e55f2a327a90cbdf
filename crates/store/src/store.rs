//! The trait behind which the databases are: few methods, and one that writes.

use std::sync::Arc;

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId};

use crate::{
    AdmittedCommit, Commit, CommitReceipt, Error, JournalChunk, PurgeTarget, RowKey, RunEventQuery,
    RunEventReader, RunHead, StorePolicy, StoredRow, TableRecord, TableScan, TableSchema,
};

/// Something that is seen by other processes until it is dropped.
pub type RegistrationGuard = Box<dyn std::any::Any + Send + Sync>;

/// What is called with words that somebody tells. It must not take long.
pub type NotificationHandler = Arc<dyn Fn(&str) + Send + Sync>;

/// What the engine needs of a database.
///
/// Implement [`apply`](Store::apply) and the reads; callers use [`commit`](Store::commit). Every call is safe to drop
/// half-way: a commit is then stored whole or not at all.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What this store accepts.
    fn policy(&self) -> &StorePolicy;

    /// Makes a commit durable. When this returns `Ok`, no crash can undo it.
    async fn apply_commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error>;

    /// The row with this key.
    async fn read_row(
        &self,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error>;

    /// The rows that `scan` asks for.
    async fn scan_rows(&self, scan: TableScan) -> Result<Vec<StoredRow>, Error>;

    /// How many rows `scan` asks for, counted up to its limit, which may be larger than a page.
    async fn count_rows(&self, scan: TableScan) -> Result<u64, Error>;

    /// The chunks of a journal that hold events from `from` on, at most `limit` of them.
    async fn read_journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error>;

    /// Events of a run in the order of their sequence.
    async fn read_run_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error>;

    /// The head of a run, if it has events.
    async fn read_run_head(&self, run: &RunId) -> Result<Option<RunHead>, Error>;

    /// Runs after `after` in the order of their ids; with `behind`, only those with events that this reader has not
    /// dealt with.
    async fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error>;

    /// Removes the whole of something, for retention. Tells whether there was anything to remove.
    async fn purge(&self, purge: PurgeTarget) -> Result<bool, Error>;

    /// The time on the clock that stamps what is stored.
    async fn now(&self) -> Result<Timestamp, Error>;

    /// What is wrong with the database as such, in words: pages that cannot be read, rows that belong to nothing, guards that
    /// somebody has removed. This reads everything.
    async fn check_integrity(&self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Lets others know that this process is there, for as long as what is returned is kept. Nothing where they could not tell.
    fn register_process(&self, _name: &str) -> Option<RegistrationGuard> {
        None
    }

    /// Whether the process that appeared under this name is gone for sure. Where nobody can tell, nobody is.
    fn is_process_dead(&self, _name: &str) -> bool {
        false
    }

    /// Tells the other processes that use the store of something they may want to look at. It does not wait, and words may be
    /// lost: whoever must not miss a thing looks from time to time all the same.
    fn notify(&self, _words: String) {}

    /// Has `heard` called with what is told, for as long as what is returned is kept; its own words may be among them. Nothing
    /// where nobody can be heard.
    fn subscribe(&self, _heard: NotificationHandler) -> Option<RegistrationGuard> {
        None
    }

    /// Checks a commit and makes it durable.
    async fn commit(&self, commit: Commit) -> Result<CommitReceipt, Error> {
        self.apply_commit(AdmittedCommit::new(commit, self.policy())?)
            .await
    }
}

/// Reading rows as what they stand for.
#[async_trait]
pub trait RecordReader: Store {
    /// The record with this key, and the version to update it by.
    async fn read_record<R: TableRecord>(&self, key: RowKey) -> Result<Option<(R, u64)>, Error> {
        self.read_row(R::TABLE, key)
            .await?
            .as_ref()
            .map(decode_record)
            .transpose()
    }

    /// The records that `scan` asks for, and their versions.
    async fn list_records<R: TableRecord + Send>(
        &self,
        scan: TableScan,
    ) -> Result<Vec<(R, u64)>, Error> {
        self.scan_rows(scan)
            .await?
            .iter()
            .map(decode_record)
            .collect()
    }
}

impl<S: Store + ?Sized> RecordReader for S {}

fn decode_record<R: TableRecord>(stored: &StoredRow) -> Result<(R, u64), Error> {
    R::from_row(&stored.row)
        .map(|record| (record, stored.version))
        .map_err(Error::Corrupt)
}
