//! Estimates the store's time from the last reading and the elapsed local time. The clocks of nodes
//! need not agree.

use onward_base::Timestamp;
use onward_store::{Error, Store};
use tokio::time::Instant;

/// A clock that was set to the store's time once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EstimatedClock {
    store_time: Timestamp,
    read_at: Instant,
}

impl EstimatedClock {
    pub(crate) async fn read_from_store(store: &dyn Store) -> Result<Self, Error> {
        // Taken before the read: the latency of the reply makes the estimate later, never earlier.
        let read_at = Instant::now();
        Ok(Self {
            store_time: store.now().await?,
            read_at,
        })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.store_time
            .plus_ms(u64::try_from(self.read_at.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}
