//! A task as the function that performs it sees it.

use onward_api::task::{TaskClaim, TaskDelivery};
use tokio::sync::watch;

/// What is being performed.
#[derive(Debug, Clone)]
pub struct WorkerTaskContext {
    pub(crate) claim: std::sync::Arc<TaskClaim>,
    pub(crate) is_lost: watch::Receiver<bool>,
}

impl WorkerTaskContext {
    /// The execution that wants it.
    pub fn execution_id(&self) -> &str {
        &self.claim.execution
    }

    /// The operation: the same for every attempt, and for nothing else. A key for effects that must not happen twice.
    pub fn promise_id(&self) -> &str {
        &self.claim.promise
    }

    /// Which attempt; 1 is the first.
    pub fn attempt(&self) -> u32 {
        self.claim.attempt
    }

    /// Whether it may be repeated.
    pub fn delivery(&self) -> TaskDelivery {
        self.claim.delivery
    }

    /// Waits until what comes of it is of no use: it was cancelled, took too long, or was given to another.
    pub async fn wait_until_lost(&self) {
        let mut is_lost = self.is_lost.clone();
        // Who could say so being gone means that it is over.
        drop(is_lost.wait_for(|is_lost| *is_lost).await);
    }
}
