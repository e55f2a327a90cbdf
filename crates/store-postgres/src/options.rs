//! How a database is opened.

use std::sync::Arc;
use std::time::Duration;

use onward_store::{Clock, Policy};

/// How a database is opened.
#[derive(Clone)]
pub struct Options {
    /// What the store accepts.
    pub policy: Policy,
    /// What stamps what is stored; the clock of the database when absent, so that all nodes share one.
    pub clock: Option<Arc<dyn Clock>>,
    /// Connections that write. Each performs the commits that wait for it in one transaction, so more of them make the
    /// transactions smaller: one is best until it is busy all the time.
    pub writers: usize,
    /// Connections that write commits of more than 128 KiB, so that others need not wait for them.
    pub bulk_writers: usize,
    /// Connections that read, at most.
    pub readers: usize,
    /// Commits that may wait for one writer. Who comes later waits to wait.
    pub queue: usize,
    /// How long any call may take before it is given up.
    pub deadline: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            clock: None,
            writers: 1,
            bulk_writers: 2,
            readers: 8,
            queue: 1_024,
            deadline: Duration::from_secs(30),
        }
    }
}
