//! One of the tasks that a worker performs at a time, and what follows each.

use std::collections::BTreeMap;
use std::sync::Arc;

use onward_api::client::Client;
use onward_api::task::{ClaimedTask, Next};
use tokio::sync::watch;

use crate::perform::perform;
use crate::worker::Handler;

/// Where a task is performed, and the next one after it.
pub(crate) struct Slot {
    pub(crate) client: Client,
    pub(crate) handlers: Arc<BTreeMap<String, Handler>>,
    /// What it asks for when it is done with a task.
    pub(crate) next: Next,
    /// Whether the worker stops.
    pub(crate) is_over: watch::Receiver<bool>,
}

impl Slot {
    /// Performs a task, and whatever the server has for it then.
    pub(crate) async fn work(self, first: ClaimedTask) {
        let mut task = first;
        // Nothing is given that was not asked for.
        while let Some(handler) = self.handlers.get(&task.function) {
            let wanted = || (!*self.is_over.borrow()).then(|| self.next.clone());
            let Some(next) = perform(&self.client, handler, task, wanted).await else { return };
            if *self.is_over.borrow() {
                return give_back(&self.client, &next).await;
            }
            task = next;
        }
    }
}

/// Gives a task back that was not begun, so that nobody has to wait until its lease is over.
pub(crate) async fn give_back(client: &Client, task: &ClaimedTask) {
    if let Err(problem) = client.release(&task.task, &task.token).await {
        tracing::warn!(task = task.task, %problem, "a task could not be given back; its lease runs out");
    }
}
