//! Join sets: results are taken in the order in which they completed.

use super::refuse;
use crate::{Act, AwaitKind, Event, EventKind, Flight, JoinSetId, Journal, PromiseId, Rule, Violation};

pub(super) fn next(journal: &Journal, join_set_id: JoinSetId, timeout: Option<PromiseId>) -> Result<Event, Violation> {
    let fold = journal.fold();
    fold.guard(Act::UseJoinSet, EventKind::JoinSetAwaited)?;
    let Some(set) = fold.join_set(&join_set_id) else {
        let message = format!("join set {} was never created", fold.show(&join_set_id.0));
        return Err(refuse(fold, Rule::JS3, EventKind::JoinSetAwaited, message));
    };
    if let Some(promise_id) = fold.next_ready(&join_set_id)
        && let Some(Flight::Completed { sequence, .. }) = fold.invoke(&promise_id).map(|invoke| invoke.flight)
        && let Some(result) = journal.result_at(sequence)
    {
        return Ok(Event::JoinSetAwaited { join_set_id, promise_id, result: result.clone() });
    }
    let mut waiting_on = fold.remaining(&join_set_id);
    if waiting_on.is_empty() {
        let message = format!("all {} results of join set {} were taken", set.submitted, fold.show(&join_set_id.0));
        return Err(refuse(fold, Rule::JS6, EventKind::JoinSetAwaited, message));
    }
    waiting_on.extend(timeout);
    Ok(Event::ExecutionAwaiting { waiting_on, kind: AwaitKind::Any })
}
