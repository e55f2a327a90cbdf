//! Side effects (SE-1 … SE-4, H-4, H-5, H-6, H-13): an operation is scheduled, started, perhaps retried, completed once.

use crate::fold::{Flight, Invoke};
use crate::{Event, Fold, JournalEvent, PromiseId};

pub(crate) fn started_requires_scheduled(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::InvokeStarted { promise_id, .. } = &event.event else {
        return None;
    };
    fold.invoke(promise_id).is_none().then(|| format!("{} was never scheduled", fold.show(promise_id)))
}

pub(crate) fn completed_requires_started(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::InvokeCompleted { promise_id, .. } = &event.event else {
        return None;
    };
    let started = fold.invoke(promise_id).is_some_and(|invoke| invoke.attempt > 0);
    (!started).then(|| format!("{} was never started", fold.show(promise_id)))
}

pub(crate) fn retrying_requires_started(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::InvokeRetrying { promise_id, failed_attempt, .. } = &event.event else {
        return None;
    };
    let started = fold.invoke(promise_id).map_or(0, |invoke| invoke.attempt);
    let known = (1..=started).contains(failed_attempt);
    (!known).then(|| format!("attempt {failed_attempt} of {} was never started", fold.show(promise_id)))
}

pub(crate) fn no_events_after_completed(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let (promise_id, invoke) = subject(fold, event)?;
    match invoke.flight {
        Flight::Completed { sequence, .. } => {
            Some(format!("{} completed at sequence {sequence} already", fold.show(promise_id)))
        }
        _ => None,
    }
}

pub(crate) fn attempts_count_up(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::InvokeStarted { promise_id, attempt, .. } = &event.event else {
        return None;
    };
    let expected = u64::from(fold.invoke(promise_id)?.attempt) + 1;
    (u64::from(*attempt) != expected)
        .then(|| format!("attempt {attempt} of {} where {expected} was expected", fold.show(promise_id)))
}

pub(crate) fn started_follows_scheduled_or_retrying(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::InvokeStarted { promise_id, .. } = &event.event else {
        return None;
    };
    let invoke = fold.invoke(promise_id)?;
    matches!(invoke.flight, Flight::Started)
        .then(|| format!("attempt {} of {} is still in flight", invoke.attempt, fold.show(promise_id)))
}

pub(crate) fn outcome_of_attempt_in_flight(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let named = match &event.event {
        Event::InvokeCompleted { attempt, .. } => *attempt,
        Event::InvokeRetrying { failed_attempt, .. } => *failed_attempt,
        _ => return None,
    };
    let (promise_id, invoke) = subject(fold, event)?;
    let gives_up = matches!(&event.event, Event::InvokeCompleted { result: Err(_), .. });
    let (ends, what) = match invoke.flight {
        Flight::Started => (Some(invoke.attempt), "is in flight"),
        Flight::Retrying { .. } if gives_up => (Some(invoke.attempt), "failed last"),
        _ => (None, ""),
    };
    (ends != Some(named)).then(|| match ends {
        Some(attempt) => format!("attempt {named} of {} where {attempt} {what}", fold.show(promise_id)),
        None => format!("no attempt of {} is in flight", fold.show(promise_id)),
    })
}

pub(crate) fn retry_within_policy(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::InvokeRetrying { promise_id, failed_attempt, error, .. } = &event.event else {
        return None;
    };
    let id = fold.show(promise_id);
    if !error.retryable {
        return Some(format!("{id} failed for good, its error is not retryable"));
    }
    let policy = fold.invoke(promise_id)?.policy.as_ref()?;
    (!policy.allows_retry(*failed_attempt, error)).then(|| match policy.max_attempts {
        Some(max) if *failed_attempt >= max.get() => format!("{id} has at most {max} attempts"),
        _ => format!("{id} is not retried after a failure of kind {}", error.kind),
    })
}

/// The invoke that an InvokeStarted, InvokeCompleted or InvokeRetrying is about.
fn subject<'a>(fold: &'a Fold, event: &'a JournalEvent) -> Option<(&'a PromiseId, &'a Invoke)> {
    match &event.event {
        Event::InvokeStarted { promise_id, .. }
        | Event::InvokeCompleted { promise_id, .. }
        | Event::InvokeRetrying { promise_id, .. } => Some((promise_id, fold.invoke(promise_id)?)),
        _ => None,
    }
}
