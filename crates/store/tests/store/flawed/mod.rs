//! Stores that are wrong on purpose, each in one way. A suite that does not notice them would not notice an adapter that
//! is wrong by accident.

pub(crate) mod events;
pub(crate) mod reads;
pub(crate) mod writes;

use std::sync::Arc;

use async_trait::async_trait;
use onward_journal::{ExecutionId, Timestamp};
use onward_runs::{RunEventRecord, RunId};
use onward_store::conformance::{Opened, Subject, Tampering};
use onward_store::memory::Memory;
use onward_store::{
    Admitted, Commit, Error, JournalChunk, Key, ManualClock, Page, Policy, Purge, Reader, Receipt, RunHead, Scan,
    Store, Stored, Table,
};

/// What a flawed store does differently. By default: nothing.
#[async_trait]
pub(crate) trait Flaw: Send + Sync + 'static {
    async fn commit(&self, memory: &Memory, commit: Commit) -> Result<Receipt, Error> {
        memory.commit(commit).await
    }

    async fn row(&self, memory: &Memory, table: &'static Table, key: Key) -> Result<Option<Stored>, Error> {
        memory.row(table, key).await
    }

    async fn rows(&self, memory: &Memory, scan: Scan) -> Result<Vec<Stored>, Error> {
        memory.rows(scan).await
    }

    async fn journal(
        &self,
        memory: &Memory,
        of: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        memory.journal(of, from, limit).await
    }

    async fn run_events(&self, memory: &Memory, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error> {
        memory.run_events(run, page).await
    }

    async fn run(&self, memory: &Memory, run: &RunId) -> Result<Option<RunHead>, Error> {
        memory.run(run).await
    }

    async fn runs(
        &self,
        memory: &Memory,
        behind: Option<Reader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        memory.runs(behind, after, limit).await
    }

    async fn purge(&self, memory: &Memory, purge: Purge) -> Result<bool, Error> {
        memory.purge(purge).await
    }

    fn policy(&self, policy: Policy) -> Policy {
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
    memory: Memory,
    policy: Policy,
    flaw: Box<dyn Flaw>,
}

#[async_trait]
impl Subject for Planted {
    fn name(&self) -> &str {
        "flawed"
    }

    async fn fresh(&self, policy: Policy, clock: Arc<ManualClock>) -> Result<Box<dyn Opened>, Error> {
        let flaw = (self.0)();
        let policy = flaw.policy(policy);
        Ok(Box::new(Shared(Arc::new(Flawed { memory: Memory::new(policy, clock), policy, flaw }))))
    }
}

struct Shared(Arc<Flawed>);

#[async_trait]
impl Opened for Shared {
    fn store(&self) -> &(dyn Store + 'static) {
        &*self.0
    }

    async fn another(&self) -> Result<Option<Arc<dyn Store>>, Error> {
        Ok(Some(Arc::<Flawed>::clone(&self.0)))
    }

    async fn tamper(&self, _: &Tampering) -> Result<bool, Error> {
        Ok(self.0.flaw.lets_tampering_happen())
    }
}

#[async_trait]
impl Store for Flawed {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    async fn apply(&self, commit: Admitted) -> Result<Receipt, Error> {
        self.flaw.commit(&self.memory, commit.commit().clone()).await
    }

    async fn row(&self, table: &'static Table, key: Key) -> Result<Option<Stored>, Error> {
        self.flaw.row(&self.memory, table, key).await
    }

    async fn rows(&self, scan: Scan) -> Result<Vec<Stored>, Error> {
        self.flaw.rows(&self.memory, scan).await
    }

    async fn count(&self, scan: Scan) -> Result<u64, Error> {
        self.memory.count(scan).await
    }

    async fn journal(&self, execution: ExecutionId, from: u64, limit: usize) -> Result<Vec<JournalChunk>, Error> {
        self.flaw.journal(&self.memory, execution, from, limit).await
    }

    async fn run_events(&self, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error> {
        self.flaw.run_events(&self.memory, run, page).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.flaw.run(&self.memory, run).await
    }

    async fn runs(&self, behind: Option<Reader>, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, Error> {
        self.flaw.runs(&self.memory, behind, after, limit).await
    }

    async fn purge(&self, purge: Purge) -> Result<bool, Error> {
        self.flaw.purge(&self.memory, purge).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.memory.now().await
    }
}
