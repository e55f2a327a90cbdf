//! Commands for timers: a timer is scheduled relative to the current time and never fires early.

use super::command_violation;
use crate::{Event, EventKind, JournalState, PromiseId, PromiseState, Rule, RuleViolation};
use onward_base::Timestamp;

pub(super) fn schedule_timer(fold: &JournalState, duration_ms: u64, now: Timestamp) -> Event {
    Event::TimerScheduled {
        promise_id: fold.next_promise_id(),
        duration_ms,
        fire_at: now.plus_ms(duration_ms),
    }
}

pub(super) fn fire_timer(
    fold: &JournalState,
    promise_id: PromiseId,
    now: Timestamp,
) -> Result<Event, RuleViolation> {
    if let Some(PromiseState::Timer { fire_at, .. }) = fold.promise_state(&promise_id)
        && now < *fire_at
    {
        let message = format!(
            "{} fires at {fire_at}, it is {now}",
            fold.display_id(&promise_id)
        );
        return Err(command_violation(
            fold,
            Rule::T1,
            EventKind::TimerFired,
            message,
        ));
    }
    Ok(Event::TimerFired { promise_id })
}
