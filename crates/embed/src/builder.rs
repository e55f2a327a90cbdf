//! How an engine is put together.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use onward_engine::client::{Client, Scope};
use onward_engine::node::{Library, Native, Node, Options, Role, Traces};
use onward_journal::ExecutionError;
use onward_store::{Policy, Store};
use onward_wasm::{Config, HostRule, HttpConfig};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::call::{Call, Typed};
use crate::engine::{Engine, EngineError};
use crate::wasm::cache_folder;
use crate::{Wasm, store};

/// An engine that is being put together.
#[must_use]
pub struct Builder {
    store: Place,
    scope: Option<Scope>,
    native: Native,
    has_workers: bool,
    traces: Option<Arc<dyn Traces>>,
    options: Options,
    http: HttpConfig,
    wasm: Config,
}

enum Place {
    Url(String),
    Open(Arc<dyn Store>),
}

impl Builder {
    fn at(store: Place) -> Self {
        let name = format!("pid {}", std::process::id());
        Self {
            store,
            scope: None,
            native: Native::default(),
            has_workers: false,
            traces: None,
            options: Options { name: name.as_str().into(), ..Options::default() },
            http: HttpConfig::default(),
            wasm: Config { cache_folder: cache_folder(), ..Config::default() },
        }
    }

    pub(crate) fn url(url: &str) -> Self {
        Self::at(Place::Url(url.to_owned()))
    }

    pub(crate) fn open_store(store: Arc<dyn Store>) -> Self {
        Self::at(Place::Open(store))
    }

    /// Whose functions and executions are meant; tenant, project and environment `default` unless told.
    pub fn scope(mut self, scope: Scope) -> Self {
        self.scope = Some(scope);
        self
    }

    /// A task that this process performs. Workflows invoke it by its name; every process that works on the store should
    /// have it. An error is retried as the workflow says, unless it is [permanent](ExecutionError::permanent).
    pub fn task<F, A, I, O>(mut self, name: &str, function: F) -> Self
    where
        F: Fn(I, Call) -> A + Send + Sync + 'static,
        A: Future<Output = Result<O, ExecutionError>> + Send + 'static,
        I: DeserializeOwned + Send + 'static,
        O: Serialize + Send + 'static,
    {
        self.native = self.native.task(name, Typed::new(function));
        self
    }

    /// Lets requests go to these hosts, where the component that sends them may do so too.
    pub fn allow_hosts(mut self, hosts: impl IntoIterator<Item = HostRule>) -> Self {
        self.http.hosts.extend(hosts);
        self
    }

    /// What other nodes and people call this one; `pid` and a number unless told.
    pub fn name(mut self, name: &str) -> Self {
        self.options.name = name.into();
        self
    }

    /// How long other nodes wait before they take over from this one when it is gone; five seconds unless told.
    pub const fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How long tasks under way may take when it stops or hands work to another node; ten seconds unless told. What takes longer is
    /// given up: it is performed again elsewhere, or in doubt where it may not be.
    pub const fn drain(mut self, drain: Duration) -> Self {
        self.options.drain = drain;
        self
    }

    /// Where this process listens, for people and other nodes.
    pub fn address(mut self, address: &str) -> Self {
        self.options.address = Some(address.into());
        self
    }

    /// Lets it work only as long as no other node takes a share of the work.
    pub const fn as_stopgap(mut self) -> Self {
        self.options.role = Role::Stopgap;
        self
    }

    /// Where compiled components are kept between starts: `ONWARD_CACHE`, or the user's cache, unless told.
    pub fn cache_folder(mut self, folder: Option<PathBuf>) -> Self {
        self.wasm.cache_folder = folder;
        self
    }

    /// How many components are in memory at a time; 128 unless told. The others are loaded when they are needed, which takes
    /// some milliseconds.
    pub const fn components_in_memory(mut self, max: usize) -> Self {
        self.wasm.loaded_max = max;
        self
    }

    /// Lets workers perform tasks that neither a component nor this process has: they wait until one asks for them.
    pub const fn workers(mut self) -> Self {
        self.has_workers = true;
        self
    }

    /// Follows executions as traces: one for each, with a span for each thing that it did or waited for.
    pub fn traces(mut self, traces: Arc<dyn Traces>) -> Self {
        self.traces = Some(traces);
        self
    }

    /// How the node works, for whoever wants to say more than the rest of this says.
    pub fn options(mut self, options: Options) -> Self {
        self.options = options;
        self
    }

    /// Opens the store and begins to work, in the background.
    pub async fn open(self) -> Result<Engine, EngineError> {
        let store = match self.store {
            Place::Open(store) => store,
            Place::Url(url) => store::open(&url, Policy::default()).await?,
        };
        let scope = match self.scope {
            Some(scope) => scope,
            None => default_scope()?,
        };
        let wasm = Arc::new(Wasm::new(self.wasm, self.http)?);
        let client = Client::new(Arc::clone(&store), scope);
        let code = Arc::clone(&wasm) as Arc<dyn onward_engine::node::Code>;
        let library = Library::new(code, self.native);
        let library = if self.has_workers { library.with_workers() } else { library };
        let mut node = Node::new(store, library, self.options);
        if let Some(traces) = self.traces {
            node = node.with_traces(traces);
        }
        Ok(Engine::run(client, wasm, Arc::new(node)))
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
