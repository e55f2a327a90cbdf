//! The store as the dispatchers see it: calls fail before or after they take effect, and are
//! delayed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId};
use onward_store::{
    AdmittedCommit, CommitReceipt, Error, JournalChunk, PurgeTarget, RowKey, RunEventQuery,
    RunEventReader, RunHead, Store, StorePolicy, StoredRow, TableScan, TableSchema,
};
use tokio::time::sleep;

use super::{FaultMode, LATE_COMMIT_MAX, LEASE_DURATION, SharedRandom};

/// A store that fails and stalls at random.
pub(super) struct FlakyStore {
    inner: Arc<dyn Store>,
    random: SharedRandom,
    has_faults: AtomicBool,
    stalls: AtomicU32,
}

impl FlakyStore {
    pub(super) fn new(inner: Arc<dyn Store>, random: SharedRandom) -> Self {
        Self {
            inner,
            random,
            has_faults: AtomicBool::new(true),
            stalls: AtomicU32::new(0),
        }
    }

    pub(super) fn set_faults(&self, faults: FaultMode) {
        self.has_faults
            .store(faults == FaultMode::Injected, Ordering::SeqCst);
    }

    pub(super) fn stall_count(&self) -> u32 {
        self.stalls.load(Ordering::SeqCst)
    }

    fn should_fail(&self, percent: u64) -> bool {
        self.has_faults.load(Ordering::SeqCst) && self.random.roll_percent(percent)
    }

    /// A delay during which a worker can be killed; sometimes a stall of two leases.
    async fn delay_or_stall(&self) {
        sleep(Duration::from_millis(self.random.draw_below(200))).await;
        if self.should_fail(1) {
            self.stalls.fetch_add(1, Ordering::SeqCst);
            sleep(LEASE_DURATION * 2).await;
        }
    }

    async fn read_with_faults<T>(
        &self,
        read: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.delay_or_stall().await;
        if self.should_fail(2) {
            Err(Error::Unavailable("injected fault".to_owned()))
        } else {
            read.await
        }
    }
}

#[async_trait]
impl Store for FlakyStore {
    fn policy(&self) -> &StorePolicy {
        self.inner.policy()
    }

    async fn apply_commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error> {
        self.delay_or_stall().await;
        if self.should_fail(3) {
            return Err(Error::Unavailable("injected fault".to_owned()));
        }
        if self.should_fail(2) {
            // The commit may still be stored later, when no caller expects it any more.
            if self.random.roll_percent(50) {
                let delay = Duration::from_millis(
                    self.random
                        .draw_below(u64::try_from(LATE_COMMIT_MAX.as_millis()).unwrap_or(1)),
                );
                let store = Arc::clone(&self.inner);
                tokio::spawn(async move {
                    sleep(delay).await;
                    drop(store.apply_commit(commit).await);
                });
            }
            return Err(Error::OutcomeUnknown("injected fault".to_owned()));
        }
        let applied = self.inner.apply_commit(commit).await;
        self.delay_or_stall().await;
        if applied.is_ok() && self.should_fail(3) {
            return Err(Error::OutcomeUnknown("injected fault".to_owned()));
        }
        applied
    }

    async fn read_row(
        &self,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        self.read_with_faults(self.inner.read_row(table, key)).await
    }

    async fn scan_rows(&self, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        self.read_with_faults(self.inner.scan_rows(scan)).await
    }

    async fn count_rows(&self, scan: TableScan) -> Result<u64, Error> {
        self.read_with_faults(self.inner.count_rows(scan)).await
    }

    async fn read_journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        self.inner.read_journal(execution, from, limit).await
    }

    async fn read_run_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        self.inner.read_run_events(run, page).await
    }

    async fn read_run_head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.inner.read_run_head(run).await
    }

    async fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        self.inner.list_run_heads(behind, after, limit).await
    }

    async fn purge(&self, purge: PurgeTarget) -> Result<bool, Error> {
        self.inner.purge(purge).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.read_with_faults(self.inner.now()).await
    }
}
