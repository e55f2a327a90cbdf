//! A node: it takes its share of the shards, runs their cores, and performs what they want done.

mod attempt_runner;
mod function_registry;
mod guest_log;
mod lease_reaper;
mod local_hub;
mod membership;
pub(crate) mod node_metrics;
mod notification;
mod shard_assignment;
mod shard_coordinator;
mod shard_loop;
mod store_time;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::SharedText;
use onward_execution::Guest;
use onward_journal::{ComponentDigest, InvokeResult};
use onward_store::shard_lease::LeaseHolder;
use onward_store::{Error, Store, StoreErrorKind};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use attempt_runner::{NativeTask, NativeTaskRegistry};
pub use function_registry::FunctionRegistry;
pub use guest_log::log_guest_line;
pub use local_hub::LocalHub;
pub(crate) use local_hub::ShardHint;
pub(crate) use notification::Notification;

use self::store_time::StoreTime;
use crate::client::{self, FunctionInfo};
use crate::shard::trace_span::TraceSpan;
use crate::shard::{self, GuestEntry, GuestUnavailable, TaskAttempt};
use crate::task_queue;

/// A runtime for the code of components.
#[async_trait]
pub trait ComponentRuntime: Send + Sync {
    /// Makes a component ready to run, and says which functions it has.
    async fn load_component(&self, code: &[u8]) -> Result<Vec<FunctionInfo>, String>;

    /// The functions of a component that is to be deployed, if it is one, and if the patterns of `hosts` are some.
    async fn deployable_functions(
        &self,
        code: &[u8],
        _hosts: &[String],
    ) -> Result<Vec<FunctionInfo>, String> {
        self.load_component(code).await
    }

    /// Whether a component is ready to run.
    fn is_loaded(&self, component: ComponentDigest) -> bool;

    /// A new guest that runs a workflow of a component that was loaded.
    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable>;

    /// How many guests there is room for besides those that are there.
    fn guest_capacity(&self) -> usize {
        usize::MAX
    }

    /// Performs a task of a component. Nothing if the component is not in memory.
    async fn perform_task(
        &self,
        component: ComponentDigest,
        attempt: &TaskAttempt,
    ) -> Option<InvokeResult>;

    /// Sends an HTTP request.
    async fn send_http_request(&self, attempt: &TaskAttempt) -> InvokeResult;
}

/// Whoever follows executions as traces.
pub trait TraceExporter: Send + Sync {
    /// Things that have ended, durably. Must not wait.
    fn export_spans(&self, spans: Vec<TraceSpan>);
}

/// What a node is to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeRole {
    /// It has its share of the shards.
    #[default]
    Member,
    /// It has what nobody wants, until a member comes.
    Fallback,
}

/// How a node works.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Its name, for people.
    pub name: SharedText,
    /// What it is to others.
    pub role: NodeRole,
    /// Where it listens, for people and other nodes.
    pub address: Option<SharedText>,
    /// How long others wait before they take over from a node that is gone.
    pub lease_duration: Duration,
    /// How often it looks for work that others have left.
    pub poll_interval: Duration,
    /// How long tasks under way may take when a shard is given up. What takes longer is given up with it.
    pub drain_timeout: Duration,
    /// Executions that a shard reads at a time; those that are due besides wait for their turn.
    pub loading_max: usize,
    /// How its shards work.
    pub shard: shard::ShardOptions,
}

impl Default for NodeOptions {
    fn default() -> Self {
        Self {
            name: "node".into(),
            role: NodeRole::Member,
            address: None,
            lease_duration: Duration::from_secs(5),
            poll_interval: Duration::from_millis(200),
            drain_timeout: Duration::from_secs(10),
            loading_max: 1_000,
            shard: shard::ShardOptions::default(),
        }
    }
}

/// A node.
pub struct Node {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) functions: Arc<FunctionRegistry>,
    pub(crate) options: NodeOptions,
    pub(crate) hub: Arc<LocalHub>,
    pub(crate) in_memory: AtomicUsize,
    /// What it is called in leases, another each time.
    holder: LeaseHolder,
    /// How many nodes there are, as far as it knows.
    live_nodes: AtomicUsize,
    time: Mutex<StoreTime>,
    span_exporter: Option<Arc<dyn TraceExporter>>,
}

