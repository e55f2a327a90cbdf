//! A running embedded engine and the operations on it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use onward_base::Payload;
use onward_engine::client::{ClientError, EngineClient, StartedExecution, TakeoverPolicy};
use onward_engine::node::Node;
use onward_journal::{ComponentDigest, ExecutionError, ExecutionId};
use onward_store::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::store::StoreOpenError;
use crate::{EngineBuilder, WasmComponentRuntime};

/// Interval at which a waiting call checks that the node is still running.
const NODE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Reason why an operation of the engine failed.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    /// The client or its store refused the operation.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The bytes are not a component that can be loaded.
    #[error(transparent)]
    Component(#[from] onward_wasm::LoadError),
    /// The WASM runtime, its HTTP client or the default scope could not be created.
    #[error("{0}")]
    Runtime(String),
    /// A value is invalid, or cannot be converted to or from JSON.
    #[error("{what} cannot be used: {reason}")]
    InvalidValue {
        /// The value that is invalid, such as `the input`.
        what: &'static str,
        /// Why the value is invalid.
        reason: String,
    },
    /// The node has stopped, usually because its store failed.
    #[error("the engine has stopped: {0}")]
    Stopped(String),
}

impl From<onward_store::Error> for EngineError {
    fn from(error: onward_store::Error) -> Self {
        Self::Client(error.into())
    }
}

/// A node in this process, with a client for its store.
pub struct Engine {
    client: EngineClient,
    wasm: Arc<WasmComponentRuntime>,
    node: Arc<Node>,
    stop: watch::Sender<bool>,
    node_task: JoinHandle<Result<(), onward_store::Error>>,
}

impl Engine {
    /// Configures an engine on the store with this URL: `sqlite:PATH`,
    /// `postgres://USER@HOST/DATABASE` or `memory:`.
    pub fn builder(url: &str) -> EngineBuilder {
        EngineBuilder::from_url(url)
    }

    /// Configures an engine on a store that is already open.
    pub fn on_store(store: Arc<dyn Store>) -> EngineBuilder {
        EngineBuilder::from_store(store)
    }

    pub(crate) fn spawn_node(
        client: EngineClient,
        wasm: Arc<WasmComponentRuntime>,
        node: Arc<Node>,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(Arc::clone(&node).run(stopped));
        Self {
            client: client.with_local_node(&node),
            wasm,
            node,
            stop,
            node_task: working,
        }
    }

    /// Returns the client of the store, for operations that the engine does not offer itself.
    pub const fn client(&self) -> &EngineClient {
        &self.client
    }

    /// Returns the component runtime, for a server that serves requests on behalf of this engine.
    pub fn component_runtime(&self) -> Arc<dyn onward_engine::node::ComponentRuntime> {
        Arc::clone(&self.wasm) as Arc<dyn onward_engine::node::ComponentRuntime>
    }

    /// Returns the node that runs in this process.
    pub const fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// Number of executions in the memory of this process; all others are only in the store.
    pub fn executions_in_memory(&self) -> usize {
        self.node.executions_in_memory()
    }

    /// Deploys a component. Its functions may send requests to `hosts`, if the process that runs
    /// them allows these hosts too. Fails if the component has names of functions of another
    /// component, unless it is a new build of that one and has all of its functions.
    pub async fn deploy_component(
        &self,
        code: &[u8],
        hosts: &[String],
    ) -> Result<ComponentDigest, EngineError> {
        self.deploy_with_policy(code, hosts, TakeoverPolicy::Refuse)
            .await
    }

    /// Deploys a component that may take over names of functions of other components.
    pub async fn deploy_component_replacing(
        &self,
        code: &[u8],
        hosts: &[String],
    ) -> Result<ComponentDigest, EngineError> {
        self.deploy_with_policy(code, hosts, TakeoverPolicy::Replace)
            .await
    }

