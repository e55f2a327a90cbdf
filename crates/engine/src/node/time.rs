//! The time of the store, as far as it can be known without asking: asking takes longer than a step.

use onward_journal::Timestamp;
use onward_store::{Error, Store};
use tokio::time::Instant;

use super::member::millis;

#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreTime {
    at: Timestamp,
    since: Instant,
}

impl StoreTime {
    /// Before anybody has asked.
    pub(super) fn unknown() -> Self {
        Self { at: Timestamp::MIN, since: Instant::now() }
    }

    pub(super) async fn ask(store: &dyn Store) -> Result<Self, Error> {
        Ok(Self { at: store.now().await?, since: Instant::now() })
    }

    pub(super) fn now(self) -> Timestamp {
        self.at.plus_ms(millis(self.since.elapsed()))
    }
}
