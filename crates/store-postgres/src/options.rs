//! How a database is opened.

use std::sync::Arc;
use std::time::Duration;

use onward_store::{StoreClock, StorePolicy};

/// How a database is opened.
#[derive(Clone)]
pub struct Options {
    /// What the store accepts.
    pub policy: StorePolicy,
    /// What stamps what is stored; the clock of the database when absent, so that all nodes share one.
    pub clock: Option<Arc<dyn StoreClock>>,
    /// Connections that write. Each performs the commits that wait for it in one transaction, so more of them make the
    /// transactions smaller: one is best until it is busy all the time.
    pub writers: usize,
    /// Connections that write commits of more than 128 KiB, so that others need not wait for them.
    pub bulk_writers: usize,
    /// Connections that read, at most.
    pub readers: usize,
    /// Commits that may wait for one writer. Who comes later waits to wait.
    pub queue_capacity: usize,
    /// How long any call may take before it is given up.
    pub call_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: StorePolicy::default(),
            clock: None,
            writers: 1,
            bulk_writers: 2,
            readers: 8,
            queue_capacity: 1_024,
            call_timeout: Duration::from_secs(30),
        }
    }
}
