//! Rules for signals (CF-2 … CF-4, H-10, H-11): signals are buffered by name in the order of
//! delivery, and consumed once and in that order.

use crate::journal_state::{PayloadFingerprint, PromiseState};
use crate::{AwaitKind, Event, JournalEvent, JournalState, PromiseId};

pub(crate) fn delivery_ids_count_up(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let Event::SignalDelivered {
        signal_name,
        delivery_id,
        ..
    } = &event.event
    else {
        return None;
    };
    let expected = fold.signal_inbox(signal_name).delivered + 1;
    (*delivery_id != expected).then(|| {
        format!("delivery {delivery_id} of signal {signal_name:?} where {expected} was expected")
    })
}

pub(crate) fn received_requires_delivered(
    fold: &JournalState,
    event: &JournalEvent,
) -> Option<String> {
    let Event::SignalReceived {
        signal_name,
        payload,
        delivery_id,
        ..
    } = &event.event
    else {
        return None;
    };
    let inbox = fold.signal_inbox(signal_name);
    if *delivery_id == 0 || *delivery_id > inbox.delivered {
        return Some(format!(
            "signal {signal_name:?} has no delivery {delivery_id}"
        ));
    }
    let delivery = inbox.pending_delivery(*delivery_id)?;
    (delivery.payload != PayloadFingerprint::from_payload(payload)).then(|| {
        format!(
            "the payload differs from that of delivery {delivery_id} at sequence {}",
            delivery.sequence
        )
    })
}

pub(crate) fn consumed_once(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let Event::SignalReceived {
        signal_name,
        delivery_id,
        ..
    } = &event.event
    else {
        return None;
    };
    let consumed = 1..=fold.signal_inbox(signal_name).consumed;
    consumed
        .contains(delivery_id)
        .then(|| format!("delivery {delivery_id} of signal {signal_name:?} was consumed already"))
}

pub(crate) fn consumed_in_order(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let Event::SignalReceived {
        signal_name,
        delivery_id,
        ..
    } = &event.event
    else {
        return None;
    };
    let oldest = fold.signal_inbox(signal_name).consumed + 1;
    (*delivery_id > oldest).then(|| {
        format!(
            "delivery {delivery_id} of signal {signal_name:?} is taken before delivery {oldest}"
        )
    })
}

pub(crate) fn await_is_consistent(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    match &event.event {
        Event::ExecutionAwaiting {
            waiting_on,
            kind: AwaitKind::Signal(name),
        } => match waiting_on.as_slice() {
            [_] => None,
            [promise, timer] => deadline_is_pending(fold, promise, timer),
            ids => Some(format!(
                "a wait for signal {name:?} names {} promises instead of one, or one and a timer",
                ids.len()
            )),
        },
        Event::SignalReceived {
            promise_id,
            signal_name,
            ..
        } => {
            let waits_for_signal = fold
                .open_await()
                .is_some_and(|wait| matches!(wait.kind, AwaitKind::Signal(_)));
            if waits_for_signal && fold.waiting_on().next().as_ref() != Some(promise_id) {
                return Some(format!(
                    "{} is not the promise that the wait for a signal names",
                    fold.display_id(promise_id)
                ));
            }
            let Some(PromiseState::Signal { name, received }) = fold.promise_state(promise_id)
            else {
                return None;
            };
            ((waits_for_signal || !received) && name != signal_name).then(|| {
                format!(
                    "{} waits for signal {name:?}, not {signal_name:?}",
                    fold.display_id(promise_id)
                )
            })
        }
        _ => None,
    }
}

/// Checks that the second promise of a wait for a signal is a timer that has not fired, so that it
/// can still end the wait.
fn deadline_is_pending(
    fold: &JournalState,
    promise: &PromiseId,
    timer: &PromiseId,
) -> Option<String> {
    let id = fold.display_id(timer);
    match fold.promise_state(timer) {
        _ if promise == timer => Some(format!("{id} cannot be the signal and its deadline")),
        None => Some(format!("the deadline {id} was never allocated")),
        Some(PromiseState::Timer { fired: false, .. }) => None,
        Some(PromiseState::Timer { fired: true, .. }) => {
            Some(format!("the deadline {id} fired already"))
        }
        Some(_) => Some(format!("the deadline {id} is not a timer")),
    }
}
