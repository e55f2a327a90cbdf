//! The context of a task, as its handler sees it.

use onward_api::task::{TaskClaim, TaskDelivery};
use tokio::sync::watch;

/// The task that a handler is performing: its identity, its attempt, and whether its lease is lost.
#[derive(Debug, Clone)]
pub struct WorkerTaskContext {
    pub(crate) claim: std::sync::Arc<TaskClaim>,
    pub(crate) is_lost: watch::Receiver<bool>,
}

impl WorkerTaskContext {
    /// The id of the execution that the task belongs to.
    pub fn execution_id(&self) -> &str {
        &self.claim.execution
    }

    /// The promise id of the operation: equal for every attempt, different for every other
    /// operation. Use it as the idempotency key of side effects that must not happen twice.
    pub fn promise_id(&self) -> &str {
        &self.claim.promise
    }

    /// The number of this attempt; 1 is the first.
    pub fn attempt(&self) -> u32 {
        self.claim.attempt
    }

    /// Whether the task may be repeated if its outcome is unknown.
    pub fn delivery(&self) -> TaskDelivery {
        self.claim.delivery
    }

    /// Waits until the outcome of the task is no longer needed: it was cancelled, exceeded its
    /// timeout, or was given to another worker.
    pub async fn wait_until_lost(&self) {
        let mut is_lost = self.is_lost.clone();
        // An error means that the sender is dropped: the task is over.
        drop(is_lost.wait_for(|is_lost| *is_lost).await);
    }
}
