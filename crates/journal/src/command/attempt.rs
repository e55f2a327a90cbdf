//! Commands for the attempts of an invocation: the next attempt number, its earliest start, and the
//! event that a failure leads to.

use super::command_violation;
use crate::{
    Event, EventKind, ExecutionError, InvokePerformer, InvokePhase, JournalState, PromiseId,
    RetryPolicy, Rule, RuleViolation,
};
use onward_base::{Payload, Timestamp};

/// The failure of an attempt: the error, the time, and the entropy for the jitter of its retry.
pub(super) struct InvokeAttemptFailure {
    pub(super) error: ExecutionError,
    pub(super) now: Timestamp,
    pub(super) entropy: u32,
}

pub(super) fn start_attempt(
    fold: &JournalState,
    promise_id: PromiseId,
    performer: InvokePerformer,
    now: Timestamp,
) -> Result<Event, RuleViolation> {
    if let Some(InvokePhase::Retrying { retry_at: at }) =
        fold.invoke_state(&promise_id).map(|invoke| invoke.phase)
        && now < at
    {
        let message = format!(
            "{} may be retried at {at}, it is {now}",
            fold.display_id(&promise_id)
        );
        return Err(command_violation(
            fold,
            Rule::T2,
            EventKind::InvokeStarted,
            message,
        ));
    }
    let attempt = current_attempt(fold, &promise_id).saturating_add(1);
    Ok(Event::InvokeStarted {
        promise_id,
        attempt,
        performer,
    })
}

pub(super) fn complete_attempt(
    fold: &JournalState,
    promise_id: PromiseId,
    result: Payload,
) -> Event {
    let attempt = current_attempt(fold, &promise_id);
    Event::InvokeCompleted {
        promise_id,
        result: Ok(result),
        attempt,
    }
}

pub(super) fn give_up_invoke(
    fold: &JournalState,
    promise_id: PromiseId,
    error: ExecutionError,
) -> Event {
    let attempt = current_attempt(fold, &promise_id);
    Event::InvokeCompleted {
        promise_id,
        result: Err(error),
        attempt,
    }
}

impl InvokeAttemptFailure {
    /// Returns InvokeRetrying if the retry policy allows another attempt; otherwise the failure is
    /// the result of the invocation.
    pub(super) fn into_event(self, fold: &JournalState, promise_id: PromiseId) -> Event {
        let Self {
            error,
            now,
            entropy,
        } = self;
        let attempt = current_attempt(fold, &promise_id);
        let default = RetryPolicy::default();
        let policy = fold
            .invoke_state(&promise_id)
            .and_then(|invoke| invoke.policy.as_deref())
            .unwrap_or(&default);
        if policy.allows_retry(attempt, &error) {
            let retry_at = policy.retry_at(attempt, now, entropy);
            Event::InvokeRetrying {
                promise_id,
                failed_attempt: attempt,
                error,
                retry_at,
            }
        } else {
            give_up_invoke(fold, promise_id, error)
        }
    }
}

/// Returns the last attempt that was started; 0 if none was, which the rules refuse.
fn current_attempt(fold: &JournalState, promise: &PromiseId) -> u32 {
    fold.invoke_state(promise)
        .map_or(0, |invoke| invoke.attempt)
}
