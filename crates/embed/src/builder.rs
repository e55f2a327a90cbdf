//! Builder that configures and opens an embedded engine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onward_base::Scope;
use onward_engine::client::EngineClient;
use onward_engine::node::{
    FunctionRegistry, GuestRuntimes, NativeTaskRegistry, Node, NodeOptions, NodeRole, TraceExporter,
};
use onward_journal::ExecutionError;
use onward_store::{Store, StorePolicy};
use onward_wasm::{Config, HostRule, HttpConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::engine::{Engine, EngineError};
use crate::task_context::{NativeTaskContext, TypedTask};
use crate::wasm::default_cache_folder;
use crate::{WasmComponentRuntime, store};

/// Configures an engine. [`open`](Self::open) starts it.
#[must_use]
pub struct EngineBuilder {
    store: StoreLocation,
    scope: Option<Scope>,
    native: NativeTaskRegistry,
    has_workers: bool,
    span_exporter: Option<Arc<dyn TraceExporter>>,
    options: NodeOptions,
    guest_runtimes: Option<GuestRuntimes>,
    http: HttpConfig,
    wasm: Config,
}

enum StoreLocation {
    Url(String),
    Open(Arc<dyn Store>),
}

impl EngineBuilder {
    fn new(store: StoreLocation) -> Self {
        let name = format!("pid {}", std::process::id());
        Self {
            store,
            scope: None,
            native: NativeTaskRegistry::default(),
            has_workers: false,
            span_exporter: None,
            options: NodeOptions {
                name: name.as_str().into(),
                ..NodeOptions::default()
            },
            guest_runtimes: None,
            http: HttpConfig::default(),
            wasm: Config {
                cache_folder: default_cache_folder(),
                ..Config::default()
            },
        }
    }

    pub(crate) fn from_url(url: &str) -> Self {
        Self::new(StoreLocation::Url(url.to_owned()))
    }

    pub(crate) fn from_store(store: Arc<dyn Store>) -> Self {
        Self::new(StoreLocation::Open(store))
    }

    /// Sets the scope of functions and executions; default: tenant, project and environment
    /// `default`.
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// Adds a task that this process performs. Workflows invoke it by its name; every process that
    /// works on the store should have it. An error is retried according to the workflow's retry
    /// policy, unless it is [permanent](ExecutionError::into_permanent).
    pub fn with_task<F, A, I, O>(mut self, name: &str, function: F) -> Self
    where
        F: Fn(I, NativeTaskContext) -> A + Send + Sync + 'static,
        A: Future<Output = Result<O, ExecutionError>> + Send + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
    {
        self.native = self.native.with_task(name, TypedTask::new(function));
        self
    }

    /// Allows requests to these hosts. The component that sends a request must be allowed to reach
    /// the host too.
    pub fn allow_hosts(mut self, hosts: impl IntoIterator<Item = HostRule>) -> Self {
        self.http.host_rules.extend(hosts);
        self
    }

    /// Sets the node name that other nodes and operators see; default: `pid` and the process id.
    pub fn with_name(mut self, name: &str) -> Self {
        self.options.name = name.into();
        self
    }

    /// Sets the duration of shard leases: how long other nodes wait before they take over from this
    /// node when it is dead; default: 5 s.
    pub const fn with_lease(mut self, lease: Duration) -> Self {
        self.options.lease_duration = lease;
        self
    }

    /// Sets the time that tasks in flight have to end when the engine stops or hands a shard to
    /// another node; default: 10 s. A task that takes longer is aborted: it is performed again
    /// elsewhere, or is in doubt if it must not be repeated.
    pub const fn with_drain_timeout(mut self, drain: Duration) -> Self {
        self.options.drain_timeout = drain;
        self
    }

    /// Sets the address on which this process listens, for operators and other nodes.
    pub fn with_address(mut self, address: &str) -> Self {
        self.options.address = Some(address.into());
        self
    }

    /// Makes the node a fallback: it owns shards only while there is no live member.
    pub const fn as_fallback(mut self) -> Self {
        self.options.role = NodeRole::Fallback;
        self
    }

    /// Sets the folder in which compiled components are cached between starts; `None` disables the
    /// cache; default: `ONWARD_CACHE`, or `onward` in the user's cache folder.
    pub fn with_cache_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.wasm.cache_folder = folder;
        self
    }

    /// Sets the maximum number of components in memory; default: 128. Other components are loaded
    /// when they are needed, which takes some milliseconds.
    pub const fn with_components_in_memory(mut self, max: usize) -> Self {
        self.wasm.loaded_max = max;
        self
    }

    /// Runs guests on tokio runtimes of their own, so that no guest can delay other work of this
    /// process; default: on the runtime that opens the engine.
    pub fn with_guest_runtimes(mut self, runtimes: GuestRuntimes) -> Self {
        self.guest_runtimes = Some(runtimes);
        self
    }

    /// Sets the memory in bytes that all guests may use together; default: 2 GiB. One tenant can
    /// use three quarters of it. Above it, idle workflows leave memory, further guests wait, and
    /// attempts of tasks fail and are retried.
    pub const fn with_guest_memory(mut self, bytes: u64) -> Self {
        self.wasm.guest_memory_bytes_max = bytes;
        self
    }

    /// Sets the maximum size in bytes of the code of a component; default: 10 MiB.
    pub const fn with_code_limit(mut self, bytes: usize) -> Self {
        self.wasm.code_bytes_max = bytes;
        self
    }

    /// Allows workers to perform tasks that neither a component nor this process implements: such
    /// tasks are queued until a worker claims them.
    pub const fn with_workers(mut self) -> Self {
        self.has_workers = true;
        self
    }

    /// Exports executions as traces: one trace per execution, with a span for each operation that
    /// it performed or waited for.
    pub fn with_span_exporter(mut self, traces: Arc<dyn TraceExporter>) -> Self {
        self.span_exporter = Some(traces);
        self
    }

    /// Replaces all options of the node, including those set by other methods of this builder.
    pub fn with_node_options(mut self, options: NodeOptions) -> Self {
        self.options = options;
        self
    }

    /// Opens the store and starts the node in the background. Requires a tokio runtime.
    pub async fn open(self) -> Result<Engine, EngineError> {
        let store = match self.store {
            StoreLocation::Open(store) => store,
            StoreLocation::Url(url) => store::open_store(&url, StorePolicy::default()).await?,
        };
        let scope = match self.scope {
            Some(scope) => scope,
            None => default_scope()?,
        };
        let wasm = Arc::new(WasmComponentRuntime::new(self.wasm, self.http)?);
        let client = EngineClient::new(Arc::clone(&store), scope);
        let code = Arc::clone(&wasm) as Arc<dyn onward_engine::node::ComponentRuntime>;
        let library = FunctionRegistry::new(code, self.native);
        let library = if self.has_workers {
            library.with_workers()
        } else {
            library
        };
        let mut node = Node::new(store, library, self.options);
        if let Some(traces) = self.span_exporter {
            node = node.with_span_exporter(traces);
        }
        if let Some(runtimes) = self.guest_runtimes {
            node = node.with_guest_runtimes(runtimes);
        }
        Ok(Engine::spawn_node(client, wasm, Arc::new(node)))
    }
}

fn default_scope() -> Result<Scope, EngineError> {
    let wrong = |error: &dyn std::error::Error| EngineError::Runtime(error.to_string());
    Ok(Scope {
        tenant: "default".parse().map_err(|error| wrong(&error))?,
        project: "default".parse().map_err(|error| wrong(&error))?,
        environment: "default".parse().map_err(|error| wrong(&error))?,
    })
}
