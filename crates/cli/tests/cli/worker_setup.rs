//! What the worker tests share: a server, a client, and a worker that runs during a test.

use std::time::Duration;

use onward_api::OnwardApi as _;
use onward_api::execution::StartExecutionRequest;
use onward_worker::{ApiClient, ClientConfig, Worker};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::sdk_clients::WorkerServer;

/// Timeout of each wait.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A server, and a client with the role admin.
pub(crate) struct WorkerScenario {
    pub(crate) served: WorkerServer,
    pub(crate) client: ApiClient,
}

/// A worker that runs during the test.
pub(crate) struct RunningWorker {
    pub(crate) stop: oneshot::Sender<()>,
    pub(crate) worker: JoinHandle<Result<(), onward_worker::Problem>>,
}

impl RunningWorker {
    pub(crate) async fn stop(self) {
        let was_running = self.stop.send(()).is_ok();
        tokio::time::timeout(TIMEOUT, self.worker)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(was_running, "the worker had stopped by itself");
    }
}

pub(crate) fn run(worker: Worker) -> RunningWorker {
    let (stop, stopped) = oneshot::channel();
    let worker = worker.with_poll_wait(Duration::from_millis(500));
    RunningWorker {
        stop,
        worker: tokio::spawn(worker.run(async { drop(stopped.await) })),
    }
}

impl WorkerScenario {
    pub(crate) fn start_server() -> Self {
        let served = WorkerServer::start();
        let client = ApiClient::new(&client_config(&served, &served.admin)).unwrap();
        Self { served, client }
    }

    pub(crate) fn worker(&self) -> Worker {
        Worker::new(&client_config(&self.served, &self.served.worker))
            .unwrap()
            .with_name("a test")
            .with_slots(4)
    }

    pub(crate) async fn start(&self, function: &str, input: Value) -> String {
        let start = StartExecutionRequest {
            function: function.to_owned(),
            input: as_json(&input),
            key: None,
            wait_ms: None,
        };
        self.client.start_execution(start).await.unwrap().execution
    }

    /// Runs a workflow that calls one task, with its input and options in one value.
    pub(crate) async fn relay(&self, call: Value) -> Result<Value, (String, String)> {
        let execution = self.start("relay", call).await;
        self.wait_for_result(&execution).await
    }

    pub(crate) async fn wait_for_result(&self, execution: &str) -> Result<Value, (String, String)> {
        let outcome = self
            .client
            .get_execution_result(execution, 60_000)
            .await
            .unwrap();
        match (outcome.result, outcome.error) {
            (Some(result), None) => Ok(serde_json::from_str(result.as_str()).unwrap()),
            (None, Some(error)) => Err((error.kind, error.message)),
            other => panic!("{other:?}"),
        }
    }
}

pub(crate) fn client_config(served: &WorkerServer, token: &str) -> ClientConfig {
    ClientConfig {
        url: served.server.url(),
        token: Some(token.to_owned()),
        scope: None,
    }
}

pub(crate) fn as_json(value: &Value) -> onward_api::RawJson {
    onward_api::RawJson::parse(&value.to_string()).unwrap()
}
