//! Timers: set from now, never fired early.

use super::refuse;
use crate::{Event, EventKind, Fold, Promise, PromiseId, Rule, Timestamp, Violation};

pub(super) fn sleep(fold: &Fold, duration_ms: u64, now: Timestamp) -> Event {
    Event::TimerScheduled { promise_id: fold.next_child(), duration_ms, fire_at: now.plus_ms(duration_ms) }
}

pub(super) fn fire(fold: &Fold, promise_id: PromiseId, now: Timestamp) -> Result<Event, Violation> {
    if let Some(Promise::Timer { fire_at, .. }) = fold.promise(&promise_id)
        && now < *fire_at
    {
        let message = format!("{} fires at {fire_at}, it is {now}", fold.show(&promise_id));
        return Err(refuse(fold, Rule::T1, EventKind::TimerFired, message));
    }
    Ok(Event::TimerFired { promise_id })
}
