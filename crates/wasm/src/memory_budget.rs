//! The memory that all guests of a process use together, shared by tenant. An instance that would
//! exceed it is not told so, which would make workflows depend on the machine: a workflow is
//! evicted and replayed once there is room, and an attempt of a task fails and is retried.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use onward_base::SharedText;
use thiserror::Error;
use tokio::sync::Notify;

/// Memory that a new instance needs at least, for the decision whether to start one.
const START_BYTES: u64 = 4 << 20;

/// The budget of a process, and what each tenant uses of it.
#[derive(Debug)]
pub(crate) struct MemoryBudget {
    bytes_max: u64,
    used: Mutex<UsedMemory>,
    freed: Notify,
}

#[derive(Debug, Default)]
struct UsedMemory {
    total: u64,
    by_tenant: BTreeMap<SharedText, u64>,
}

/// The budget has no room for the growth of an instance.
#[derive(Debug, Error)]
#[error("the guests of this process use all of the {bytes_max} bytes of memory that they may use")]
pub(crate) struct MemoryBudgetExhausted {
    bytes_max: u64,
}

impl MemoryBudget {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            used: Mutex::default(),
            freed: Notify::new(),
        }
    }

    /// Whether an instance of this tenant can start now.
    pub(crate) fn admits(&self, tenant: &str) -> bool {
        self.lock_used()
            .has_room(tenant, START_BYTES, self.bytes_max)
    }

    /// Whether so much is used that idle instances should be evicted.
    pub(crate) fn is_low(&self) -> bool {
        self.lock_used().total > shared_bytes(self.bytes_max)
    }

    /// Waits until an instance of this tenant can start.
    pub(crate) async fn wait_for_room(&self, tenant: &str) {
        loop {
            let freed = self.freed.notified();
            if self.admits(tenant) {
                return;
            }
            freed.await;
        }
    }

    fn lock_used(&self) -> MutexGuard<'_, UsedMemory> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl UsedMemory {
    /// A tenant may use its share, and more as long as a quarter of the budget stays free for the
    /// others.
    fn has_room(&self, tenant: &str, bytes: u64, bytes_max: u64) -> bool {
        let own = self.by_tenant.get(tenant).copied().unwrap_or(0);
        let is_new = u64::from(own == 0);
        let tenants = (self.by_tenant.len() as u64 + is_new).max(2);
        let limit = if own.saturating_add(bytes) <= bytes_max / tenants {
            bytes_max
        } else {
            shared_bytes(bytes_max)
        };
        self.total.saturating_add(bytes) <= limit
    }
}

/// The part of the budget that tenants above their share can use.
const fn shared_bytes(bytes_max: u64) -> u64 {
    bytes_max - bytes_max / 4
}

/// The memory of one instance, which returns to the budget when it is dropped.
#[derive(Debug)]
pub(crate) struct MemoryReservation {
    /// `None` if the memory is not counted.
    budget: Option<Arc<MemoryBudget>>,
    tenant: SharedText,
    bytes: u64,
}

impl MemoryReservation {
    pub(crate) fn new(budget: &Arc<MemoryBudget>, tenant: SharedText) -> Self {
        Self {
            budget: Some(Arc::clone(budget)),
            tenant,
            bytes: 0,
        }
    }

    /// A reservation that is not counted, for `describe`.
    pub(crate) fn uncounted() -> Self {
        Self {
            budget: None,
            tenant: SharedText::from(""),
            bytes: 0,
        }
    }

    /// Adds memory to the reservation.
    pub(crate) fn try_grow(&mut self, bytes: u64) -> Result<(), MemoryBudgetExhausted> {
        let Some(budget) = &self.budget else {
            return Ok(());
        };
        let mut used = budget.lock_used();
        if !used.has_room(&self.tenant, bytes, budget.bytes_max) {
            return Err(MemoryBudgetExhausted {
                bytes_max: budget.bytes_max,
            });
        }
        used.total += bytes;
        *used.by_tenant.entry(self.tenant.clone()).or_default() += bytes;
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for MemoryReservation {
    fn drop(&mut self) {
        let Some(budget) = &self.budget else {
            return;
        };
        let mut used = budget.lock_used();
        used.total = used.total.saturating_sub(self.bytes);
        if let Some(own) = used.by_tenant.get_mut(&self.tenant) {
            *own = own.saturating_sub(self.bytes);
            if *own == 0 {
                used.by_tenant.remove(&self.tenant);
            }
        }
        drop(used);
        budget.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn one_tenant_cannot_use_all_memory_and_others_get_their_share() {
        let budget = Arc::new(MemoryBudget::new(100 * MIB));
        let mut greedy = MemoryReservation::new(&budget, "greedy".into());
        for _ in 0..15 {
            greedy.try_grow(5 * MIB).unwrap();
        }
        assert!(greedy.try_grow(5 * MIB).is_err(), "a quarter stays free");
        assert!(!budget.admits("greedy") && budget.admits("other"));
        let mut other = MemoryReservation::new(&budget, "other".into());
        other.try_grow(25 * MIB).unwrap();
        assert!(budget.is_low() && !budget.admits("third"));
        drop(greedy);
        assert!(!budget.is_low() && budget.admits("greedy"));
        drop(other);
        assert!(budget.lock_used().by_tenant.is_empty());
        assert_eq!(budget.lock_used().total, 0);
    }

    #[tokio::test]
    async fn a_start_waits_until_memory_is_free() {
        let budget = Arc::new(MemoryBudget::new(8 * MIB));
        let mut used = MemoryReservation::new(&budget, "tenant".into());
        used.try_grow(4 * MIB).unwrap();
        let waiting = tokio::spawn({
            let budget = Arc::clone(&budget);
            async move { budget.wait_for_room("tenant").await }
        });
        tokio::task::yield_now().await;
        assert!(!waiting.is_finished());
        drop(used);
        waiting.await.unwrap();
    }
}
