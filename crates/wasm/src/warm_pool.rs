//! Warm instances: instances of tasks that wait for their next call. Instantiation takes longer
//! than most calls.
//!
//! An instance is reused only for the same component and the same owner, so that no owner's input
//! can be found in the memory of another owner's call. An instance that trapped, was dropped during
//! a call, or has grown too large is not reused.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use onward_base::SharedText;
use onward_journal::ComponentDigest;
use wasmtime::Store;

use crate::bindings;
use crate::host::GuestState;

/// Maximum linear memory in bytes of an instance that is kept for reuse.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// An instance between two calls of a task.
pub(crate) struct WarmInstance {
    pub(crate) store: Store<GuestState>,
    pub(crate) instance: bindings::Component,
    /// Number of calls that the instance has served.
    pub(crate) calls: u32,
}

/// The component and the owner to which an instance is bound.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct InstanceOwner {
    pub(crate) component: ComponentDigest,
    pub(crate) owner: SharedText,
}

struct PooledInstance {
    owner: InstanceOwner,
    weight: u32,
    warm: WarmInstance,
}

/// The instances that wait for a call, most recently used last.
pub(crate) struct WarmPool {
    instances: Mutex<VecDeque<PooledInstance>>,
    slots_max: u32,
    calls_max: u32,
}

impl WarmPool {
    /// Creates a pool that occupies at most `places_max` slots and discards an instance after
    /// `calls_max` calls.
    pub(crate) fn new(places_max: u32, calls_max: u32) -> Self {
        Self {
            instances: Mutex::default(),
            slots_max: places_max,
            calls_max,
        }
    }

    pub(crate) fn take_instance(&self, owner: &InstanceOwner) -> Option<WarmInstance> {
        let mut kept = self
            .instances
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().rposition(|kept| kept.owner == *owner)?;
        kept.remove(place).map(|kept| kept.warm)
    }

    /// Drops all instances, because their memory is needed.
    pub(crate) fn clear(&self) {
        let mut kept = self
            .instances
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let dropped = std::mem::take(&mut *kept);
        drop(kept);
        drop(dropped);
    }

    /// Keeps an instance for another call if it is small enough and has calls left. Drops the least
    /// recently used instances to make room.
    pub(crate) fn keep_instance(&self, owner: InstanceOwner, weight: u32, mut warm: WarmInstance) {
        warm.calls += 1;
        let is_small = warm.store.data().limiter.memory_bytes() <= KEPT_BYTES_MAX;
        if !is_small || warm.calls >= self.calls_max || weight > self.slots_max {
            return;
        }
        warm.store.data_mut().clear_call();
        let mut dropped = Vec::new();
        {
            let mut kept = self
                .instances
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let mut places = weight + kept.iter().map(|kept| kept.weight).sum::<u32>();
            while places > self.slots_max
                && let Some(oldest) = kept.pop_front()
            {
                places -= oldest.weight;
                dropped.push(oldest);
            }
            kept.push_back(PooledInstance {
                owner,
                weight,
                warm,
            });
        }
        // Dropped after the lock is released, so that other threads do not wait while the memory is
        // freed.
        drop(dropped);
    }
}
