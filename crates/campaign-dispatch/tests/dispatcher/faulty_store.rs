//! A wrapper around a store that injects faults into commits and reads.

use std::sync::Arc;

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId};
use onward_store::{
    AdmittedCommit, CommitReceipt, Error, JournalChunk, PurgeTarget, RowKey, RunEventQuery,
    RunEventReader, RunHead, Store, StorePolicy, StoredRow, TableScan, TableSchema,
};

/// The faults to inject into commits and row reads. Default: none.
#[async_trait]
pub(crate) trait StoreFaults: Send + Sync + 'static {
    async fn apply(
        &self,
        store: &dyn Store,
        commit: AdmittedCommit,
    ) -> Result<CommitReceipt, Error> {
        store.apply_commit(commit).await
    }

    /// Called before rows of this table are read.
    async fn read(&self, _table: &TableSchema) -> Result<(), Error> {
        Ok(())
    }
}

/// A store with injected faults.
pub(crate) struct FaultyStore<M>(pub(crate) Arc<dyn Store>, pub(crate) M);

#[async_trait]
impl<M: StoreFaults> Store for FaultyStore<M> {
    fn policy(&self) -> &StorePolicy {
        self.0.policy()
    }

    async fn apply_commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error> {
        self.1.apply(&*self.0, commit).await
    }

    async fn read_row(
        &self,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        self.1.read(table).await?;
        self.0.read_row(table, key).await
    }

    async fn scan_rows(&self, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        self.1.read(scan.table).await?;
        self.0.scan_rows(scan).await
    }

    async fn count_rows(&self, scan: TableScan) -> Result<u64, Error> {
        self.0.count_rows(scan).await
    }

    async fn read_journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        self.0.read_journal(execution, from, limit).await
    }

    async fn read_run_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        self.0.read_run_events(run, page).await
    }

    async fn read_run_head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.0.read_run_head(run).await
    }

    async fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        self.0.list_run_heads(behind, after, limit).await
    }

    async fn purge(&self, purge: PurgeTarget) -> Result<bool, Error> {
        self.0.purge(purge).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.0.now().await
    }
}
