//! Commands for signals: signals are buffered on arrival and consumed oldest first.

use super::command_violation;
use crate::{
    AwaitKind, Event, EventKind, Journal, JournalState, LifecycleAction, PromiseId, PromiseState,
    Rule, RuleViolation,
};
use onward_base::{BoundedName, Payload};

pub(super) fn deliver_signal(
    fold: &JournalState,
    signal_name: BoundedName,
    payload: Payload,
) -> Event {
    let delivery_id = fold.signal_inbox(&signal_name).delivered + 1;
    Event::SignalDelivered {
        signal_name,
        payload,
        delivery_id,
    }
}

/// Consumes a buffered signal immediately, or blocks; either way the operation takes the next
/// position in the call tree. The event names the timer only if the execution has to wait.
pub(super) fn await_signal(
    journal: &Journal,
    signal_name: BoundedName,
    timeout: Option<PromiseId>,
) -> Event {
    let promise_id = journal.journal_state().next_promise_id();
    match oldest_signal(journal, &signal_name) {
        Some((delivery_id, payload)) => Event::SignalReceived {
            promise_id,
            signal_name,
            payload,
            delivery_id,
        },
        None => {
            let waiting_on = std::iter::once(promise_id).chain(timeout).collect();
            Event::ExecutionAwaiting {
                waiting_on,
                kind: AwaitKind::Signal(signal_name),
            }
        }
    }
}

pub(super) fn receive_signal(
    journal: &Journal,
    promise_id: PromiseId,
) -> Result<Event, RuleViolation> {
    let fold = journal.journal_state();
    fold.check_action(LifecycleAction::Receive, EventKind::SignalReceived)?;
    let refuse = |rule, message| command_violation(fold, rule, EventKind::SignalReceived, message);
    let Some(PromiseState::Signal { name, .. }) = fold.promise_state(&promise_id) else {
        return Err(refuse(
            Rule::CF4,
            format!(
                "{} does not wait for a signal",
                fold.display_id(&promise_id)
            ),
        ));
    };
    let Some((delivery_id, payload)) = oldest_signal(journal, name) else {
        return Err(refuse(Rule::CF2, format!("no signal {name:?} is buffered")));
    };
    Ok(Event::SignalReceived {
        promise_id,
        signal_name: name.clone(),
        payload,
        delivery_id,
    })
}

fn oldest_signal(journal: &Journal, signal_name: &str) -> Option<(u64, Payload)> {
    let (delivery_id, delivery) = journal
        .journal_state()
        .signal_inbox(signal_name)
        .oldest_delivery()?;
    Some((delivery_id, journal.signal_at(delivery.sequence)?.clone()))
}
