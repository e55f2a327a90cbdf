//! A task as the function that performs it sees it.

use onward_api::task::{ClaimedTask, Delivery};
use tokio::sync::watch;

/// What is being performed.
#[derive(Debug, Clone)]
pub struct Task {
    pub(crate) claimed: std::sync::Arc<ClaimedTask>,
    pub(crate) is_lost: watch::Receiver<bool>,
}

impl Task {
    /// The execution that wants it.
    pub fn execution(&self) -> &str {
        &self.claimed.execution
    }

    /// The operation: the same for every attempt, and for nothing else. A key for effects that must not happen twice.
    pub fn promise(&self) -> &str {
        &self.claimed.promise
    }

    /// Which attempt; 1 is the first.
    pub fn attempt(&self) -> u32 {
        self.claimed.attempt
    }

    /// Whether it may be repeated.
    pub fn delivery(&self) -> Delivery {
        self.claimed.delivery
    }

    /// Waits until what comes of it is of no use: it was cancelled, took too long, or was given to another.
    pub async fn lost(&self) {
        let mut is_lost = self.is_lost.clone();
        // Who could say so being gone means that it is over.
        drop(is_lost.wait_for(|is_lost| *is_lost).await);
    }
}
