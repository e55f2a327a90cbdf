//! Signals (CF-2 … CF-4, H-10, H-11): buffered per name in the order of delivery, consumed once and in that order.

use crate::fold::{Fingerprint, Promise};
use crate::{AwaitKind, Event, Fold, JournalEvent};

pub(crate) fn delivery_ids_count_up(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::SignalDelivered { signal_name, delivery_id, .. } = &event.event else {
        return None;
    };
    let expected = fold.inbox(signal_name).delivered + 1;
    (*delivery_id != expected)
        .then(|| format!("delivery {delivery_id} of signal {signal_name:?} where {expected} was expected"))
}

pub(crate) fn received_requires_delivered(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::SignalReceived { signal_name, payload, delivery_id, .. } = &event.event else {
        return None;
    };
    let inbox = fold.inbox(signal_name);
    if *delivery_id == 0 || *delivery_id > inbox.delivered {
        return Some(format!("signal {signal_name:?} has no delivery {delivery_id}"));
    }
    let delivery = inbox.waiting(*delivery_id)?;
    (delivery.payload != Fingerprint::of_payload(payload))
        .then(|| format!("the payload differs from that of delivery {delivery_id} at sequence {}", delivery.sequence))
}

pub(crate) fn consumed_once(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::SignalReceived { signal_name, delivery_id, .. } = &event.event else {
        return None;
    };
    let consumed = 1..=fold.inbox(signal_name).consumed;
    consumed
        .contains(delivery_id)
        .then(|| format!("delivery {delivery_id} of signal {signal_name:?} was consumed already"))
}

pub(crate) fn consumed_in_order(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::SignalReceived { signal_name, delivery_id, .. } = &event.event else {
        return None;
    };
    let oldest = fold.inbox(signal_name).consumed + 1;
    (*delivery_id > oldest)
        .then(|| format!("delivery {delivery_id} of signal {signal_name:?} is taken before delivery {oldest}"))
}

pub(crate) fn await_is_consistent(fold: &Fold, event: &JournalEvent) -> Option<String> {
    match &event.event {
        Event::ExecutionAwaiting { waiting_on, kind: AwaitKind::Signal(name) } => (waiting_on.len() != 1)
            .then(|| format!("a wait for signal {name:?} names {} promises instead of one", waiting_on.len())),
        Event::SignalReceived { promise_id, signal_name, .. } => {
            let waits_for_signal = fold.wait().is_some_and(|wait| matches!(wait.kind, AwaitKind::Signal(_)));
            if waits_for_signal && !fold.is_awaited(promise_id) {
                return Some(format!("{} is not the promise that the wait for a signal names", fold.show(promise_id)));
            }
            let Some(Promise::Signal { name, received }) = fold.promise(promise_id) else { return None };
            ((waits_for_signal || !received) && name != signal_name)
                .then(|| format!("{} waits for signal {name:?}, not {signal_name:?}", fold.show(promise_id)))
        }
        _ => None,
    }
}
