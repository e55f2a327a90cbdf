//! Rules for side effects (SE-1 … SE-4, H-4, H-5, H-6, H-13): an operation is scheduled, started,
//! possibly retried, and completed once.

use crate::journal_state::{InvokePhase, InvokeState};
use crate::{Event, JournalEvent, JournalState, PromiseId};

pub(crate) fn started_requires_scheduled(
    fold: &JournalState,
    event: &JournalEvent,
) -> Option<String> {
    let Event::InvokeStarted { promise_id, .. } = &event.event else {
        return None;
    };
    fold.invoke_state(promise_id)
        .is_none()
        .then(|| format!("{} was never scheduled", fold.display_id(promise_id)))
}

pub(crate) fn completed_requires_started(
    fold: &JournalState,
    event: &JournalEvent,
) -> Option<String> {
    let Event::InvokeCompleted { promise_id, .. } = &event.event else {
        return None;
    };
    let started = fold
        .invoke_state(promise_id)
        .is_some_and(|invoke| invoke.attempt > 0);
    (!started).then(|| format!("{} was never started", fold.display_id(promise_id)))
}

pub(crate) fn retrying_requires_started(
    fold: &JournalState,
    event: &JournalEvent,
) -> Option<String> {
    let Event::InvokeRetrying {
        promise_id,
        failed_attempt,
        ..
    } = &event.event
    else {
        return None;
    };
    let started = fold
        .invoke_state(promise_id)
        .map_or(0, |invoke| invoke.attempt);
    let known = (1..=started).contains(failed_attempt);
    (!known).then(|| {
        format!(
            "attempt {failed_attempt} of {} was never started",
            fold.display_id(promise_id)
        )
    })
}

pub(crate) fn no_events_after_completed(
    fold: &JournalState,
    event: &JournalEvent,
) -> Option<String> {
    let (promise_id, invoke) = subject_invoke(fold, event)?;
    match invoke.phase {
        InvokePhase::Completed { sequence, .. } => Some(format!(
            "{} completed at sequence {sequence} already",
            fold.display_id(promise_id)
        )),
        _ => None,
    }
}

pub(crate) fn attempts_count_up(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let Event::InvokeStarted {
        promise_id,
        attempt,
        ..
    } = &event.event
    else {
        return None;
    };
    let expected = u64::from(fold.invoke_state(promise_id)?.attempt) + 1;
    (u64::from(*attempt) != expected).then(|| {
        format!(
            "attempt {attempt} of {} where {expected} was expected",
            fold.display_id(promise_id)
        )
    })
}

pub(crate) fn started_follows_scheduled_or_retrying(
    fold: &JournalState,
    event: &JournalEvent,
) -> Option<String> {
    let Event::InvokeStarted { promise_id, .. } = &event.event else {
        return None;
    };
    let invoke = fold.invoke_state(promise_id)?;
    matches!(invoke.phase, InvokePhase::Started).then(|| {
        format!(
            "attempt {} of {} is still in flight",
            invoke.attempt,
            fold.display_id(promise_id)
        )
    })
}

pub(crate) fn outcome_of_attempt_in_flight(
    fold: &JournalState,
    event: &JournalEvent,
) -> Option<String> {
    let named = match &event.event {
        Event::InvokeCompleted { attempt, .. } => *attempt,
        Event::InvokeRetrying { failed_attempt, .. } => *failed_attempt,
        _ => return None,
    };
    let (promise_id, invoke) = subject_invoke(fold, event)?;
    let gives_up = matches!(&event.event, Event::InvokeCompleted { result: Err(_), .. });
    let (ends, what) = match invoke.phase {
        InvokePhase::Started => (Some(invoke.attempt), "is in flight"),
        InvokePhase::Retrying { .. } if gives_up => (Some(invoke.attempt), "failed last"),
        _ => (None, ""),
    };
    (ends != Some(named)).then(|| match ends {
        Some(attempt) => format!(
            "attempt {named} of {} where {attempt} {what}",
            fold.display_id(promise_id)
        ),
        None => format!("no attempt of {} is in flight", fold.display_id(promise_id)),
    })
}

pub(crate) fn retry_within_policy(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let Event::InvokeRetrying {
        promise_id,
        failed_attempt,
        error,
        ..
    } = &event.event
    else {
        return None;
    };
    let id = fold.display_id(promise_id);
    if !error.retryable {
        return Some(format!("{id} failed for good, its error is not retryable"));
    }
    let policy = fold.invoke_state(promise_id)?.policy.as_ref()?;
    (!policy.allows_retry(*failed_attempt, error)).then(|| match policy.max_attempts {
        Some(max) if *failed_attempt >= max.get() => format!("{id} has at most {max} attempts"),
        _ => format!("{id} is not retried after a failure of kind {}", error.kind),
    })
}

/// Returns the invocation that an InvokeStarted, InvokeCompleted or InvokeRetrying event describes.
fn subject_invoke<'a>(
    fold: &'a JournalState,
    event: &'a JournalEvent,
) -> Option<(&'a PromiseId, &'a InvokeState)> {
    match &event.event {
        Event::InvokeStarted { promise_id, .. }
        | Event::InvokeCompleted { promise_id, .. }
        | Event::InvokeRetrying { promise_id, .. } => {
            Some((promise_id, fold.invoke_state(promise_id)?))
        }
        _ => None,
    }
}
