//! The store in memory as a subject: the yardstick of the differential test.

use std::sync::Arc;

use async_trait::async_trait;

use super::{Opened, Subject, Tampering};
use crate::memory::Memory;
use crate::{Error, ManualClock, Policy, Store};

/// [`Memory`] as a subject.
#[derive(Debug, Clone, Copy)]
pub struct OnMemory;

#[async_trait]
impl Subject for OnMemory {
    fn name(&self) -> &str {
        "memory"
    }

    async fn fresh(&self, policy: Policy, clock: Arc<ManualClock>) -> Result<Box<dyn Opened>, Error> {
        Ok(Box::new(InMemory(Arc::new(Memory::new(policy, clock)))))
    }
}

struct InMemory(Arc<Memory>);

#[async_trait]
impl Opened for InMemory {
    fn store(&self) -> &(dyn Store + 'static) {
        &*self.0
    }

    async fn another(&self) -> Result<Option<Arc<dyn Store>>, Error> {
        Ok(Some(Arc::<Memory>::clone(&self.0)))
    }

    async fn tamper(&self, _: &Tampering) -> Result<bool, Error> {
        Ok(false)
    }
}
