//! Rules for join sets (JS-1 … JS-7, H-2, H-3, H-12): members are submitted first, then results are
//! taken, each once and as recorded.

use crate::journal_state::{InvokePhase, PayloadFingerprint};
use crate::{Event, JoinSetId, JournalEvent, JournalState, PromiseId};

pub(crate) fn submit_requires_created(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let (set, _) = submitted_member(event)?;
    fold.join_set_state(set)
        .is_none()
        .then(|| format!("join set {} was never created", fold.display_id(&set.0)))
}

pub(crate) fn no_submit_after_await(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let (set, _) = submitted_member(event)?;
    let taken = fold.join_set_state(set)?.awaited;
    (taken > 0).then(|| {
        format!(
            "{taken} results of join set {} were taken already",
            fold.display_id(&set.0)
        )
    })
}

pub(crate) fn submitted_is_invoke(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let (_, id) = submitted_member(event)?;
    fold.invoke_state(id)
        .is_none()
        .then(|| format!("{} is not a scheduled invoke", fold.display_id(id)))
}

pub(crate) fn submitted_once(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let (set, id) = submitted_member(event)?;
    let owner = fold.invoke_state(id)?.join_set_index?;
    (owner == fold.join_set_index(set)?).then(|| {
        format!(
            "{} is in join set {} already",
            fold.display_id(id),
            fold.display_id(&set.0)
        )
    })
}

pub(crate) fn promise_single_owner(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let (set, id) = submitted_member(event)?;
    let owner = fold.invoke_state(id)?.join_set_index?;
    (owner != fold.join_set_index(set)?)
        .then(|| format!("{} is in another join set already", fold.display_id(id)))
}

pub(crate) fn awaited_requires_member(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let (set, id) = taken_member(event)?;
    let owner = fold
        .invoke_state(id)
        .and_then(|invoke| invoke.join_set_index);
    let member = owner.is_some() && owner == fold.join_set_index(set);
    (!member).then(|| {
        format!(
            "{} was never submitted to join set {}",
            fold.display_id(id),
            fold.display_id(&set.0)
        )
    })
}

pub(crate) fn awaited_requires_completed(
    fold: &JournalState,
    event: &JournalEvent,
) -> Option<String> {
    let (_, id) = taken_member(event)?;
    let completed = matches!(fold.invoke_state(id)?.phase, InvokePhase::Completed { .. });
    (!completed).then(|| format!("{} has not completed", fold.display_id(id)))
}

pub(crate) fn no_double_consume(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let (_, id) = taken_member(event)?;
    fold.invoke_state(id)?
        .is_result_taken
        .then(|| format!("the result of {} was taken already", fold.display_id(id)))
}

pub(crate) fn consume_bounded(fold: &JournalState, event: &JournalEvent) -> Option<String> {
    let (set, _) = taken_member(event)?;
    let submitted = fold.join_set_state(set)?.submitted;
    let exhausted = fold.join_set_state(set)?.awaited >= submitted;
    exhausted.then(|| {
        format!(
            "all {submitted} results of join set {} were taken already",
            fold.display_id(&set.0)
        )
    })
}

pub(crate) fn awaited_result_is_recorded(
    fold: &JournalState,
    event: &JournalEvent,
) -> Option<String> {
    let Event::JoinSetAwaited {
        promise_id, result, ..
    } = &event.event
    else {
        return None;
    };
    let InvokePhase::Completed {
        sequence,
        result: recorded,
    } = fold.invoke_state(promise_id)?.phase
    else {
        return None;
    };
    (recorded != PayloadFingerprint::from_result(result)).then(|| {
        format!(
            "the result of {} differs from that at sequence {sequence}",
            fold.display_id(promise_id)
        )
    })
}

fn submitted_member(event: &JournalEvent) -> Option<(&JoinSetId, &PromiseId)> {
    match &event.event {
        Event::JoinSetSubmitted {
            join_set_id,
            promise_id,
        } => Some((join_set_id, promise_id)),
        _ => None,
    }
}

fn taken_member(event: &JournalEvent) -> Option<(&JoinSetId, &PromiseId)> {
    match &event.event {
        Event::JoinSetAwaited {
            join_set_id,
            promise_id,
            ..
        } => Some((join_set_id, promise_id)),
        _ => None,
    }
}
