//! Stores with a deliberate bug each. A suite that does not detect these bugs would not detect
//! those of a real adapter.

pub(crate) mod events;
pub(crate) mod reads;
pub(crate) mod writes;

use std::sync::Arc;

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId};
use onward_store::conformance::{OpenedStore, StoreFactory, TamperAttempt};
use onward_store::memory::MemoryStore;
use onward_store::{
    AdmittedCommit, Commit, CommitReceipt, Error, JournalChunk, ManualClock, PurgeTarget, RowKey,
    RunEventQuery, RunEventReader, RunHead, Store, StorePolicy, StoredRow, TableScan, TableSchema,
};

/// What a flawed store does differently. Default: nothing.
#[async_trait]
pub(crate) trait StoreFlaw: Send + Sync + 'static {
    async fn commit(&self, memory: &MemoryStore, commit: Commit) -> Result<CommitReceipt, Error> {
        memory.commit(commit).await
    }

    async fn row(
        &self,
        memory: &MemoryStore,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        memory.read_row(table, key).await
    }

    async fn rows(&self, memory: &MemoryStore, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        memory.scan_rows(scan).await
    }

    async fn journal(
        &self,
        memory: &MemoryStore,
        of: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        memory.read_journal(of, from, limit).await
    }

    async fn run_events(
        &self,
        memory: &MemoryStore,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        memory.read_run_events(run, page).await
    }

    async fn run(&self, memory: &MemoryStore, run: &RunId) -> Result<Option<RunHead>, Error> {
        memory.read_run_head(run).await
    }

    async fn runs(
        &self,
        memory: &MemoryStore,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        memory.list_run_heads(behind, after, limit).await
    }

    async fn purge(&self, memory: &MemoryStore, purge: PurgeTarget) -> Result<bool, Error> {
        memory.purge(purge).await
    }

    fn policy(&self, policy: StorePolicy) -> StorePolicy {
        policy
    }

    fn allows_tampering(&self) -> bool {
        false
    }
}

/// Opens stores with a flaw.
pub(crate) struct FlawedStoreFactory(pub(crate) fn() -> Box<dyn StoreFlaw>);

/// No flaw: shows that the wrapper itself is correct.
pub(crate) struct NoFlaw;

impl StoreFlaw for NoFlaw {}

struct FlawedStore {
    memory: MemoryStore,
    policy: StorePolicy,
    flaw: Box<dyn StoreFlaw>,
}

#[async_trait]
impl StoreFactory for FlawedStoreFactory {
    fn name(&self) -> &str {
        "flawed"
    }

    async fn open_empty(
        &self,
        policy: StorePolicy,
        clock: Arc<ManualClock>,
    ) -> Result<Box<dyn OpenedStore>, Error> {
        let flaw = (self.0)();
        let policy = flaw.policy(policy);
        Ok(Box::new(SharedFlawedStore(Arc::new(FlawedStore {
            memory: MemoryStore::new(policy, clock),
            policy,
            flaw,
        }))))
    }
}

struct SharedFlawedStore(Arc<FlawedStore>);

#[async_trait]
impl OpenedStore for SharedFlawedStore {
    fn store(&self) -> &(dyn Store + 'static) {
        &*self.0
    }

    async fn open_second_handle(&self) -> Result<Option<Arc<dyn Store>>, Error> {
        Ok(Some(Arc::<FlawedStore>::clone(&self.0)))
    }

    async fn try_tamper(&self, _: &TamperAttempt) -> Result<bool, Error> {
        Ok(self.0.flaw.allows_tampering())
    }
}

#[async_trait]
impl Store for FlawedStore {
    fn policy(&self) -> &StorePolicy {
        &self.policy
    }

    async fn apply_commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error> {
        self.flaw
            .commit(&self.memory, commit.commit().clone())
            .await
    }

    async fn read_row(
        &self,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        self.flaw.row(&self.memory, table, key).await
    }

    async fn scan_rows(&self, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        self.flaw.rows(&self.memory, scan).await
    }

    async fn count_rows(&self, scan: TableScan) -> Result<u64, Error> {
        self.memory.count_rows(scan).await
    }

    async fn read_journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        self.flaw
            .journal(&self.memory, execution, from, limit)
            .await
    }

    async fn read_run_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        self.flaw.run_events(&self.memory, run, page).await
    }

    async fn read_run_head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.flaw.run(&self.memory, run).await
    }

    async fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        self.flaw.runs(&self.memory, behind, after, limit).await
    }

    async fn purge(&self, purge: PurgeTarget) -> Result<bool, Error> {
        self.flaw.purge(&self.memory, purge).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.memory.now().await
    }
}