    async fn deploy_with_policy(
        &self,
        code: &[u8],
        hosts: &[String],
        policy: TakeoverPolicy,
    ) -> Result<ComponentDigest, EngineError> {
        let functions = self.wasm.read_functions_async(code, hosts).await?;
        let receipt = self
            .client
            .deploy_component(code, &functions, hosts, policy)
            .await?;
        self.node.refresh_functions().await?;
        Ok(receipt.component)
    }

    /// Starts a workflow. If the idempotency key `key` has already started an execution, returns
    /// that execution instead.
    pub async fn start_execution(
        &self,
        function: &str,
        input: &impl Serialize,
        key: Option<&str>,
    ) -> Result<StartedExecution, EngineError> {
        Ok(self
            .client
            .start_execution(function, to_payload("the input", input)?, key)
            .await?)
    }

    /// Sends a signal to an execution. Sending it again with the same idempotency key has no
    /// effect.
    pub async fn send_signal(
        &self,
        to: ExecutionId,
        name: &str,
        content: &impl Serialize,
        key: Option<&str>,
    ) -> Result<(), EngineError> {
        let name = name.parse().map_err(|error| EngineError::InvalidValue {
            what: "the name",
            reason: format!("{error}"),
        })?;
        Ok(self
            .client
            .send_signal(to, name, to_payload("the signal", content)?, key)
            .await?)
    }

    /// Requests cancellation of an execution.
    pub async fn request_cancel(
        &self,
        execution: ExecutionId,
        reason: &str,
    ) -> Result<(), EngineError> {
        Ok(self.client.request_cancel(execution, reason).await?)
    }

    /// Waits until an execution ends and parses its result. The inner error is the failure of the
    /// execution.
    pub async fn wait_for_output<T: DeserializeOwned>(
        &self,
        execution: ExecutionId,
    ) -> Result<Result<T, ExecutionError>, EngineError> {
        match self.wait_for_result(execution).await? {
            Err(error) => Ok(Err(error)),
            Ok(payload) => serde_json::from_str(payload.as_str())
                .map(Ok)
                .map_err(|error| EngineError::InvalidValue {
                    what: "the result",
                    reason: error.to_string(),
                }),
        }
    }

    /// Waits until an execution ends, on whichever node it runs. Fails with
    /// [`EngineError::Stopped`] if the node of this process stops.
    pub async fn wait_for_result(
        &self,
        execution: ExecutionId,
    ) -> Result<Result<Payload, ExecutionError>, EngineError> {
        let mut over = pin!(self.client.wait_for_result(execution));
        loop {
            // Without a node in this process, the execution would continue on another node or not
            // at all.
            if let Ok(outcome) = tokio::time::timeout(NODE_CHECK_INTERVAL, &mut over).await {
                return Ok(outcome?);
            }
            if self.node_task.is_finished() {
                return Err(EngineError::Stopped("its store failed".to_owned()));
            }
        }
    }

    /// Waits until the node stops, which happens when its store has failed, and returns the reason.
    pub async fn wait_for_failure(&mut self) -> EngineError {
        match (&mut self.node_task).await {
            Ok(Ok(())) => EngineError::Stopped("it ended without a request to stop".to_owned()),
            Ok(Err(error)) => error.into(),
            Err(panic) => EngineError::Stopped(panic.to_string()),
        }
    }

    /// Stops gracefully: starts no more work, drains tasks in flight up to the drain timeout, and
    /// releases its shards so that other nodes take over immediately.
    pub async fn stop(self) -> Result<(), EngineError> {
        self.stop.send_replace(true);
        match self.node_task.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(error.into()),
            Err(panic) => Err(EngineError::Stopped(panic.to_string())),
        }
    }
}

fn to_payload(what: &'static str, value: &impl Serialize) -> Result<Payload, EngineError> {
    Payload::from_value(value).map_err(|error| EngineError::InvalidValue {
        what,
        reason: error.to_string(),
    })
}
