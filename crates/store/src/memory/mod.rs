//! A store in memory, kept as simple as possible. It is the reference that other stores are
//! compared with. Adapters with a remote database load the data that a commit touches into a
//! [`MemoryState`] and plan the commit on it.

mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId};

pub use state::MemoryState;

use crate::{
    AdmittedCommit, CommitReceipt, Duplicates, Error, JournalChunk, NotificationHandler,
    PurgeTarget, RegistrationGuard, RowKey, RunEventQuery, RunEventReader, RunHead, Store,
    StoreClock, StorePolicy, StoredRow, SystemClock, TableScan, TableSchema, plan_commit,
};

/// A store that keeps everything in memory and loses it when it is dropped.
pub struct MemoryStore {
    state: Mutex<MemoryState>,
    policy: StorePolicy,
    clock: Arc<dyn StoreClock>,
    listeners: Mutex<Vec<WeakNotificationHandler>>,
}

/// A subscriber to notifications, until its guard is dropped.
type WeakNotificationHandler = Weak<dyn Fn(&str) + Send + Sync>;

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new(StorePolicy::default(), Arc::new(SystemClock))
    }
}

impl MemoryStore {
    /// Returns an empty store.
    pub fn new(policy: StorePolicy, clock: Arc<dyn StoreClock>) -> Self {
        Self {
            state: Mutex::default(),
            policy,
            clock,
            listeners: Mutex::default(),
        }
    }

    /// Locks the state. A poisoned lock is safe to use, because nothing panics between two writes
    /// of a plan.
    fn lock_state(&self) -> MutexGuard<'_, MemoryState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn policy(&self) -> &StorePolicy {
        &self.policy
    }

    async fn apply_commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error> {
        let mut state = self.lock_state();
        let plan = plan_commit(&commit, &mut *state, self.clock.now(), Duplicates::Checked)?;
        state.apply_plan(&plan);
        Ok(plan.receipt)
    }

    async fn read_row(
        &self,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        Ok(self.lock_state().find_row(table, &key).cloned())
    }

    async fn count_rows(&self, scan: TableScan) -> Result<u64, Error> {
        Ok(self.lock_state().scan_rows(&scan, usize::MAX).len() as u64)
    }

    async fn scan_rows(&self, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        Ok(self
            .lock_state()
            .scan_rows(&scan, self.policy.limits.page_max))
    }

    async fn read_journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        Ok(self.lock_state().journal_chunks(
            execution,
            from,
            limit.min(self.policy.limits.page_max),
            self.policy.limits.journal_page_bytes_max,
        ))
    }

    async fn read_run_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        Ok(self.lock_state().run_events_after(
            run,
            page.after,
            page.limit.min(self.policy.limits.page_max),
        ))
    }

    async fn read_run_head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        Ok(self.lock_state().find_run_head(run).cloned())
    }

    async fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        Ok(self
            .lock_state()
            .list_run_heads(behind, after, limit.min(self.policy.limits.page_max)))
    }

    async fn purge(&self, purge: PurgeTarget) -> Result<bool, Error> {
        Ok(self.lock_state().purge(&purge))
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.clock.now())
    }

    fn notify(&self, notification: String) {
        let listeners: Vec<NotificationHandler> = {
            let mut listeners = self
                .listeners
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            listeners.retain(|listener| listener.strong_count() > 0);
            listeners.iter().filter_map(Weak::upgrade).collect()
        };
        for handler in listeners {
            handler(&notification);
        }
    }

    fn subscribe(&self, handler: NotificationHandler) -> Option<RegistrationGuard> {
        self.listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::downgrade(&handler));
        Some(Box::new(handler))
    }
}
