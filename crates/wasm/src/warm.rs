//! Instances of tasks that wait for their next call. Making one takes longer than most calls do.
//!
//! An instance is only used again for the same component and the same owner, so that nobody's input can be found in the memory
//! of somebody else's call. One that trapped, was dropped in the middle of a call, or has become large is not used again.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use onward_journal::{ComponentDigest, Text};
use wasmtime::Store;

use crate::bindings;
use crate::host::Data;

/// Memory of an instance that is worth keeping.
const KEPT_BYTES_MAX: usize = 2 << 20;

/// An instance between two calls.
pub(crate) struct Warm {
    pub(crate) store: Store<Data>,
    pub(crate) instance: bindings::Component,
    /// How often it was called.
    pub(crate) calls: u32,
}

/// Whose instance it is.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) component: ComponentDigest,
    pub(crate) owner: Text,
}

struct Kept {
    owner: Owner,
    weight: u32,
    warm: Warm,
}

/// The instances that wait, the one used last at the end.
pub(crate) struct WarmPool {
    kept: Mutex<VecDeque<Kept>>,
    places_max: u32,
    calls_max: u32,
}

impl WarmPool {
    /// Room for so many places of the pool, and for so many calls of each instance.
    pub(crate) fn new(places_max: u32, calls_max: u32) -> Self {
        Self { kept: Mutex::default(), places_max, calls_max }
    }

    pub(crate) fn take(&self, owner: &Owner) -> Option<Warm> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let place = kept.iter().rposition(|kept| kept.owner == *owner)?;
        kept.remove(place).map(|kept| kept.warm)
    }

    /// Keeps an instance for another call, if it is fit for one.
    pub(crate) fn put(&self, owner: Owner, weight: u32, mut warm: Warm) {
        warm.calls += 1;
        let is_small = warm.store.data().limiter.memory_bytes() <= KEPT_BYTES_MAX;
        if !is_small || warm.calls >= self.calls_max || weight > self.places_max {
            return;
        }
        warm.store.data_mut().forget();
        let mut dropped = Vec::new();
        {
            let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let mut places = weight + kept.iter().map(|kept| kept.weight).sum::<u32>();
            while places > self.places_max
                && let Some(oldest) = kept.pop_front()
            {
                places -= oldest.weight;
                dropped.push(oldest);
            }
            kept.push_back(Kept { owner, weight, warm });
        }
        // Whoever waits for the lock need not wait for memory to be given back.
        drop(dropped);
    }
}
