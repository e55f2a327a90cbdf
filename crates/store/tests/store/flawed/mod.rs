//! Stores that are wrong on purpose, each in one way. A suite that does not notice them would not
//! notice an adapter that is wrong by accident.

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

/// What a flawed store does differently. By default: nothing.
#[async_trait]
pub(crate) trait Flaw: Send + Sync + 'static {
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

    fn lets_tampering_happen(&self) -> bool {
        false
    }
}

/// Makes stores with a flaw.
pub(crate) struct Planted(pub(crate) fn() -> Box<dyn Flaw>);

/// No flaw: what is wrong with the others is not the way they are made.
pub(crate) struct Faultless;

impl Flaw for Faultless {}

struct Flawed {
    memory: MemoryStore,
    policy: StorePolicy,
    flaw: Box<dyn Flaw>,
}

#[async_trait]
impl StoreFactory for Planted {
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
        Ok(Box::new(Shared(Arc::new(Flawed {
            memory: MemoryStore::new(policy, clock),
            policy,
            flaw,
        }))))
    }
}

struct Shared(Arc<Flawed>);

#[async_trait]
impl OpenedStore for Shared {
    fn store(&self) -> &(dyn Store + 'static) {
        &*self.0
    }

    async fn open_second_handle(&self) -> Result<Option<Arc<dyn Store>>, Error> {
        Ok(Some(Arc::<Flawed>::clone(&self.0)))
    }

    async fn try_tamper(&self, _: &TamperAttempt) -> Result<bool, Error> {
        Ok(self.0.flaw.lets_tampering_happen())
    }
}

#[async_trait]
impl Store for Flawed {
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
