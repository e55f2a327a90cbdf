//! Options for opening a Postgres store, with their defaults.

use std::sync::Arc;
use std::time::Duration;

use onward_store::{StoreClock, StorePolicy};

/// Options for opening a Postgres store.
#[derive(Clone)]
pub struct Options {
    /// Limits and rules for what the store accepts.
    pub policy: StorePolicy,
    /// Clock for the timestamps of stored rows; default: the clock of the database, so that all
    /// nodes share one.
    pub clock: Option<Arc<dyn StoreClock>>,
    /// Number of writer connections; default: 1. Each performs its waiting commits in one
    /// transaction, so more writers make the transactions smaller: one is best until it is busy all
    /// the time.
    pub writers: usize,
    /// Number of writer connections for commits of more than 128 KiB, so that smaller commits do
    /// not wait for them; default: 2.
    pub bulk_writers: usize,
    /// Maximum number of reader connections; default: 8.
    pub readers: usize,
    /// Maximum number of commits queued for one writer; default: 1024. Further callers wait for a
    /// place in the queue.
    pub queue_capacity: usize,
    /// Timeout of any call; default: 30 s.
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
