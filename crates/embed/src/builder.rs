//! How an engine is put together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onward_base::Scope;
use onward_engine::client::EngineClient;
use onward_engine::node::{
    FunctionRegistry, NativeTaskRegistry, Node, NodeOptions, NodeRole, TraceExporter,
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

/// An engine that is being put together.
#[must_use]
pub struct EngineBuilder {
    store: StoreLocation,
    scope: Option<Scope>,
    native: NativeTaskRegistry,
    has_workers: bool,
    span_exporter: Option<Arc<dyn TraceExporter>>,
    options: NodeOptions,
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

    /// Whose functions and executions are meant; tenant, project and environment `default` unless told.
    pub fn with_scope(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// A task that this process performs. Workflows invoke it by its name; every process that works on the store should
    /// have it. An error is retried as the workflow says, unless it is [permanent](ExecutionError::permanent).
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

    /// Lets requests go to these hosts, where the component that sends them may do so too.
    pub fn allow_hosts(mut self, hosts: impl IntoIterator<Item = HostRule>) -> Self {
        self.http.host_rules.extend(hosts);
        self
    }

    /// What other nodes and people call this one; `pid` and a number unless told.
    pub fn with_name(mut self, name: &str) -> Self {
        self.options.name = name.into();
        self
    }

    /// How long other nodes wait before they take over from this one when it is gone; five seconds unless told.
    pub const fn with_lease(mut self, lease: Duration) -> Self {
        self.options.lease_duration = lease;
        self
    }

    /// How long tasks under way may take when it stops or hands work to another node; ten seconds unless told. What takes longer is
    /// given up: it is performed again elsewhere, or in doubt where it may not be.
    pub const fn with_drain_timeout(mut self, drain: Duration) -> Self {
        self.options.drain_timeout = drain;
        self
    }

    /// Where this process listens, for people and other nodes.
    pub fn with_address(mut self, address: &str) -> Self {
        self.options.address = Some(address.into());
        self
    }

    /// Lets it work only as long as no other node takes a share of the work.
    pub const fn as_fallback(mut self) -> Self {
        self.options.role = NodeRole::Fallback;
        self
    }

    /// Where compiled components are kept between starts: `ONWARD_CACHE`, or the user's cache, unless told.
    pub fn with_cache_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.wasm.cache_folder = folder;
        self
    }

    /// How many components are in memory at a time; 128 unless told. The others are loaded when they are needed, which takes
    /// some milliseconds.
    pub const fn with_components_in_memory(mut self, max: usize) -> Self {
        self.wasm.loaded_max = max;
        self
    }

    /// Lets workers perform tasks that neither a component nor this process has: they wait until one asks for them.
    pub const fn with_workers(mut self) -> Self {
        self.has_workers = true;
        self
    }

    /// Follows executions as traces: one for each, with a span for each thing that it did or waited for.
    pub fn with_span_exporter(mut self, traces: Arc<dyn TraceExporter>) -> Self {
        self.span_exporter = Some(traces);
        self
    }

    /// How the node works, for whoever wants to say more than the rest of this says.
    pub fn with_node_options(mut self, options: NodeOptions) -> Self {
        self.options = options;
        self
    }

    /// Opens the store and begins to work, in the background.
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
