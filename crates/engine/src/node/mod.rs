//! A node: it owns its share of the shards, runs their cores, and performs the actions that the
//! cores return.

mod attempt_runner;
pub(crate) mod change_topics;
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
mod write_health;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::SharedText;
use onward_execution::{Guest, GuestFunction};
use onward_journal::{ComponentDigest, InvokeResult};
use onward_store::shard_lease::LeaseHolder;
use onward_store::{Error, Store, StoreErrorKind};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

pub use attempt_runner::{NativeTask, NativeTaskRegistry};
pub use function_registry::FunctionRegistry;
pub use guest_log::log_guest_line;
pub use local_hub::LocalHub;
pub(crate) use local_hub::ShardHint;
pub(crate) use notification::Notification;

use self::store_time::StoreTime;
use self::write_health::WriteHealth;
use crate::client;
use crate::shard::trace_span::TraceSpan;
use crate::shard::{self, GuestEntry, GuestUnavailable, TaskAttempt};
use crate::task_queue;

/// Reason why a component cannot be loaded or deployed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ComponentLoadError {
    /// The code is not a component that this runtime can run.
    #[error("invalid component: {0}")]
    InvalidComponent(String),
    /// A pattern of a host that the component may send requests to is invalid.
    #[error("invalid host pattern: {0}")]
    InvalidHost(String),
    /// The component could not be loaded in time. It may be ready later.
    #[error("component is not ready: {0}")]
    TimedOut(String),
}

/// Runtime that executes the code of components.
#[async_trait]
pub trait ComponentRuntime: Send + Sync {
    /// Loads a component so that it can run. Returns its functions.
    async fn load_component(&self, code: &[u8]) -> Result<Vec<GuestFunction>, ComponentLoadError>;

    /// Returns the functions of a component that is about to be deployed. Fails if the code is not
    /// a component or a pattern in `hosts` is invalid.
    async fn deployable_functions(
        &self,
        code: &[u8],
        _hosts: &[String],
    ) -> Result<Vec<GuestFunction>, ComponentLoadError> {
        self.load_component(code).await
    }

    /// Whether a component is loaded and ready to run.
    fn is_loaded(&self, component: ComponentDigest) -> bool;

    /// Creates a guest that runs a workflow of a loaded component.
    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable>;

    /// Number of guests that can be created in addition to the existing ones.
    fn guest_capacity(&self) -> usize {
        usize::MAX
    }

    /// Performs a task of a component. Returns `None` if the component is not in memory.
    async fn perform_task(
        &self,
        component: ComponentDigest,
        attempt: &TaskAttempt,
    ) -> Option<InvokeResult>;

    /// Sends the HTTP request of an attempt and returns the response as its result.
    async fn send_http_request(&self, attempt: &TaskAttempt) -> InvokeResult;
}

/// Receives the spans of executions and exports them as traces.
pub trait TraceExporter: Send + Sync {
    /// Exports spans whose end is durably stored. Must not block.
    fn export_spans(&self, spans: Vec<TraceSpan>);
}

/// Role of a node in the distribution of shards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum NodeRole {
    /// The node owns its share of the shards.
    #[default]
    Member,
    /// The node owns shards only while there is no live member.
    Fallback,
}

/// Settings of a node.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Name of the node, for display; default: `node`.
    pub name: SharedText,
    /// Role of the node; default: [`NodeRole::Member`].
    pub role: NodeRole,
    /// Address on which the node listens, for operators and other nodes; `None` if it does not
    /// listen.
    pub address: Option<SharedText>,
    /// Duration of shard leases: how long other nodes wait before they take over from a dead node;
    /// default: 5 s.
    pub lease_duration: Duration,
    /// Interval at which the node polls the store for work that other processes have left; default:
    /// 200 ms.
    pub poll_interval: Duration,
    /// Time that tasks in flight have to end when a shard is released; tasks that take longer are
    /// aborted with it; default: 10 s.
    pub drain_timeout: Duration,
    /// Number of executions that a shard loads concurrently; further due executions wait; default:
    /// 1000.
    pub loading_max: usize,
    /// Settings of the shards of this node.
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

/// A process that owns shards of a store and runs their executions.
pub struct Node {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) functions: Arc<FunctionRegistry>,
    pub(crate) options: NodeOptions,
    pub(crate) hub: Arc<LocalHub>,
    pub(crate) in_memory: AtomicUsize,
    /// Identity in leases; the id is new for each `Node` value.
    holder: LeaseHolder,
    /// Number of live nodes as of the last rebalancing.
    live_nodes: AtomicUsize,
    time: Mutex<StoreTime>,
    write_health: WriteHealth,
    span_exporter: Option<Arc<dyn TraceExporter>>,
    runtimes: Option<GuestRuntimes>,
}

