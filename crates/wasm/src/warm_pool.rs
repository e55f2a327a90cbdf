//! Instances of tasks that wait for their next call. Making one takes longer than most calls do.
//!
//! An instance is only used again for the same component and the same owner, so that nobody's input can be found in the memory
//! of somebody else's call. One that trapped, was dropped in the middle of a call, or has become large is not used again.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use onward_base::SharedText;
use onward_journal::ComponentDigest;
use wasmtime::Store;

use crate::bindings;
use crate::host::GuestState;

/// Memory of an instance that is worth keeping.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// An instance between two calls.
pub(crate) struct WarmInstance {
    pub(crate) store: Store<GuestState>,
    pub(crate) instance: bindings::Component,
    /// How often it was called.
    pub(crate) calls: u32,
}

/// Whose instance it is.
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

/// The instances that wait, the one used last at the end.
pub(crate) struct WarmPool {
    instances: Mutex<VecDeque<PooledInstance>>,
    slots_max: u32,
    calls_max: u32,
}

impl WarmPool {
    /// Room for so many places of the pool, and for so many calls of each instance.
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

    /// Keeps an instance for another call, if it is fit for one.
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
        // Whoever waits for the lock need not wait for memory to be given back.
        drop(dropped);
    }
}
