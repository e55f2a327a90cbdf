//! The inbox of one signal name: signals are delivered in order and consumed in the same order.

use std::collections::VecDeque;

use super::PayloadFingerprint;

/// The delivered and consumed signals of one name.
#[derive(Clone, Debug)]
pub struct SignalInbox {
    /// Number of delivered signals; also the id of the last delivery.
    pub delivered: u64,
    /// Number of consumed signals; also the id of the last consumed delivery.
    pub consumed: u64,
    pending: VecDeque<BufferedSignal>,
}

/// A signal that was delivered and not yet consumed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BufferedSignal {
    /// The sequence number of its SignalDelivered event.
    pub(crate) sequence: u64,
    pub(crate) payload: PayloadFingerprint,
}

impl SignalInbox {
    pub(crate) const EMPTY: Self = Self {
        delivered: 0,
        consumed: 0,
        pending: VecDeque::new(),
    };

    /// Returns the unconsumed delivery with this id.
    pub(crate) fn pending_delivery(&self, delivery_id: u64) -> Option<&BufferedSignal> {
        let index = delivery_id.checked_sub(self.consumed + 1)?;
        self.pending.get(usize::try_from(index).ok()?)
    }

    /// Returns the oldest unconsumed delivery and its id.
    pub(crate) fn oldest_delivery(&self) -> Option<(u64, &BufferedSignal)> {
        Some((self.consumed + 1, self.pending.front()?))
    }

    pub(super) fn push_delivery(&mut self, delivery: BufferedSignal) {
        self.delivered += 1;
        self.pending.push_back(delivery);
    }

    pub(super) fn consume_oldest(&mut self) {
        self.consumed += 1;
        self.pending.pop_front();
    }
}
