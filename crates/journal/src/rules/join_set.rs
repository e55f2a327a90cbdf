//! Join sets (JS-1 … JS-7, H-2, H-3, H-12): members come in, then results go out, each once and as recorded.

use crate::fold::{Fingerprint, Flight};
use crate::{Event, Fold, JoinSetId, JournalEvent, PromiseId};

pub(crate) fn submit_requires_created(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let (set, _) = submitted(event)?;
    fold.join_set(set).is_none().then(|| format!("join set {} was never created", fold.show(&set.0)))
}

pub(crate) fn no_submit_after_await(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let (set, _) = submitted(event)?;
    let taken = fold.join_set(set)?.awaited;
    (taken > 0).then(|| format!("{taken} results of join set {} were taken already", fold.show(&set.0)))
}

pub(crate) fn submitted_is_invoke(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let (_, id) = submitted(event)?;
    fold.invoke(id).is_none().then(|| format!("{} is not a scheduled invoke", fold.show(id)))
}

pub(crate) fn submitted_once(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let (set, id) = submitted(event)?;
    let owner = fold.invoke(id)?.owner?;
    (owner == fold.set_index(set)?).then(|| format!("{} is in join set {} already", fold.show(id), fold.show(&set.0)))
}

pub(crate) fn promise_single_owner(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let (set, id) = submitted(event)?;
    let owner = fold.invoke(id)?.owner?;
    (owner != fold.set_index(set)?).then(|| format!("{} is in another join set already", fold.show(id)))
}

pub(crate) fn awaited_requires_member(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let (set, id) = taken(event)?;
    let owner = fold.invoke(id).and_then(|invoke| invoke.owner);
    let member = owner.is_some() && owner == fold.set_index(set);
    (!member).then(|| format!("{} was never submitted to join set {}", fold.show(id), fold.show(&set.0)))
}

pub(crate) fn awaited_requires_completed(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let (_, id) = taken(event)?;
    let completed = matches!(fold.invoke(id)?.flight, Flight::Completed { .. });
    (!completed).then(|| format!("{} has not completed", fold.show(id)))
}

pub(crate) fn no_double_consume(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let (_, id) = taken(event)?;
    fold.invoke(id)?.consumed.then(|| format!("the result of {} was taken already", fold.show(id)))
}

pub(crate) fn consume_bounded(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let (set, _) = taken(event)?;
    let submitted = fold.join_set(set)?.submitted;
    let exhausted = fold.join_set(set)?.awaited >= submitted;
    exhausted.then(|| format!("all {submitted} results of join set {} were taken already", fold.show(&set.0)))
}

pub(crate) fn awaited_result_is_recorded(fold: &Fold, event: &JournalEvent) -> Option<String> {
    let Event::JoinSetAwaited { promise_id, result, .. } = &event.event else {
        return None;
    };
    let Flight::Completed { sequence, result: recorded } = fold.invoke(promise_id)?.flight else {
        return None;
    };
    (recorded != Fingerprint::of_result(result))
        .then(|| format!("the result of {} differs from that at sequence {sequence}", fold.show(promise_id)))
}

fn submitted(event: &JournalEvent) -> Option<(&JoinSetId, &PromiseId)> {
    match &event.event {
        Event::JoinSetSubmitted { join_set_id, promise_id } => Some((join_set_id, promise_id)),
        _ => None,
    }
}

fn taken(event: &JournalEvent) -> Option<(&JoinSetId, &PromiseId)> {
    match &event.event {
        Event::JoinSetAwaited { join_set_id, promise_id, .. } => Some((join_set_id, promise_id)),
        _ => None,
    }
}
