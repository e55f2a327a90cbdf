//! The memory store as an implementation under test: the reference of the differential test.

use std::sync::Arc;

use async_trait::async_trait;

use super::{OpenedStore, StoreFactory, TamperAttempt};
use crate::memory::MemoryStore;
use crate::{Error, ManualClock, Store, StorePolicy};

/// Opens a [`MemoryStore`] for the suite.
#[derive(Debug, Clone, Copy)]
pub struct MemoryStoreFactory;

#[async_trait]
impl StoreFactory for MemoryStoreFactory {
    fn name(&self) -> &str {
        "memory"
    }

    async fn open_empty(
        &self,
        policy: StorePolicy,
        clock: Arc<ManualClock>,
    ) -> Result<Box<dyn OpenedStore>, Error> {
        Ok(Box::new(OpenedMemoryStore(Arc::new(MemoryStore::new(
            policy, clock,
        )))))
    }
}

struct OpenedMemoryStore(Arc<MemoryStore>);

#[async_trait]
impl OpenedStore for OpenedMemoryStore {
    fn store(&self) -> &(dyn Store + 'static) {
        &*self.0
    }

    async fn open_second_handle(&self) -> Result<Option<Arc<dyn Store>>, Error> {
        Ok(Some(Arc::<MemoryStore>::clone(&self.0)))
    }

    async fn try_tamper(&self, _: &TamperAttempt) -> Result<bool, Error> {
        Ok(false)
    }
}