impl Node {
    /// A node that has not begun yet.
    pub fn new(store: Arc<dyn Store>, library: FunctionRegistry, options: NodeOptions) -> Self {
        Self {
            store,
            functions: Arc::new(library),
            holder: LeaseHolder {
                name: options.name.clone(),
                id: client::random_key().into(),
            },
            options,
            hub: Arc::default(),
            in_memory: AtomicUsize::new(0),
            live_nodes: AtomicUsize::new(0),
            time: Mutex::new(StoreTime::new_unknown()),
            span_exporter: None,
        }
    }

    /// The same, for somebody who follows executions as traces.
    #[must_use]
    pub fn with_span_exporter(mut self, traces: Arc<dyn TraceExporter>) -> Self {
        self.options.shard.emit_spans = true;
        self.span_exporter = Some(traces);
        self
    }

    /// What it is called among the nodes of the store: another each time.
    pub const fn id(&self) -> &SharedText {
        &self.holder.id
    }

    /// What clients of the same process tell its shards, and hear of them.
    pub fn local_hub(&self) -> Arc<LocalHub> {
        Arc::clone(&self.hub)
    }

    /// How many executions are in memory here. The others are in the store alone.
    pub fn executions_in_memory(&self) -> usize {
        self.in_memory.load(Ordering::Relaxed)
    }

    /// How many nodes work on the store, as far as this one knows.
    pub fn live_node_count(&self) -> usize {
        self.live_nodes.load(Ordering::Relaxed)
    }

    /// Lets workers know of tasks, one of each of these functions: those that wait here, or else those that wait elsewhere.
    fn announce_tasks(&self, owner: &SharedText, functions: &[SharedText]) {
        task_queue::announce_tasks(&*self.store, &self.hub.task_matcher, owner, functions);
    }

    fn store_time(&self) -> StoreTime {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_store_time(&self, time: StoreTime) {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    /// Learns now which names stand for what, rather than with its next turn.
    pub async fn refresh_functions(&self) -> Result<(), Error> {
        for named in self.functions.refresh_bindings(&*self.store).await? {
            task_queue::redirect_queued_tasks(&*self.store, &named).await?;
        }
        Ok(())
    }

    /// Learns, once for all shards, which names stand for what. Tells whether it could.
    async fn try_refresh_functions(&self) -> Result<bool, Error> {
        match self.refresh_functions().await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == StoreErrorKind::Fatal => Err(error),
            Err(error) => {
                tracing::warn!(%error, "the names of functions could not be read; they will be tried again");
                Ok(false)
            }
        }
    }

    async fn run_function_refresh(
        self: Arc<Self>,
        mut stop: watch::Receiver<bool>,
    ) -> Result<(), Error> {
        while self.wait_for_poll(&mut stop).await {
            self.try_refresh_functions().await?;
        }
        Ok(())
    }

    /// Waits for the next turn. Tells whether there is one.
    async fn wait_for_poll(&self, stop: &mut watch::Receiver<bool>) -> bool {
        tokio::select! {
            () = tokio::time::sleep(self.options.poll_interval) => !*stop.borrow(),
            changed = stop.changed() => changed.is_ok() && !*stop.borrow(),
        }
    }

    /// Works until `stop` says so. Then it begins nothing more, lets tasks under way end for a while, and gives its shards up. Fails when the store can no longer be used.
    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
        while !self.try_refresh_functions().await? {
            if !self.wait_for_poll(&mut stop).await {
                return Ok(());
            }
        }
        // Whoever comes after it need not wait for its leases, however it ends.
        let _presence = self.store.register_process(&self.holder.id);
        let nearby = Arc::clone(&self.hub);
        let _hearing = self.store.subscribe(Arc::new(move |said| {
            if let Some(word) = Notification::parse(said) {
                nearby.handle_notification(word);
            }
        }));
        let mut loops = JoinSet::new();
        loops.spawn(Arc::clone(&self).run_function_refresh(stop.clone()));
        loops.spawn(lease_reaper::run_lease_reaper(
            Arc::clone(&self),
            stop.clone(),
        ));
        loops.spawn(shard_coordinator::run_coordinator(Arc::clone(&self), stop));
        let mut outcome = Ok(());
        while let Some(ended) = loops.join_next().await {
            let ended = ended.unwrap_or_else(|panic| {
                Err(Error::Unavailable(format!("the node has stopped: {panic}")))
            });
            if ended.is_err() && outcome.is_ok() {
                outcome = ended;
                loops.abort_all();
            }
        }
        outcome
    }
}
