//! A worker slot: performs one task at a time, and then the tasks that the server returns as next.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_api::client::ApiClient;
use onward_api::task::{NextTaskRequest, TaskClaim};
use tokio::sync::watch;

use crate::perform::perform_task;
use crate::worker::TaskHandler;

/// Performs tasks one after another; a worker has one slot for each task in progress.
pub(crate) struct WorkerSlot {
    pub(crate) client: ApiClient,
    pub(crate) handlers: Arc<BTreeMap<String, TaskHandler>>,
    /// The claim that the slot sends together with the end of each task.
    pub(crate) next_request: NextTaskRequest,
    /// Whether the worker is stopping; a stopping slot claims no next task.
    pub(crate) is_stopping: watch::Receiver<bool>,
}

impl WorkerSlot {
    /// Performs a task, and then each next task that the server returns, until there is none.
    pub(crate) async fn run_tasks(self, first: TaskClaim) {
        let mut task = first;
        // The server returns only tasks of functions that the worker asked for, so there is a
        // handler.
        while let Some(handler) = self.handlers.get(&task.function) {
            let next_request = || (!*self.is_stopping.borrow()).then(|| self.next_request.clone());
            let Some(next) = perform_task(&self.client, handler, task, next_request).await else {
                return;
            };
            if *self.is_stopping.borrow() {
                return release_task(&self.client, &next).await;
            }
            task = next;
        }
    }
}

/// Releases a task that was not started, so that other workers need not wait for its lease to
/// expire.
pub(crate) async fn release_task(client: &ApiClient, task: &TaskClaim) {
    if let Err(problem) = client.release_task(&task.task, &task.token).await {
        tracing::warn!(task = task.task, %problem, "task could not be released: it stays claimed until its lease expires");
    }
}
