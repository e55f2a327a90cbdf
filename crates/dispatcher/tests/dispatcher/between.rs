//! A store with somebody between it and those who use it, who does something to what is asked and answered.

use std::sync::Arc;

use async_trait::async_trait;
use onward_journal::{ExecutionId, Timestamp};
use onward_runs::{RunEventRecord, RunId};
use onward_store::{
    Admitted, Error, JournalChunk, Key, Page, Policy, Purge, Reader, Receipt, RunHead, Scan, Store, Stored, Table,
};

/// What is done to commits and to what is read of rows: nothing, unless told.
#[async_trait]
pub(crate) trait Meddle: Send + Sync + 'static {
    async fn apply(&self, store: &dyn Store, commit: Admitted) -> Result<Receipt, Error> {
        store.apply(commit).await
    }

    /// Before rows of this table are read.
    async fn read(&self, _table: &Table) -> Result<(), Error> {
        Ok(())
    }
}

/// A store, and who is between.
pub(crate) struct Between<M>(pub(crate) Arc<dyn Store>, pub(crate) M);

#[async_trait]
impl<M: Meddle> Store for Between<M> {
    fn policy(&self) -> &Policy {
        self.0.policy()
    }

    async fn apply(&self, commit: Admitted) -> Result<Receipt, Error> {
        self.1.apply(&*self.0, commit).await
    }

    async fn row(&self, table: &'static Table, key: Key) -> Result<Option<Stored>, Error> {
        self.1.read(table).await?;
        self.0.row(table, key).await
    }

    async fn rows(&self, scan: Scan) -> Result<Vec<Stored>, Error> {
        self.1.read(scan.table).await?;
        self.0.rows(scan).await
    }

    async fn count(&self, scan: Scan) -> Result<u64, Error> {
        self.0.count(scan).await
    }

    async fn journal(&self, execution: ExecutionId, from: u64, limit: usize) -> Result<Vec<JournalChunk>, Error> {
        self.0.journal(execution, from, limit).await
    }

    async fn run_events(&self, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error> {
        self.0.run_events(run, page).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.0.run(run).await
    }

    async fn runs(&self, behind: Option<Reader>, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, Error> {
        self.0.runs(behind, after, limit).await
    }

    async fn purge(&self, purge: Purge) -> Result<bool, Error> {
        self.0.purge(purge).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.0.now().await
    }
}
