//! A process that dies at a chosen moment: from then on its store and its tasks answer nothing any more, for ever. It gets
//! no chance to clean up, and nothing that it still does can reach the store.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use onward_embed::{FunctionInfo, Wasm};
use onward_engine::node::{Code, Task};
use onward_engine::shard::{Attempt, Entry, Unready};
use onward_execution::Guest;
use onward_journal::{ComponentDigest, ExecutionId, InvokeResult, Timestamp};
use onward_runs::{RunEventRecord, RunId};
use onward_store::{
    Admitted, Error, JournalChunk, Key, Page, Policy, Purge, Reader, Receipt, RunHead, Scan, Store, Stored, Table,
};
use tokio::sync::watch;

/// What is about to happen, or has just happened, when a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A step of an execution is not stored.
    BeforeStep,
    /// A step is stored, and the engine does not hear of it.
    AfterStep,
    /// A lease is not stored.
    BeforeLease,
    /// A lease is stored, and the engine does not hear of it.
    AfterLease,
    /// A task is not begun, though its start is recorded.
    BeforeTask,
    /// A task is done, and its end is recorded nowhere.
    AfterTask,
}

/// The n-th time of a moment in the life of a process; 1 is the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) moment: Moment,
    pub(crate) nth: usize,
}

/// How often each attempt was performed, counted where the engine cannot see it: by idempotency key and attempt.
#[derive(Debug, Default)]
pub(crate) struct Ledger(Mutex<BTreeMap<(String, u32), u32>>);

impl Ledger {
    fn note(&self, attempt: &Attempt) {
        let key = (attempt.id.promise().to_string(), attempt.id.attempt);
        *self.0.lock().unwrap().entry(key).or_default() += 1;
    }

    /// All that was performed.
    pub(crate) fn performed(&self) -> BTreeMap<(String, u32), u32> {
        self.0.lock().unwrap().clone()
    }
}

/// When a process dies, and how far it came.
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

    /// How many steps were committed.
    pub(crate) fn steps(&self) -> usize {
        self.steps.load(Ordering::SeqCst)
    }

    /// How many tasks were performed.
    pub(crate) fn tasks(&self) -> usize {
        self.tasks.load(Ordering::SeqCst)
    }

    /// The dead do not get beyond this.
    async fn alive(&self) {
        if self.is_dead() {
            std::future::pending().await
        }
    }

    /// Dies if it is the time to.
    async fn pass(&self, moment: Moment, nth: usize) {
        if self.point == Some(Point { moment, nth }) {
            self.is_dead.store(true, Ordering::SeqCst);
            self.tell();
        }
        self.alive().await;
    }

    fn tell(&self) {
        self.progress.send_modify(|count| *count += 1);
    }

    async fn perform(&self, attempt: &Attempt, work: impl Future<Output = InvokeResult> + Send) -> InvokeResult {
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
    fn policy(&self) -> &Policy {
        self.inner.policy()
    }

    /// Steps depend on the ownership of a shard; what does not is a lease.
    async fn apply(&self, commit: Admitted) -> Result<Receipt, Error> {
        self.faults.alive().await;
        let (count, before, after) = if commit.commit().fences.is_empty() {
            (&self.faults.leases, Moment::BeforeLease, Moment::AfterLease)
        } else {
            (&self.faults.steps, Moment::BeforeStep, Moment::AfterStep)
        };
        let nth = count.fetch_add(1, Ordering::SeqCst) + 1;
        self.faults.pass(before, nth).await;
        let outcome = self.inner.apply(commit).await;
        self.faults.pass(after, nth).await;
        if after == Moment::AfterStep {
            self.faults.tell();
        }
        outcome
    }

    async fn row(&self, table: &'static Table, key: Key) -> Result<Option<Stored>, Error> {
        self.answer(self.inner.row(table, key)).await
    }

    async fn count(&self, scan: Scan) -> Result<u64, Error> {
        self.answer(self.inner.count(scan)).await
    }

    async fn rows(&self, scan: Scan) -> Result<Vec<Stored>, Error> {
        self.answer(self.inner.rows(scan)).await
    }

    async fn journal(&self, execution: ExecutionId, from: u64, limit: usize) -> Result<Vec<JournalChunk>, Error> {
        self.answer(self.inner.journal(execution, from, limit)).await
    }

    async fn run_events(&self, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error> {
        self.answer(self.inner.run_events(run, page)).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.answer(self.inner.run(run)).await
    }

    async fn runs(&self, behind: Option<Reader>, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, Error> {
        self.answer(self.inner.runs(behind, after, limit)).await
    }

    async fn purge(&self, purge: Purge) -> Result<bool, Error> {
        self.answer(self.inner.purge(purge)).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.answer(self.inner.now()).await
    }
}

/// Components whose tasks are counted, and end with their process.
pub(crate) struct Performing {
    pub(crate) inner: Arc<Wasm>,
    pub(crate) faults: Arc<Faults>,
}

#[async_trait]
impl Code for Performing {
    /// What was loaded once is in memory: hundreds of processes need not compute its digest again.
    async fn load(&self, code: &[u8]) -> Result<Vec<FunctionInfo>, String> {
        static LOADED: Mutex<Vec<(Vec<u8>, Vec<FunctionInfo>)>> = Mutex::new(Vec::new());
        let known = |(loaded, functions): &(Vec<u8>, Vec<FunctionInfo>)| (loaded == code).then(|| functions.clone());
        if let Some(functions) = LOADED.lock().unwrap().iter().find_map(known) {
            return Ok(functions);
        }
        let functions = self.inner.load(code).await?;
        LOADED.lock().unwrap().push((code.to_vec(), functions.clone()));
        Ok(functions)
    }

    fn is_loaded(&self, component: ComponentDigest) -> bool {
        self.inner.is_loaded(component)
    }

    fn guest(&self, entry: &Entry<'_>) -> Result<Box<dyn Guest>, Unready> {
        self.inner.guest(entry)
    }

    fn room(&self) -> usize {
        self.inner.room()
    }

    async fn task(&self, component: ComponentDigest, attempt: &Attempt) -> Option<InvokeResult> {
        let work = async { self.inner.task(component, attempt).await.expect("the component is in memory") };
        Some(self.faults.perform(attempt, work).await)
    }

    async fn http(&self, attempt: &Attempt) -> InvokeResult {
        self.faults.perform(attempt, self.inner.http(attempt)).await
    }
}

/// A task of the process itself: it returns its input.
pub(crate) struct Echo(pub(crate) Arc<Faults>);

#[async_trait]
impl Task for Echo {
    async fn perform(&self, attempt: &Attempt) -> InvokeResult {
        self.0.perform(attempt, async { Ok(attempt.input.clone()) }).await
    }
}
