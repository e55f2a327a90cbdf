//! A process that dies at a chosen moment: from then on its store and its tasks never answer. It
//! does not clean up, and nothing that it still does reaches the store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_embed::{GuestFunction, WasmComponentRuntime};
use onward_engine::node::{ComponentLoadError, ComponentRuntime, NativeTask};
use onward_engine::shard::{GuestEntry, GuestUnavailable, TaskAttempt};
use onward_execution::Guest;
use onward_journal::{ComponentDigest, ExecutionId, InvokeResult};
use onward_runs::{RunEventRecord, RunId};
use onward_store::{
    AdmittedCommit, CommitReceipt, Error, JournalChunk, PurgeTarget, RowKey, RunEventQuery,
    RunEventReader, RunHead, Store, StorePolicy, StoredRow, TableScan, TableSchema,
};
use tokio::sync::watch;

/// The moment at which a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A step of an execution is not stored.
    BeforeStep,
    /// A step is stored, but its outcome is not reported.
    AfterStep,
    /// A lease is not stored.
    BeforeLease,
    /// A lease is stored, but its outcome is not reported.
    AfterLease,
    /// A task is not started, although its start is recorded.
    BeforeTask,
    /// A task is performed, but its end is not recorded.
    AfterTask,
}

/// The n-th time of a moment in the life of a process; 1 is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) moment: Moment,
    pub(crate) nth: usize,
}

/// How often each attempt was performed, counted where the engine cannot see it: by idempotency key
/// and attempt.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<(String, u32), u32>>);

impl Ledger {
    fn note(&self, attempt: &TaskAttempt) {
        let key = (attempt.id.promise_id().to_string(), attempt.id.attempt);
        *self.0.lock().unwrap().entry(key).or_default() += 1;
    }

    /// All attempts that were performed.
    pub(crate) fn performed(&self) -> BTreeMap<(String, u32), u32> {
        self.0.lock().unwrap().clone()
    }
}

/// The crash point of a process, and its progress.
pub(crate) struct Faults {
    point: Option<Point>,
    steps: AtomicUsize,
    leases: AtomicUsize,
    tasks: AtomicUsize,
    is_dead: AtomicBool,
    progress: watch::Sender<u64>,
    ledger: Arc<Ledger>,
}

impl Faults {
    /// A process that dies at `point`, or not at all.
    pub(crate) fn new(point: Option<Point>, ledger: Arc<Ledger>) -> Self {
        Self {
            point,
            steps: AtomicUsize::new(0),
            leases: AtomicUsize::new(0),
            tasks: AtomicUsize::new(0),
            is_dead: AtomicBool::new(false),
            progress: watch::Sender::new(0),
            ledger,
        }
    }

    /// Changes with every step, and with the death of the process.
    pub(crate) fn progress(&self) -> watch::Receiver<u64> {
        self.progress.subscribe()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
    }

    /// Number of committed steps.
    pub(crate) fn steps(&self) -> usize {
        self.steps.load(Ordering::SeqCst)
    }

    /// Number of tasks performed.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.load(Ordering::SeqCst)
    }

    /// Never returns once the process has died.
    async fn alive(&self) {
        if self.is_dead() {
            std::future::pending().await
        }
    }

    /// Dies if the crash point is reached.
    async fn pass(&self, moment: Moment, nth: usize) {
        if self.point == Some(Point { moment, nth }) {
            self.is_dead.store(true, Ordering::SeqCst);
            self.report_progress();
        }
        self.alive().await;
    }

    fn report_progress(&self) {
        self.progress.send_modify(|count| *count += 1);
    }

    async fn perform(
        &self,
        attempt: &TaskAttempt,
        work: impl Future<Output = InvokeResult> + Send,
    ) -> InvokeResult {
        self.alive().await;
        let nth = self.tasks.fetch_add(1, Ordering::SeqCst) + 1;
        self.pass(Moment::BeforeTask, nth).await;
        self.ledger.note(attempt);
        let result = work.await;
        self.pass(Moment::AfterTask, nth).await;
        result
    }
}

/// A store that answers until its process dies.
pub(crate) struct Faulty {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) faults: Arc<Faults>,
}

impl Faulty {
    async fn answer<T>(&self, call: impl Future<Output = T> + Send) -> T {
        self.faults.alive().await;
        let answer = call.await;
        self.faults.alive().await;
        answer
    }
}

#[async_trait]
impl Store for Faulty {
    fn policy(&self) -> &StorePolicy {
        self.inner.policy()
    }