/// Tokio runtimes for guests, apart from the runtime of the node, so that no guest can delay
/// heartbeats, leases and requests.
#[derive(Debug, Clone)]
pub struct GuestRuntimes {
    /// Runs the loops of the shards, with the turns of workflows and the first moment of tasks.
    pub shards: Handle,
    /// Runs tasks.
    pub tasks: Handle,
}

impl Node {
    /// Creates a node; [`Node::run`] starts it.
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
            write_health: WriteHealth::default(),
            span_exporter: None,
            runtimes: None,
        }
    }

    /// Runs guests on runtimes of their own; default: on the runtime of the node.
    #[must_use]
    pub fn with_guest_runtimes(mut self, runtimes: GuestRuntimes) -> Self {
        self.runtimes = Some(runtimes);
        self
    }

    fn spawn_shard_loop<T: Send + 'static>(
        &self,
        shard_loop: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        match &self.runtimes {
            Some(runtimes) => runtimes.shards.spawn(shard_loop),
            None => tokio::spawn(shard_loop),
        }
    }

    fn spawn_guest_task(&self, task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
        match &self.runtimes {
            Some(runtimes) => runtimes.tasks.spawn(task),
            None => tokio::spawn(task),
        }
    }

    /// Makes the node emit spans of executions and send them to `traces`.
    #[must_use]
    pub fn with_span_exporter(mut self, traces: Arc<dyn TraceExporter>) -> Self {
        self.options.shard.emit_spans = true;
        self.span_exporter = Some(traces);
        self
    }

    /// Id of the node among the nodes of the store, new for each `Node` value.
    pub const fn id(&self) -> &SharedText {
        &self.holder.id
    }

    /// The hub through which clients of the same process notify the shards of this node and are
    /// notified by them.
    pub fn local_hub(&self) -> Arc<LocalHub> {
        Arc::clone(&self.hub)
    }

    /// Number of executions that this node has in memory. All other executions are in the store
    /// only.
    pub fn executions_in_memory(&self) -> usize {
        self.in_memory.load(Ordering::Relaxed)
    }

    /// Number of live nodes of the store, as far as this node knows.
    pub fn live_node_count(&self) -> usize {
        self.live_nodes.load(Ordering::Relaxed)
    }

    /// Fails if the store does not accept writes at present, as far as this node knows. Does not
    /// wait for the store.
    pub fn check_store_writable(&self) -> Result<(), Error> {
        self.write_health.check_writable()
    }

    /// Notifies one worker per function of a queued task: a worker that waits in this process,
    /// otherwise, through the store, workers in other processes.
    fn announce_tasks(&self, owner: &SharedText, functions: &[SharedText]) {
        task_queue::announce_tasks(&*self.store, &self.hub.task_matcher, owner, functions);
    }

    fn store_time(&self) -> StoreTime {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_store_time(&self, time: StoreTime) {
        *self.time.lock().unwrap_or_else(PoisonError::into_inner) = time;
    }

    /// Reads the bindings of function names to components now, instead of at the next poll.
    pub async fn refresh_functions(&self) -> Result<(), Error> {
        for named in self.functions.refresh_bindings(&*self.store).await? {
            task_queue::redirect_queued_tasks(&*self.store, &named).await?;
        }
        Ok(())
    }

    /// Reads the function bindings, once for all shards. Returns whether the store could be read;
    /// fails on a fatal store error.
    async fn try_refresh_functions(&self) -> Result<bool, Error> {
        match self.refresh_functions().await {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == StoreErrorKind::Fatal => Err(error),
            Err(error) => {
                tracing::warn!(%error, "function names could not be read; retrying");
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

    /// Waits for the next poll. Returns `false` if the node is to stop.
    async fn wait_for_poll(&self, stop: &mut watch::Receiver<bool>) -> bool {
        tokio::select! {
            () = tokio::time::sleep(self.options.poll_interval) => !*stop.borrow(),
            changed = stop.changed() => changed.is_ok() && !*stop.borrow(),
        }
    }

    /// Runs the node until `stop` is true. It then starts no more work, drains the tasks in flight
    /// within the drain timeout, and releases its shards. Fails if the store can no longer be used.
    pub async fn run(self: Arc<Self>, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
        while !self.try_refresh_functions().await? {
            if !self.wait_for_poll(&mut stop).await {
                return Ok(());
            }
        }
        // However this process ends, the process that takes over does not have to wait for its
        // leases to expire.
        let _presence = self.store.register_process(&self.holder.id);
        let hub = Arc::clone(&self.hub);
        let _subscription = self.store.subscribe(Arc::new(move |text| {
            if let Some(word) = Notification::parse(text) {
                hub.handle_notification(word);
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
