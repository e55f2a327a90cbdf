//! Slots that are limited in total and for each key, so that no client takes what others need: the
//! connections of a listener by peer, event streams by token.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts taken slots. The map has at most one entry for each taken slot.
pub(crate) struct KeyedSlots<K: Eq + Hash> {
    max_total: usize,
    max_per_key: usize,
    taken: Mutex<TakenSlots<K>>,
}

struct TakenSlots<K> {
    total: usize,
    by_key: HashMap<K, usize>,
}

/// A taken slot; dropping it frees the slot.
pub(crate) struct KeyedSlot<K: Eq + Hash> {
    slots: Arc<KeyedSlots<K>>,
    key: K,
}

impl<K: Eq + Hash + Clone> KeyedSlots<K> {
    pub(crate) fn new(max_total: usize, max_per_key: usize) -> Arc<Self> {
        Arc::new(Self {
            max_total,
            max_per_key,
            taken: Mutex::new(TakenSlots {
                total: 0,
                by_key: HashMap::new(),
            }),
        })
    }

    /// Takes a slot; `None` if all slots, or all of this key, are taken.
    pub(crate) fn take_slot(self: &Arc<Self>, key: K) -> Option<KeyedSlot<K>> {
        let mut taken = self.lock_taken();
        let of_key = taken.by_key.get(&key).copied().unwrap_or(0);
        if taken.total >= self.max_total || of_key >= self.max_per_key {
            return None;
        }
        taken.total += 1;
        taken.by_key.insert(key.clone(), of_key + 1);
        drop(taken);
        Some(KeyedSlot {
            slots: Arc::clone(self),
            key,
        })
    }
}

impl<K: Eq + Hash> KeyedSlots<K> {
    fn lock_taken(&self) -> MutexGuard<'_, TakenSlots<K>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Eq + Hash> Drop for KeyedSlot<K> {
    fn drop(&mut self) {
        let mut taken = self.slots.lock_taken();
        taken.total -= 1;
        if let Some(count) = taken.by_key.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                taken.by_key.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::KeyedSlots;

    #[test]
    fn slots_are_limited_in_total_and_for_each_key() {
        let slots = KeyedSlots::new(3, 2);
        let first = [slots.take_slot("a"), slots.take_slot("a")];
        assert!(first.iter().all(Option::is_some));
        assert!(slots.take_slot("a").is_none(), "two slots for each key");
        let other = slots.take_slot("b");
        assert!(other.is_some());
        assert!(slots.take_slot("c").is_none(), "three slots in total");
        drop(first);
        assert!(slots.take_slot("a").is_some());
        drop(other);
        let taken = slots.lock_taken();
        assert!(taken.by_key.is_empty());
        assert_eq!(taken.total, 0);
    }
}
