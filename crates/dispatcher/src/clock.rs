//! The time of the store, as far as it can be known without asking. Clocks of nodes need not agree.

use onward_journal::Timestamp;
use onward_store::{Error, Store};
use tokio::time::Instant;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    at: Timestamp,
    since: Instant,
}

impl Clock {
    pub(crate) async fn ask(store: &dyn Store) -> Result<Self, Error> {
        // What the answer takes makes it later, never earlier.
        let since = Instant::now();
        Ok(Self { at: store.now().await?, since })
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.at.plus_ms(u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX))
    }
}