    /// Steps depend on the ownership of a shard; what does not is a lease.
    async fn apply_commit(&self, commit: AdmittedCommit) -> Result<CommitReceipt, Error> {
        self.faults.alive().await;
        let (count, before, after) = if commit.commit().fences.is_empty() {
            (&self.faults.leases, Moment::BeforeLease, Moment::AfterLease)
        } else {
            (&self.faults.steps, Moment::BeforeStep, Moment::AfterStep)
        };
        let nth = count.fetch_add(1, Ordering::SeqCst) + 1;
        self.faults.pass(before, nth).await;
        let outcome = self.inner.apply_commit(commit).await;
        self.faults.pass(after, nth).await;
        if after == Moment::AfterStep {
            self.faults.report_progress();
        }
        outcome
    }

    async fn read_row(
        &self,
        table: &'static TableSchema,
        key: RowKey,
    ) -> Result<Option<StoredRow>, Error> {
        self.answer(self.inner.read_row(table, key)).await
    }

    async fn count_rows(&self, scan: TableScan) -> Result<u64, Error> {
        self.answer(self.inner.count_rows(scan)).await
    }

    async fn scan_rows(&self, scan: TableScan) -> Result<Vec<StoredRow>, Error> {
        self.answer(self.inner.scan_rows(scan)).await
    }

    async fn read_journal(
        &self,
        execution: ExecutionId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<JournalChunk>, Error> {
        self.answer(self.inner.read_journal(execution, from, limit))
            .await
    }

    async fn read_run_events(
        &self,
        run: &RunId,
        page: RunEventQuery,
    ) -> Result<Vec<RunEventRecord>, Error> {
        self.answer(self.inner.read_run_events(run, page)).await
    }

    async fn read_run_head(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.answer(self.inner.read_run_head(run)).await
    }

    async fn list_run_heads(
        &self,
        behind: Option<RunEventReader>,
        after: Option<&RunId>,
        limit: usize,
    ) -> Result<Vec<RunHead>, Error> {
        self.answer(self.inner.list_run_heads(behind, after, limit))
            .await
    }

    async fn purge(&self, purge: PurgeTarget) -> Result<bool, Error> {
        self.answer(self.inner.purge(purge)).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.answer(self.inner.now()).await
    }
}

/// Components whose tasks are counted, and end with their process.
pub(crate) struct Performing {
    pub(crate) inner: Arc<WasmComponentRuntime>,
    pub(crate) faults: Arc<Faults>,
}

#[async_trait]
impl ComponentRuntime for Performing {
    /// Loaded components are cached, so that hundreds of processes do not load them again.
    async fn load_component(&self, code: &[u8]) -> Result<Vec<GuestFunction>, ComponentLoadError> {
        static LOADED: Mutex<Vec<(Vec<u8>, Vec<GuestFunction>)>> = Mutex::new(Vec::new());
        let known = |(loaded, functions): &(Vec<u8>, Vec<GuestFunction>)| {
            (loaded == code).then(|| functions.clone())
        };
        if let Some(functions) = LOADED.lock().unwrap().iter().find_map(known) {
            return Ok(functions);
        }
        let functions = self.inner.load_component(code).await?;
        LOADED
            .lock()
            .unwrap()
            .push((code.to_vec(), functions.clone()));
        Ok(functions)
    }

    fn is_loaded(&self, component: ComponentDigest) -> bool {
        self.inner.is_loaded(component)
    }

    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        self.inner.create_guest(entry)
    }

    fn guest_capacity(&self) -> usize {
        self.inner.guest_capacity()
    }

    async fn perform_task(
        &self,
        component: ComponentDigest,
        attempt: &TaskAttempt,
    ) -> Option<InvokeResult> {
        let work = async {
            self.inner
                .perform_task(component, attempt)
                .await
                .expect("the component is in memory")
        };
        Some(self.faults.perform(attempt, work).await)
    }

    async fn send_http_request(&self, attempt: &TaskAttempt) -> InvokeResult {
        self.faults
            .perform(attempt, self.inner.send_http_request(attempt))
            .await
    }
}

/// A task of the process itself: it returns its input.
pub(crate) struct Echo(pub(crate) Arc<Faults>);

#[async_trait]
impl NativeTask for Echo {
    async fn perform_attempt(&self, attempt: &TaskAttempt) -> InvokeResult {
        self.0
            .perform(attempt, async { Ok(attempt.input.clone()) })
            .await
    }
}
