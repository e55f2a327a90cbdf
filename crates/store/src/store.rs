//! The [`Store`] trait that every database adapter implements: few methods, and only two that write
//! (`apply_commit` and `purge`).

use std::sync::Arc;

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId};

use crate::journal_end;
use crate::{
    AdmittedCommit, Commit, CommitReceipt, Error, JournalChunk, PurgeTarget, RowKey, RunEventQuery,
    RunEventReader, RunHead, StorePolicy, StoredRow, TableRecord, TableScan, TableSchema,
};

/// A registration that stays active until this guard is dropped.
pub type RegistrationGuard = Box<dyn std::any::Any + Send + Sync>;

/// Callback that receives the text of each notification. It must return quickly.
pub type NotificationHandler = Arc<dyn Fn(&str) + Send + Sync>;

/// The database interface of the engine.
///
/// An adapter implements [`apply_commit`](Store::apply_commit) and the reads; callers use
/// [`commit`](Store::commit). Every call is cancel-safe: if the future is dropped half-way, the
/// commit is stored completely or not at all.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Returns the limits and key checks that this store enforces.
    fn policy(&self) -> &StorePolicy;

    /// Makes a commit durable. After this returns `Ok`, no crash can undo it.
    async fn apply_commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error>;

    /// Returns the row with this key, or `None` if the table has no such row.
    async fn read_row(
        &self,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error>;

    /// Returns the rows that match `scan`, in its order, at most one page.
    async fn scan_rows(&self, scan: TableScan) -> Result<Vec<StoredRow>, Error>;

    /// Counts the rows that match `scan`, up to its limit. The limit may be larger than a page.
    async fn count_rows(&self, scan: TableScan) -> Result<u64, Error>;

    /// Returns the chunks of a journal that hold events with sequence `from` or later, at most
    /// `limit` chunks and at most as many bytes as the policy allows. The first chunk is returned
    /// whatever its size.
    async fn read_journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error>;

    /// Returns the last chunk of a journal, or `None` if there is no journal.
    async fn read_journal_end(
        &self,
        execution: ExecutionId,
    ) -> Result<Option<JournalChunk>, Error> {
        journal_end::find_journal_end(self, execution).await
    }

    /// Returns events of a run in sequence order. If one of the page cannot be read, fails with
    /// [`Error::UnreadableEvent`]; see [`read_readable_events`](crate::read_readable_events).
    async fn read_run_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error>;

    /// Returns the head of a run, or `None` if the run has no events.
    async fn read_run_head(&self, run: &RunId) -> Result<Option<RunHead>, Error>;

    /// Returns the heads of runs with an id greater than `after`, ordered by id. With `behind`,
    /// only runs that have events this reader has not processed.
    async fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error>;

    /// Deletes a complete run or execution, for retention. Returns whether there was anything to
    /// delete.
    async fn purge(&self, purge: PurgeTarget) -> Result<bool, Error>;

    /// Returns the current time of the clock that timestamps stored data.
    async fn now(&self) -> Result<Timestamp, Error>;

    /// Checks the database itself and describes each problem in one line: unreadable pages,
    /// orphaned rows, missing or altered triggers and other schema objects. Reads the whole
    /// database.
    async fn check_integrity(&self) -> Result<Vec<String>, Error> {
        Ok(Vec::new())
    }

    /// Announces this process to the other processes until the returned guard is dropped. Returns
    /// `None` if the store cannot detect the death of a process.
    fn register_process(&self, _name: &str) -> Option<RegistrationGuard> {
        None
    }

    /// Whether the process registered under this name is certainly dead. Returns `false` if the
    /// store cannot tell.
    fn is_process_dead(&self, _name: &str) -> bool {
        false
    }

    /// Sends a notification to the other processes that use the store. It does not block, and
    /// notifications may be lost: a subscriber that must not miss a change also polls.
    fn notify(&self, _notification: String) {}

    /// Calls `_handler` for each notification until the returned guard is dropped. Notifications
    /// sent by this process may be among them. Returns `None` if the store cannot deliver
    /// notifications.
    fn subscribe(&self, _handler: NotificationHandler) -> Option<RegistrationGuard> {
        None
    }

    /// Checks a commit against the [`policy`](Store::policy) and makes it durable.
    async fn commit(&self, commit: Commit) -> Result<CommitReceipt, Error> {
        self.apply_commit(AdmittedCommit::new(commit, self.policy())?)
            .await
    }
}

/// Typed reads: decodes rows into records.
#[async_trait]
pub trait RecordReader: Store {
    /// Returns the record with this key and its version, which an update must state.
    async fn read_record<R: TableRecord>(&self, key: RowKey) -> Result<Option<(R, u64)>, Error> {
        self.read_row(R::TABLE, key)
            .await?
            .as_ref()
            .map(decode_record)
            .transpose()
    }

    /// Returns the records that match `scan`, with their versions.
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
        .map_err(Error::corrupt)
}
