//! Commands for join sets: results are taken in the order of completion.

use super::command_violation;
use crate::{
    AwaitKind, Event, EventKind, InvokePhase, JoinSetId, Journal, LifecycleAction, PromiseId, Rule,
    RuleViolation,
};

pub(super) fn take_next_result(
    journal: &Journal,
    join_set_id: JoinSetId,
    timeout: Option<PromiseId>,
) -> Result<Event, RuleViolation> {
    let fold = journal.journal_state();
    fold.check_action(LifecycleAction::UseJoinSet, EventKind::JoinSetAwaited)?;
    let Some(set) = fold.join_set_state(&join_set_id) else {
        let message = format!(
            "join set {} was never created",
            fold.display_id(&join_set_id.0)
        );
        return Err(command_violation(
            fold,
            Rule::JS3,
            EventKind::JoinSetAwaited,
            message,
        ));
    };
    if let Some(promise_id) = fold.next_ready_member(&join_set_id)
        && let Some(InvokePhase::Completed { sequence, .. }) =
            fold.invoke_state(&promise_id).map(|invoke| invoke.phase)
        && let Some(result) = journal.result_at(sequence)
    {
        return Ok(Event::JoinSetAwaited {
            join_set_id,
            promise_id,
            result: result.clone(),
        });
    }
    let mut waiting_on = fold.remaining_members(&join_set_id);
    if waiting_on.is_empty() {
        let message = format!(
            "all {} results of join set {} were taken",
            set.submitted,
            fold.display_id(&join_set_id.0)
        );
        return Err(command_violation(
            fold,
            Rule::JS6,
            EventKind::JoinSetAwaited,
            message,
        ));
    }
    waiting_on.extend(timeout);
    Ok(Event::ExecutionAwaiting {
        waiting_on,
        kind: AwaitKind::Any,
    })
}
