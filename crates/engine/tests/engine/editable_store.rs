//! A store whose log a test can change: events can be missing and appear later, and commits can
//! fail.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::{RunEventRecord, RunId};
use onward_store::memory::MemoryStore;
use onward_store::{
    AdmittedCommit, CommitReceipt, Error, JournalChunk, ManualClock, PurgeTarget, RowKey,
    RunEventQuery, RunEventReader, RunHead, Store, StoreClock as _, StorePolicy, StoredRow,
    TableScan, TableSchema,
};

pub(crate) struct EditableStore {
    inner: MemoryStore,
    pub(crate) clock: Arc<ManualClock>,
    hidden: Mutex<BTreeSet<(RunId, u64)>>,
    altered: Mutex<Vec<RunEventRecord>>,
    shown: Mutex<Option<Vec<RunEventRecord>>>,
    unreadable: Mutex<Option<RunId>>,
    pub(crate) reads: AtomicUsize,
    commits: AtomicUsize,
    failing: AtomicUsize,
}

impl EditableStore {
    pub(crate) fn new() -> Arc<Self> {
        let clock = Arc::new(ManualClock::new(Timestamp::EPOCH.plus_ms(1_000_000)));
        let inner = MemoryStore::new(StorePolicy::default(), clock.clone());
        Arc::new(Self {
            inner,
            clock,
            hidden: Mutex::default(),
            altered: Mutex::default(),
            shown: Mutex::default(),
            unreadable: Mutex::default(),
            reads: AtomicUsize::new(0),
            commits: AtomicUsize::new(0),
            failing: AtomicUsize::new(0),
        })
    }

    /// Hides an event, as if it were not committed yet.
    pub(crate) fn hide(&self, run: &RunId, seq: u64) {
        self.hidden.lock().unwrap().insert((run.clone(), seq));
    }

    pub(crate) fn reveal(&self, run: &RunId, seq: u64) {
        self.hidden.lock().unwrap().remove(&(run.clone(), seq));
    }

    /// Replaces the stored event that has the same position.
    pub(crate) fn alter(&self, record: RunEventRecord) {
        self.altered.lock().unwrap().push(record);
    }

    /// Answers the next read with these events.
    pub(crate) fn show(&self, log: Vec<RunEventRecord>) {
        *self.shown.lock().unwrap() = Some(log);
    }

    /// Makes the events of this run unreadable.
    pub(crate) fn damage(&self, run: &RunId) {
        *self.unreadable.lock().unwrap() = Some(run.clone());
    }

    /// Fails the `nth` commit from now on; 0 for none.
    pub(crate) fn fail_commit(&self, nth: usize) {
        self.commits.store(0, Ordering::SeqCst);
        self.failing.store(nth, Ordering::SeqCst);
    }
}

#[async_trait]
impl Store for EditableStore {
    fn policy(&self) -> &StorePolicy {
        self.inner.policy()
    }

    async fn apply_commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error> {
        let nth = self.commits.fetch_add(1, Ordering::SeqCst) + 1;
        if nth == self.failing.load(Ordering::SeqCst) {
            return Err(Error::Unavailable(
                "failure injected by the test".to_owned(),
            ));
        }
        self.inner.apply_commit(commit).await
    }

    async fn read_row(
        &self,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        self.inner.read_row(table, key).await
    }

    async fn count_rows(&self, scan: TableScan) -> Result<u64, Error> {
        self.inner.count_rows(scan).await
    }

    async fn scan_rows(&self, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        self.inner.scan_rows(scan).await
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
        // Other tasks run during a read of a real store.
        tokio::task::yield_now().await;
        self.reads.fetch_add(1, Ordering::SeqCst);
        if self.unreadable.lock().unwrap().as_ref() == Some(run) {
            return Err(Error::Corrupt("failure injected by the test".to_owned()));
        }
        if let Some(log) = self.shown.lock().unwrap().take() {
            return Ok(log);
        }
        let mut events = self
            .inner
            .read_run_events(
                run,
                RunEventQuery {
                    limit: 1_000,
                    ..page
                },
            )
            .await?;
        for altered in &*self.altered.lock().unwrap() {
            let is_it = |it: &&mut RunEventRecord| {
                it.event.run_id == altered.event.run_id && it.run_seq == altered.run_seq
            };
            events
                .iter_mut()
                .filter(is_it)
                .for_each(|it| *it = altered.clone());
        }
        let hidden = self.hidden.lock().unwrap();
        let is_there =
            |event: &RunEventRecord| !hidden.contains(&(run.clone(), event.run_seq.as_u64()));
        Ok(events
            .into_iter()
            .filter(is_there)
            .take(page.limit)
            .collect())
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
        Ok(self.clock.now())
    }
}
