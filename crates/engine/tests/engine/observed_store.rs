//! A store that counts requests, and can be unavailable or slow.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId};
use onward_store::memory::MemoryStore;
use onward_store::{
    AdmittedCommit, Commit, CommitReceipt, Error, JournalChunk, NotificationHandler, PurgeTarget,
    RegistrationGuard, RowKey, RunEventQuery, RunEventReader, RunHead, Store, StorePolicy,
    StoredRow, TableScan, TableSchema,
};

use crate::script_runtime::memory;

/// Delay of a commit that appends to a journal.
#[derive(Clone, Copy)]
pub(crate) struct Delay {
    /// The execution that is delayed; `None` for any.
    pub(crate) execution: Option<ExecutionId>,
    /// Time until the commit is stored.
    pub(crate) before: Duration,
    /// Time from then until the store answers.
    pub(crate) after: Duration,
}

pub(crate) struct ObservedStore {
    memory: MemoryStore,
    is_away: AtomicBool,
    is_silent: AtomicBool,
    delay: Mutex<Option<Delay>>,
    reads: AtomicU64,
    writes: AtomicU64,
}

impl ObservedStore {
    pub(crate) fn new() -> Self {
        let (is_away, is_silent) = (AtomicBool::new(false), AtomicBool::new(false));
        Self {
            memory: memory(),
            is_away,
            is_silent,
            delay: Mutex::default(),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
        }
    }

    /// Makes the store unavailable, or available again.
    pub(crate) fn set_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    /// The next commit is stored, but its outcome is not reported.
    pub(crate) fn lose_next_answer(&self) {
        self.is_silent.store(true, Ordering::SeqCst);
    }

    /// Delays the next commit that appends to a journal.
    pub(crate) fn delay(&self, delay: Delay) {
        *self.delay.lock().unwrap() = Some(delay);
    }

    fn delay_of(&self, commit: &Commit) -> Option<Delay> {
        let mut delay = self.delay.lock().unwrap();
        let is_it = |delay: &Delay| {
            commit
                .journals
                .iter()
                .any(|append| delay.execution.is_none_or(|id| id == append.execution))
        };
        if delay.as_ref().is_some_and(is_it) {
            delay.take()
        } else {
            None
        }
    }

    /// Number of reads and of writes since the last call.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (
            self.reads.swap(0, Ordering::SeqCst),
            self.writes.swap(0, Ordering::SeqCst),
        )
    }

    fn count(&self, counter: &AtomicU64) -> Result<(), Error> {
        counter.fetch_add(1, Ordering::SeqCst);
        match self.is_away.load(Ordering::SeqCst) {
            true => Err(Error::Unavailable("unavailable by the test".to_owned())),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl Store for ObservedStore {
    fn policy(&self) -> &StorePolicy {
        self.memory.policy()
    }

    async fn apply_commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error> {
        self.count(&self.writes)?;
        let delay = self.delay_of(commit.commit());
        tokio::time::sleep(delay.map_or(Duration::ZERO, |delay| delay.before)).await;
        let receipt = self.memory.apply_commit(commit).await;
        tokio::time::sleep(delay.map_or(Duration::ZERO, |delay| delay.after)).await;
        match self.is_silent.swap(false, Ordering::SeqCst) {
            true => Err(Error::OutcomeUnknown("no answer".to_owned())),
            false => receipt,
        }
    }

    async fn read_row(
        &self,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        self.count(&self.reads)?;
        self.memory.read_row(table, key).await
    }

    async fn count_rows(&self, scan: TableScan) -> Result<u64, Error> {
        self.count(&self.reads)?;
        self.memory.count_rows(scan).await
    }

    async fn scan_rows(&self, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        self.count(&self.reads)?;
        self.memory.scan_rows(scan).await
    }

    async fn read_journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        self.count(&self.reads)?;
        self.memory.read_journal(execution, from, limit).await
    }

    async fn read_run_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        self.memory.read_run_events(run, page).await
    }

    async fn read_run_head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.memory.read_run_head(run).await
    }

    async fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        self.memory.list_run_heads(behind, after, limit).await
    }

    async fn purge(&self, purge: PurgeTarget) -> Result<bool, Error> {
        self.memory.purge(purge).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.count(&self.reads)?;
        self.memory.now().await
    }

    fn notify(&self, words: String) {
        self.memory.notify(words);
    }

    fn subscribe(&self, handler: NotificationHandler) -> Option<RegistrationGuard> {
        self.memory.subscribe(handler)
    }
}
