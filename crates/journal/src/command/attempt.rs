//! The attempts of an invocation: which number comes next, when it may start, and what a failure leads to.

use super::refuse;
use crate::{
    Event, EventKind, ExecutionError, Flight, Fold, Payload, Performer, PromiseId, RetryPolicy, Rule, Timestamp,
    Violation,
};

/// An attempt's failure: what, when, and the entropy that spreads its retry.
pub(super) struct Failure {
    pub(super) error: ExecutionError,
    pub(super) now: Timestamp,
    pub(super) entropy: u32,
}

pub(super) fn start(
    fold: &Fold,
    promise_id: PromiseId,
    performer: Performer,
    now: Timestamp,
) -> Result<Event, Violation> {
    if let Some(Flight::Retrying { at }) = fold.invoke(&promise_id).map(|invoke| invoke.flight)
        && now < at
    {
        let message = format!("{} may be retried at {at}, it is {now}", fold.show(&promise_id));
        return Err(refuse(fold, Rule::T2, EventKind::InvokeStarted, message));
    }
    let attempt = current(fold, &promise_id).saturating_add(1);
    Ok(Event::InvokeStarted { promise_id, attempt, performer })
}

pub(super) fn complete(fold: &Fold, promise_id: PromiseId, result: Payload) -> Event {
    let attempt = current(fold, &promise_id);
    Event::InvokeCompleted { promise_id, result: Ok(result), attempt }
}

pub(super) fn give_up(fold: &Fold, promise_id: PromiseId, error: ExecutionError) -> Event {
    let attempt = current(fold, &promise_id);
    Event::InvokeCompleted { promise_id, result: Err(error), attempt }
}

impl Failure {
    /// A failure that may be retried is; one that may not is the result.
    pub(super) fn of(self, fold: &Fold, promise_id: PromiseId) -> Event {
        let Self { error, now, entropy } = self;
        let attempt = current(fold, &promise_id);
        let default = RetryPolicy::default();
        let policy = fold.invoke(&promise_id).and_then(|invoke| invoke.policy.as_deref()).unwrap_or(&default);
        if policy.allows_retry(attempt, &error) {
            let retry_at = policy.retry_at(attempt, now, entropy);
            Event::InvokeRetrying { promise_id, failed_attempt: attempt, error, retry_at }
        } else {
            give_up(fold, promise_id, error)
        }
    }
}

/// The last attempt that was started; 0 if none was, which no rule lets pass.
fn current(fold: &Fold, promise: &PromiseId) -> u32 {
    fold.invoke(promise).map_or(0, |invoke| invoke.attempt)
}
