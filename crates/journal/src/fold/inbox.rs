//! The buffer of one signal name: delivered in order, consumed in order.

use std::collections::VecDeque;

use super::Fingerprint;

/// The signals of one name.
#[derive(Clone, Debug)]
pub struct Inbox {
    /// How many were delivered; also the id of the last delivery.
    pub delivered: u64,
    /// How many were consumed; also the id of the last consumed delivery.
    pub consumed: u64,
    waiting: VecDeque<Delivery>,
}

/// A signal that nobody consumed yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    /// The sequence number of its SignalDelivered.
    pub(crate) sequence: u64,
    pub(crate) payload: Fingerprint,
}

impl Inbox {
    pub(crate) const EMPTY: Self = Self { delivered: 0, consumed: 0, waiting: VecDeque::new() };

    /// The unconsumed delivery with this id.
    pub(crate) fn waiting(&self, delivery_id: u64) -> Option<&Delivery> {
        let index = delivery_id.checked_sub(self.consumed + 1)?;
        self.waiting.get(usize::try_from(index).ok()?)
    }

    /// The oldest unconsumed delivery and its id.
    pub(crate) fn oldest(&self) -> Option<(u64, &Delivery)> {
        Some((self.consumed + 1, self.waiting.front()?))
    }

    pub(super) fn deliver(&mut self, delivery: Delivery) {
        self.delivered += 1;
        self.waiting.push_back(delivery);
    }

    pub(super) fn consume(&mut self) {
        self.consumed += 1;
        self.waiting.pop_front();
    }
}
