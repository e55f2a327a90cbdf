//! A node: it takes its share of the shards, runs their cores, and performs what they want done.

mod balance;
mod guest_log;
mod library;
mod lost;
pub(crate) mod measure;
mod member;
mod nearby;
mod shard_loop;
mod steward;
mod tasks;
mod time;
mod word;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use onward_execution::Guest;
use onward_journal::{ComponentDigest, InvokeResult, Text};
use onward_store::lease::Holder;
use onward_store::{Error, Kind, Store};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use guest_log::log_line;
pub use library::Library;
pub use nearby::Nearby;
pub(crate) use nearby::Note;
pub use tasks::{Native, Task};
pub(crate) use word::Word;

use self::time::StoreTime;
use crate::client::{self, FunctionInfo};
use crate::shard::span::Span;
use crate::shard::{self, Attempt, Entry, Unready};
use crate::work;

/// A runtime for the code of components.
#[async_trait]
pub trait Code: Send + Sync {
    /// Makes a component ready to run, and says which functions it has.
    async fn load(&self, code: &[u8]) -> Result<Vec<FunctionInfo>, String>;

    /// The functions of a component that is to be deployed, if it is one, and if the patterns of `hosts` are some.
    async fn functions(&self, code: &[u8], _hosts: &[String]) -> Result<Vec<FunctionInfo>, String> {
        self.load(code).await
    }

    /// Whether a component is ready to run.
    fn is_loaded(&self, component: ComponentDigest) -> bool;

    /// A new guest that runs a workflow of a component that was loaded.
    fn guest(&self, entry: &Entry<'_>) -> Result<Box<dyn Guest>, Unready>;

    /// How many guests there is room for besides those that are there.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// Performs a task of a component. Nothing if the component is not in memory.
    async fn task(&self, component: ComponentDigest, attempt: &Attempt) -> Option<InvokeResult>;

    /// Sends an HTTP request.
    async fn http(&self, attempt: &Attempt) -> InvokeResult;
}

/// Whoever follows executions as traces.
pub trait Traces: Send + Sync {
    /// Things that have ended, durably. Must not wait.
    fn ended(&self, spans: Vec<Span>);
}

/// What a node is to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// It has its share of the shards.
    #[default]
    Member,
    /// It has what nobody wants, until a member comes.
    Stopgap,
}

/// How a node works.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name, for people.
    pub name: Text,
    /// What it is to others.
    pub role: Role,
    /// Where it listens, for people and other nodes.
    pub address: Option<Text>,
    /// How long others wait before they take over from a node that is gone.
    pub lease: Duration,
    /// How often it looks for work that others have left.
    pub poll: Duration,
    /// How long tasks under way may take when a shard is given up. What takes longer is given up with it.
    pub drain: Duration,
    /// Executions that a shard reads at a time; those that are due besides wait for their turn.
    pub loading_max: usize,
    /// How its shards work.
    pub shard: shard::Options,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: "node".into(),
            role: Role::Member,
            address: None,
            lease: Duration::from_secs(5),
            poll: Duration::from_millis(200),
            drain: Duration::from_secs(10),
            loading_max: 1_000,
            shard: shard::Options::default(),
        }
    }
}

/// A node.
pub struct Node {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) library: Arc<Library>,
    pub(crate) options: Options,
    pub(crate) nearby: Arc<Nearby>,
    pub(crate) in_memory: AtomicUsize,
    /// What it is called in leases, another each time.
    holder: Holder,
    /// How many nodes there are, as far as it knows.
    alive: AtomicUsize,
    time: Mutex<StoreTime>,
    traces: Option<Arc<dyn Traces>>,
}

impl Node {
    /// A node that has not begun yet.
    pub fn new(store: Arc<dyn Store>, library: Library, options: Options) -> Self {
        Self {
            store,
            library: Arc::new(library),
            holder: Holder { name: options.name.clone(), id: client::random_key().into() },
            options,
            nearby: Arc::default(),
            in_memory: AtomicUsize::new(0),
            alive: AtomicUsize::new(0),
            time: Mutex::new(StoreTime::unknown()),
            traces: None,
        }
    }

    /// The same, for somebody who follows executions as traces.
    #[must_use]
    pub fn with_traces(mut self, traces: Arc<dyn Traces>) -> Self {
        self.options.shard.traces = true;
        self.traces = Some(traces);
        self
    }

    /// What it is called among the nodes of the store: another each time.
    pub const fn id(&self) -> &Text {
        &self.holder.id
    }

    /// What clients of the same process tell its shards, and hear of them.
    pub fn nearby(&self) -> Arc<Nearby> {
        Arc::clone(&self.nearby)
    }

    /// How many executions are in memory here. The others are in the store alone.
    pub fn in_memory(&self) -> usize {
        self.in_memory.load(Ordering::Relaxed)
    }

    /// How many nodes work on the store, as far as this one knows.
    pub fn nodes_alive(&self) -> usize {
        self.alive.load(Ordering::Relaxed)
    }

    /// Lets workers know of tasks, one of each of these functions: those that wait here, or else those that wait elsewhere.
    fn offer(&self, owner: &Text, functions: &[Text]) {
        work::offer(&*self.store, &self.nearby.offers, owner, functions);
    }

    fn time(&self) -> StoreTime {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_time(&self, time: StoreTime) {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    /// Learns now which names stand for what, rather than with its next turn.
    pub async fn learn(&self) -> Result<(), Error> {
        for named in self.library.refresh(&*self.store).await? {
            work::hand_over(&*self.store, &named).await?;
        }
        Ok(())
    }

    /// Learns, once for all shards, which names stand for what. Tells whether it could.
    async fn learn_names(&self) -> Result<bool, Error> {
        match self.learn().await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == Kind::Fatal => Err(error),
            Err(error) => {
                tracing::warn!(%error, "the names of functions could not be read; they will be tried again");
                Ok(false)
            }
        }
    }

    async fn keep_names(self: Arc<Self>, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
        while self.rest(&mut stop).await {
            self.learn_names().await?;
        }
        Ok(())
    }

    /// Waits for the next turn. Tells whether there is one.
    async fn rest(&self, stop: &mut watch::Receiver<bool>) -> bool {
        tokio::select! {
            () = tokio::time::sleep(self.options.poll) => !*stop.borrow(),
            changed = stop.changed() => changed.is_ok() && !*stop.borrow(),
        }
    }

    /// Works until `stop` says so. Then it begins nothing more, lets tasks under way end for a while, and gives its shards up. Fails when the store can no longer be used.
    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
        while !self.learn_names().await? {
            if !self.rest(&mut stop).await {
                return Ok(());
            }
        }
        // Whoever comes after it need not wait for its leases, however it ends.
        let _presence = self.store.appear(&self.holder.id);
        let nearby = Arc::clone(&self.nearby);
        let _hearing = self.store.hear(Arc::new(move |said| {
            if let Some(word) = Word::parse(said) {
                nearby.heard(word);
            }
        }));
        let mut loops = JoinSet::new();
        loops.spawn(Arc::clone(&self).keep_names(stop.clone()));
        loops.spawn(lost::run(Arc::clone(&self), stop.clone()));
        loops.spawn(steward::run(Arc::clone(&self), stop));
        let mut outcome = Ok(());
        while let Some(ended) = loops.join_next().await {
            let ended = ended.unwrap_or_else(|panic| Err(Error::Unavailable(format!("the node has stopped: {panic}"))));
            if ended.is_err() && outcome.is_ok() {
                outcome = ended;
                loops.abort_all();
            }
        }
        outcome
    }
}
