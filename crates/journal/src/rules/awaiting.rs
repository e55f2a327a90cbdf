//! Rules for awaits (H-7, H-8, H-9): which promises can be awaited. A wait for a signal is
//! different: it allocates its own promise, and a timer may follow (CF-4, ID-2).

use crate::journal_state::PromiseState;
use crate::{AwaitKind, Event, JournalEvent, JournalState, PromiseId};

/// Maximum number of promises that one await names. The event lists all of them.
pub const AWAITED_MAX: usize = 1 << 16;

pub(crate) fn ids_distinct(_: &JournalState, event: &JournalEvent) -> Option<String> {
    let Event::ExecutionAwaiting { waiting_on, kind } = &event.event else {
        return None;
    };
    if waiting_on.is_empty() {
        return Some("the await names no promise".to_owned());
    }
    if matches!(kind, AwaitKind::Single) && waiting_on.len() > 1 {
        return Some(format!(
            "a single await names {} promises",
            waiting_on.len()
        ));
    }
    if waiting_on.len() > AWAITED_MAX {
        return Some(format!(
            "the await names {} promises, at most {AWAITED_MAX} are allowed",
            waiting_on.len()
        ));
    }
    (!is_distinct(waiting_on)).then(|| "the await names a promise twice".to_owned())
}

fn is_distinct(ids: &[PromiseId]) -> bool {
    let mut sorted: Vec<&PromiseId> = ids.iter().collect();
    sorted.sort_unstable();
    sorted.windows(2).all(|pair| pair[0] != pair[1])
}

pub(crate) fn ids_exist(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let unknown = awaited_promises(event)?
        .iter()
        .find(|id| fold.promise_state(id).is_none())?;
    Some(format!("{} was never allocated", fold.display_id(unknown)))
}

pub(crate) fn ids_can_complete(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let wrong = awaited_promises(event)?.iter().find(|id| {
        matches!(
            fold.promise_state(id),
            Some(PromiseState::Value | PromiseState::JoinSet(_))
        )
    })?;
    Some(format!(
        "{} is neither an invoke nor a timer nor a signal",
        fold.display_id(wrong)
    ))
}

/// Returns the promises that the event awaits; `None` for a wait for a signal and for any other
/// event.
fn awaited_promises(event: &JournalEvent) -> Option<&[PromiseId]> {
    match &event.event {
        Event::ExecutionAwaiting {
            kind: AwaitKind::Signal(_),
            ..
        } => None,
        Event::ExecutionAwaiting { waiting_on, .. } => Some(waiting_on),
        _ => None,
    }
}
