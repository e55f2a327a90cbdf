//! Rules for ids (ID-1, ID-2): ids are positions in this execution's call tree, allocated without
//! gaps.

use crate::{AwaitKind, Event, JournalEvent, JournalState, PromiseId};

pub(crate) fn own_tree(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let foreign = event
        .event
        .promise_ids()
        .find(|id| id.child_number_in(fold.execution_id()).is_none())?;
    Some(format!(
        "{} is not an operation of this execution",
        fold.display_id(foreign)
    ))
}

pub(crate) fn next_child(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let allocated = allocated_by(fold, &event.event)?;
    let next = fold.next_promise_id();
    (*allocated != next).then(|| {
        format!(
            "{} where {} was expected",
            fold.display_id(allocated),
            fold.display_id(&next)
        )
    })
}

/// Returns the id that the event allocates in the call tree; `None` if it allocates none.
pub(crate) fn allocated_by<'a>(fold: &JournalState, event: &'a Event) -> Option<&'a PromiseId> {
    match event {
        Event::InvokeScheduled { promise_id, .. }
        | Event::RandomGenerated { promise_id, .. }
        | Event::TimeRecorded { promise_id, .. }
        | Event::TimerScheduled { promise_id, .. } => Some(promise_id),
        Event::JoinSetCreated { join_set_id } => Some(&join_set_id.0),
        Event::ExecutionAwaiting {
            waiting_on,
            kind: AwaitKind::Signal(_),
        } => waiting_on.first(),
        Event::SignalReceived { promise_id, .. } if !fold.awaits_signal_as(promise_id) => {
            Some(promise_id)
        }
        _ => None,
    }
}
