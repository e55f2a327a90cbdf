//! Estimates the current time of the store without asking it, because a query takes longer than a
//! step.

use onward_base::Timestamp;
use onward_store::{Error, Store};
use tokio::time::Instant;

use super::membership::duration_millis;

#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreTime {
    store_now: Timestamp,
    read_at: Instant,
}

impl StoreTime {
    /// Placeholder before the first query of the store.
    pub(super) fn new_unknown() -> Self {
        Self {
            store_now: Timestamp::MIN,
            read_at: Instant::now(),
        }
    }

    pub(super) async fn read_from_store(store: &dyn Store) -> Result<Self, Error> {
        Ok(Self {
            store_now: store.now().await?,
            read_at: Instant::now(),
        })
    }

    pub(super) fn now(self) -> Timestamp {
        self.store_now
            .plus_ms(duration_millis(self.read_at.elapsed()))
    }
}
