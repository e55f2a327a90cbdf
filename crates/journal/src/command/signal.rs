//! Signals: buffered when they arrive, consumed oldest first.

use super::refuse;
use crate::{Act, AwaitKind, Event, EventKind, Fold, Journal, Name, Payload, Promise, PromiseId, Rule, Violation};

pub(super) fn deliver(fold: &Fold, signal_name: Name, payload: Payload) -> Event {
    let delivery_id = fold.inbox(&signal_name).delivered + 1;
    Event::SignalDelivered { signal_name, payload, delivery_id }
}

/// Consumes a buffered signal at once, or blocks; either way the operation takes the next place in the call tree. The timer
/// is named only where there is something to wait for.
pub(super) fn await_one(journal: &Journal, signal_name: Name, timeout: Option<PromiseId>) -> Event {
    let promise_id = journal.fold().next_child();
    match oldest(journal, &signal_name) {
        Some((delivery_id, payload)) => Event::SignalReceived { promise_id, signal_name, payload, delivery_id },
        None => {
            let waiting_on = std::iter::once(promise_id).chain(timeout).collect();
            Event::ExecutionAwaiting { waiting_on, kind: AwaitKind::Signal(signal_name) }
        }
    }
}

pub(super) fn receive(journal: &Journal, promise_id: PromiseId) -> Result<Event, Violation> {
    let fold = journal.fold();
    fold.guard(Act::Receive, EventKind::SignalReceived)?;
    let refuse = |rule, message| refuse(fold, rule, EventKind::SignalReceived, message);
    let Some(Promise::Signal { name, .. }) = fold.promise(&promise_id) else {
        return Err(refuse(Rule::CF4, format!("{} does not wait for a signal", fold.show(&promise_id))));
    };
    let Some((delivery_id, payload)) = oldest(journal, name) else {
        return Err(refuse(Rule::CF2, format!("no signal {name:?} is buffered")));
    };
    Ok(Event::SignalReceived { promise_id, signal_name: name.clone(), payload, delivery_id })
}

fn oldest(journal: &Journal, signal_name: &str) -> Option<(u64, Payload)> {
    let (delivery_id, delivery) = journal.fold().inbox(signal_name).oldest()?;
    Some((delivery_id, journal.signal_at(delivery.sequence)?.clone()))
}
