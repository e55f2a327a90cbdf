//! Rules for timers (CF-1, H-1): a timer is scheduled before it fires, and fires once.

use crate::journal_state::PromiseState;
use crate::{Event, JournalEvent, JournalState};

pub(crate) fn fired_requires_scheduled(
    fold: &JournalState,
    event: &JournalEvent,
) -> Option<String> {
    let Event::TimerFired { promise_id } = &event.event else {
        return None;
    };
    let scheduled = matches!(
        fold.promise_state(promise_id),
        Some(PromiseState::Timer { .. })
    );
    (!scheduled).then(|| format!("no timer {} was scheduled", fold.display_id(promise_id)))
}

pub(crate) fn fires_once(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let Event::TimerFired { promise_id } = &event.event else {
        return None;
    };
    let fired = matches!(
        fold.promise_state(promise_id),
        Some(PromiseState::Timer { fired: true, .. })
    );
    fired.then(|| format!("timer {} fired already", fold.display_id(promise_id)))
}
