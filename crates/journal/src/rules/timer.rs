//! Timers (CF-1, H-1): set once, fired once.

use crate::fold::Promise;
use crate::{Event, Fold, JournalEvent};

pub(crate) fn fired_requires_scheduled(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::TimerFired { promise_id } = &event.event else {
        return None;
    };
    let scheduled = matches!(fold.promise(promise_id), Some(Promise::Timer { .. }));
    (!scheduled).then(|| format!("no timer {} was scheduled", fold.show(promise_id)))
}

pub(crate) fn fires_once(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::TimerFired { promise_id } = &event.event else {
        return None;
    };
    let fired = matches!(fold.promise(promise_id), Some(Promise::Timer { fired: true, .. }));
    fired.then(|| format!("timer {} fired already", fold.show(promise_id)))
}
