//! One of the tasks that a worker performs at a time, and what follows each.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_api::client::ApiClient;
use onward_api::task::{NextTaskRequest, TaskClaim};
use tokio::sync::watch;

use crate::perform::perform_task;
use crate::worker::TaskHandler;

/// Where a task is performed, and the next one after it.
pub(crate) struct WorkerSlot {
    pub(crate) client: ApiClient,
    pub(crate) handlers: Arc<BTreeMap<String, TaskHandler>>,
    /// What it asks for when it is done with a task.
    pub(crate) next_request: NextTaskRequest,
    /// Whether the worker stops.
    pub(crate) is_stopping: watch::Receiver<bool>,
}

impl WorkerSlot {
    /// Performs a task, and whatever the server has for it then.
    pub(crate) async fn run_tasks(self, first: TaskClaim) {
        let mut task = first;
        // Nothing is given that was not asked for.
        while let Some(handler) = self.handlers.get(&task.function) {
            let wanted = || (!*self.is_stopping.borrow()).then(|| self.next_request.clone());
            let Some(next) = perform_task(&self.client, handler, task, wanted).await else {
                return;
            };
            if *self.is_stopping.borrow() {
                return release_task(&self.client, &next).await;
            }
            task = next;
        }
    }
}

/// Gives a task back that was not begun, so that nobody has to wait until its lease is over.
pub(crate) async fn release_task(client: &ApiClient, task: &TaskClaim) {
    if let Err(problem) = client.release_task(&task.task, &task.token).await {
        tracing::warn!(task = task.task, %problem, "a task could not be given back; its lease runs out");
    }
}
