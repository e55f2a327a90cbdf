//! The store as workers see it: it fails before, it fails after, and it takes its time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_journal::{ExecutionId, Timestamp};
use onward_runs::{RunEventRecord, RunId};
use onward_store::{
    Admitted, Error, JournalChunk, Key, Page, Policy, Purge, Reader, Receipt, RunHead, Scan, Store, Stored, Table,
};
use tokio::time::sleep;

use super::{Chance, LATE, LEASE};

pub(super) struct Flaky {
    store: Arc<dyn Store>,
    chance: Chance,
    is_calm: AtomicBool,
    stalls: AtomicU32,
}

impl Flaky {
    pub(super) fn new(store: Arc<dyn Store>, chance: Chance) -> Self {
        Self { store, chance, is_calm: AtomicBool::new(false), stalls: AtomicU32::new(0) }
    }

    /// Whether nothing fails.
    pub(super) fn be_calm(&self, is_calm: bool) {
        self.is_calm.store(is_calm, Ordering::SeqCst);
    }

    pub(super) fn stalls(&self) -> u32 {
        self.stalls.load(Ordering::SeqCst)
    }

    fn fails(&self, percent: u64) -> bool {
        !self.is_calm.load(Ordering::SeqCst) && self.chance.percent(percent)
    }

    /// A moment in which a worker can die; or a time for which it stands still.
    async fn moment(&self) {
        sleep(Duration::from_millis(self.chance.below(200))).await;
        if self.fails(1) {
            self.stalls.fetch_add(1, Ordering::SeqCst);
            sleep(LEASE * 2).await;
        }
    }

    async fn read<T>(&self, read: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        self.moment().await;
        if self.fails(2) { Err(Error::Unavailable("not now".to_owned())) } else { read.await }
    }
}

#[async_trait]
impl Store for Flaky {
    fn policy(&self) -> &Policy {
        self.store.policy()
    }

    async fn apply(&self, commit: Admitted) -> Result<Receipt, Error> {
        self.moment().await;
        if self.fails(3) {
            return Err(Error::Unavailable("not now".to_owned()));
        }
        if self.fails(2) {
            // It may still come to be stored, when nobody expects it any more.
            if self.chance.percent(50) {
                let late = Duration::from_millis(self.chance.below(u64::try_from(LATE.as_millis()).unwrap_or(1)));
                let store = Arc::clone(&self.store);
                tokio::spawn(async move {
                    sleep(late).await;
                    drop(store.apply(commit).await);
                });
            }
            return Err(Error::OutcomeUnknown("perhaps not".to_owned()));
        }
        let applied = self.store.apply(commit).await;
        self.moment().await;
        if applied.is_ok() && self.fails(3) {
            return Err(Error::OutcomeUnknown("perhaps".to_owned()));
        }
        applied
    }

    async fn row(&self, table: &'static Table, key: Key) -> Result<Option<Stored>, Error> {
        self.read(self.store.row(table, key)).await
    }

    async fn rows(&self, scan: Scan) -> Result<Vec<Stored>, Error> {
        self.read(self.store.rows(scan)).await
    }

    async fn count(&self, scan: Scan) -> Result<u64, Error> {
        self.read(self.store.count(scan)).await
    }

    async fn journal(&self, execution: ExecutionId, from: u64, limit: usize) -> Result<Vec<JournalChunk>, Error> {
        self.store.journal(execution, from, limit).await
    }

    async fn run_events(&self, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error> {
        self.store.run_events(run, page).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.store.run(run).await
    }

    async fn runs(&self, behind: Option<Reader>, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, Error> {
        self.store.runs(behind, after, limit).await
    }

    async fn purge(&self, purge: Purge) -> Result<bool, Error> {
        self.store.purge(purge).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.read(self.store.now()).await
    }
}
