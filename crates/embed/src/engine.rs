//! An engine at work, and what can be asked of it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use onward_base::Payload;
use onward_engine::client::{ClientError, EngineClient, StartedExecution};
use onward_engine::node::Node;
use onward_journal::{ComponentDigest, ExecutionError, ExecutionId};
use onward_store::Store;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::store::StoreOpenError;
use crate::{EngineBuilder, WasmComponentRuntime};

/// How often to look whether the node still works.
const NODE_CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Why an engine could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The store could not be opened.
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    /// The store, or what is in it, says no.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// It is not a component that can be run.
    #[error(transparent)]
    Component(#[from] onward_wasm::LoadError),
    /// The runtime could not be started.
    #[error("{0}")]
    Runtime(String),
    /// Something is not what was expected, or cannot be written down.
    #[error("{what} cannot be used: {reason}")]
    InvalidValue {
        /// What it is.
        what: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// It no longer works: its store failed.
    #[error("the engine has stopped: {0}")]
    Stopped(String),
}

impl From<onward_store::Error> for EngineError {
    fn from(error: onward_store::Error) -> Self {
        Self::Client(error.into())
    }
}

/// A node in this process, and access to the store that it works on.
pub struct Engine {
    client: EngineClient,
    wasm: Arc<WasmComponentRuntime>,
    node: Arc<Node>,
    stop: watch::Sender<bool>,
    node_task: JoinHandle<Result<(), onward_store::Error>>,
}

impl Engine {
    /// An engine on the store of this URL: `sqlite:PATH`, `postgres://USER@HOST/DATABASE` or `memory:`.
    pub fn builder(url: &str) -> EngineBuilder {
        EngineBuilder::from_url(url)
    }

    /// An engine on a store that is open.
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

    /// Access to the store, for what this has no words for.
    pub const fn client(&self) -> &EngineClient {
        &self.client
    }

    /// The runtime of components, for whoever answers on behalf of this engine.
    pub fn component_runtime(&self) -> Arc<dyn onward_engine::node::ComponentRuntime> {
        Arc::clone(&self.wasm) as Arc<dyn onward_engine::node::ComponentRuntime>
    }

    /// The node.
    pub const fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// How many executions are in memory here; the others wait in the store alone.
    pub fn executions_in_memory(&self) -> usize {
        self.node.executions_in_memory()
    }

    /// Deploys a component. Its functions may send requests to `hosts`, where the process that runs them allows it too.
    pub async fn deploy_component(
        &self,
        code: &[u8],
        hosts: &[String],
    ) -> Result<ComponentDigest, EngineError> {
        let functions = self.wasm.read_functions(code, hosts)?;
        let digest = self
            .client
            .deploy_component(code, &functions, hosts)
            .await?;
        self.node.refresh_functions().await?;
        Ok(digest)
    }

    /// Starts a workflow, unless `key` has started one already.
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

    /// Sends a signal. Sending it again under the same key does nothing.
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

    /// Asks an execution to stop.
    pub async fn request_cancel(
        &self,
        execution: ExecutionId,
        reason: &str,
    ) -> Result<(), EngineError> {
        Ok(self.client.request_cancel(execution, reason).await?)
    }

    /// Waits until an execution is over, and reads what it ended with.
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

    /// Waits until an execution is over, wherever it runs.
    pub async fn wait_for_result(
        &self,
        execution: ExecutionId,
    ) -> Result<Result<Payload, ExecutionError>, EngineError> {
        let mut over = pin!(self.client.wait_for_result(execution));
        loop {
            // Without a node of this process it would go on elsewhere, or never.
            if let Ok(outcome) = tokio::time::timeout(NODE_CHECK_INTERVAL, &mut over).await {
                return Ok(outcome?);
            }
            if self.node_task.is_finished() {
                return Err(EngineError::Stopped(
                    "its store can no longer be used".to_owned(),
                ));
            }
        }
    }

    /// Waits until it no longer works, which is when its store has failed.
    pub async fn wait_for_failure(&mut self) -> EngineError {
        match (&mut self.node_task).await {
            Ok(Ok(())) => EngineError::Stopped("nobody asked for it".to_owned()),
            Ok(Err(error)) => error.into(),
            Err(panic) => EngineError::Stopped(panic.to_string()),
        }
    }

    /// Begins nothing more, lets tasks under way end for a while, and gives its shards up so that others take over at once.
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
