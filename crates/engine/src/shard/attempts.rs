//! Attempts of the operations that a guest requests: how a step starts them as tasks or child
//! executions, ends them when their timeout has passed, and gives up those that the guest abandons.

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_execution::{Execution, ExecutionStart};
use onward_journal::{
    ComponentDigest, DeliveryGuarantee, ErrorKind, Event, ExecutionError, ExecutionId,
    ExecutionState, InvokeKind, InvokePerformer, RetryPolicy,
};
use onward_store::tables::ExecutionRow as Row;

use super::active_execution::{ActiveExecution, WAKE_NOW};
use super::shard_core::{ShardCore, in_doubt_error};
use super::step::{StepBlocked, StepWorld, journal_refused, send_cancel};
use super::task_row::QueuedTask;
use super::{AttemptId, ResolvedFunction, ShardAction, TaskAttempt};
use crate::{row_body, task_queue};

/// Maximum depth of nested workflow calls.
const CALL_DEPTH_MAX: u8 = 64;

/// Ends attempts of children whose timeout has passed: the children are cancelled. The owner aborts
/// its own attempts, and the lease reaper ends those of workers.
pub(super) fn fail_overdue_attempts(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
    actions: &mut Vec<ShardAction>,
) -> Result<(), StepBlocked> {
    if active.execution.is_terminal() {
        return Ok(());
    }
    for flight in active.execution.overdue_attempts(now) {
        if let Some(child) = flight.performer.child_execution() {
            send_cancel(core, active, child, "the attempt timed out".into(), now)?;
        }
        let is_at_most_once = matches!(
            active.execution.invocation_event(flight.number),
            Some(Event::InvokeScheduled {
                delivery: DeliveryGuarantee::AtMostOnce,
                ..
            })
        );
        let error = if is_at_most_once {
            // It may have been performed and must not be repeated.
            actions.push(ShardAction::InDoubt(active.attempt_id_of(flight)));
            in_doubt_error("the attempt exceeded its timeout")
        } else {
            ExecutionError::new(ErrorKind::Timeout, "the attempt exceeded its timeout")
        };
        let mut world = StepWorld::new(core, now);
        let ended =
            active
                .execution
                .end_attempt(flight.number, flight.attempt, Err(error), &mut world);
        ended.map_err(|violation| journal_refused(&violation))?;
    }
    Ok(())
}

/// Gives up the operations that the guest has abandoned: tasks are withdrawn or aborted, children
/// are cancelled.
pub(super) fn give_up_abandoned_attempts(
    core: &ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    for number in active.execution.take_abandoned() {
        let flight = active.execution.attempt_in_flight(number);
        if let Some(child) = flight.and_then(|flight| flight.performer.child_execution()) {
            send_cancel(
                core,
                active,
                child,
                "the operation was abandoned".into(),
                now,
            )?;
            continue;
        }
        let error = ExecutionError::new(ErrorKind::Cancelled, "the operation was abandoned")
            .into_permanent();
        active
            .execution
            .give_up_operation(number, error, now)
            .map_err(|violation| journal_refused(&violation))?;
        match flight {
            Some(flight) if flight.performer == InvokePerformer::Worker => {
                active.withdraw_task(flight)
            }
            Some(flight) => active.pending.abandoned.push(active.attempt_id_of(flight)),
            None => {}
        }
    }
    Ok(())
}

/// Starts the operations that the guest requests: tasks once the step is durable, children as
/// executions of their own. While the core drains, they are left to the next owner.
pub(super) fn start_attempts(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    if active.execution.is_terminal() || core.is_draining {
        return Ok(());
    }
    for number in active.execution.startable_operations(now) {
        let Some((function, input)) = scheduled_invocation(&active.execution, number) else {
            continue;
        };
        let resolved = resolve_invocation(core, active, number);
        match resolved {
            ResolvedFunction::Workflow(_)
                if row_body::call_depth(&active.row.body) >= CALL_DEPTH_MAX =>
            {
                let message = format!("call depth exceeds {CALL_DEPTH_MAX} nested workflows");
                fail_attempt(
                    core,
                    active,
                    number,
                    ExecutionError::from_kind_name("too_deep", message).into_permanent(),
                    now,
                )?;
            }
            ResolvedFunction::Workflow(digest) => {
                start_child(core, active, number, digest, &function, input, now)?
            }
            ResolvedFunction::Unknown => {
                let error = ExecutionError::from_kind_name(
                    "unknown_function",
                    format!("function {function} not found"),
                );
                fail_attempt(core, active, number, error, now)?;
            }
            ResolvedFunction::Worker => queue_task(core, active, number, now)?,
            ResolvedFunction::Task(_) | ResolvedFunction::Native => {
                let attempt = active
                    .execution
                    .start_attempt(number, InvokePerformer::Owner, now)
                    .map_err(|violation| journal_refused(&violation))?;
                let id = AttemptId {
                    execution: active.id(),
                    number,
                    attempt,
                };
                active
                    .pending
                    .attempts
                    .extend(self::build_attempt(core, active, id, resolved));
            }
        }
    }
    Ok(())
}

/// Starts an attempt as a task for a worker, which can be claimed once the step is durable.
fn queue_task(
    core: &ShardCore,
    active: &mut ActiveExecution,
    number: u32,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    let started = active
        .execution
        .start_attempt(number, InvokePerformer::Worker, now);
    let attempt = started.map_err(|violation| journal_refused(&violation))?;
    let id = AttemptId {
        execution: active.id(),
        number,
        attempt,
    };
    let task = build_attempt(core, active, id, ResolvedFunction::Worker);
    let is_last = is_last_attempt(&active.execution, number, attempt);
    active
        .pending
        .tasks
        .extend(task.map(|task| QueuedTask::new(&active.row, &task, is_last, now)));
    Ok(())
}

/// Whether the retry policy allows no attempt after this one.
fn is_last_attempt(execution: &Execution, number: u32, attempt: u32) -> bool {
    let Some(Event::InvokeScheduled { retry_policy, .. }) = execution.invocation_event(number)
    else {
        return true;
    };
    let usual = RetryPolicy::default();
    let policy = retry_policy.as_deref().unwrap_or(&usual);
    !policy.allows_retry(attempt, &task_queue::deployed_meanwhile_error())
}

/// Starts an attempt and ends it at once with an error.
fn fail_attempt(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    number: u32,
    error: ExecutionError,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    let started = active
        .execution
        .start_attempt(number, InvokePerformer::Owner, now);
    let attempt = started.map_err(|violation| journal_refused(&violation))?;
    let mut world = StepWorld::new(core, now);
    let ended = active
        .execution
        .end_attempt(number, attempt, Err(error), &mut world);
    ended
        .map(drop)
        .map_err(|violation| journal_refused(&violation))
}

fn scheduled_invocation(execution: &Execution, number: u32) -> Option<(BoundedName, Payload)> {
    match execution.invocation_event(number)? {
        Event::InvokeScheduled {
            function_name,
            input,
            ..
        } => Some((function_name.clone(), input.clone())),
        _ => None,
    }
}

/// Resolves the function that an operation invokes.
pub(super) fn resolve_invocation(
    core: &ShardCore,
    active: &ActiveExecution,
    number: u32,
) -> ResolvedFunction {
    match active.execution.invocation_event(number) {
        Some(Event::InvokeScheduled {
            kind: InvokeKind::Http,
            ..
        }) => ResolvedFunction::Native,
        Some(Event::InvokeScheduled { function_name, .. }) => core
            .functions
            .resolve_function(active.function_caller(), function_name),
        _ => ResolvedFunction::Unknown,
    }
}

/// Builds an attempt with everything needed to perform it; `None` if the operation is no
/// invocation.
pub(super) fn build_attempt(
    core: &ShardCore,
    active: &ActiveExecution,
    id: AttemptId,
    resolved: ResolvedFunction,
) -> Option<TaskAttempt> {
    let Some(Event::InvokeScheduled {
        kind,
        function_name,
        input,
        retry_policy,
        delivery,
        ..
    }) = active.execution.invocation_event(id.number)
    else {
        return None;
    };
    let sender = match kind {
        InvokeKind::Function => &**function_name,
        InvokeKind::Http => &*active.row.function,
    };
    Some(TaskAttempt {
        id,
        dispatch_id: 0,
        hosts: core
            .functions
            .allowed_hosts(active.function_caller(), sender),
        kind: *kind,
        resolved,
        function: function_name.clone(),
        input: input.clone(),
        timeout_ms: retry_policy.as_ref().and_then(|policy| policy.timeout_ms),
        delivery: *delivery,
        owner: active.owner.clone(),
    })
}

fn start_child(
    core: &ShardCore,
    active: &mut ActiveExecution,
    number: u32,
    component_digest: ComponentDigest,
    function: &BoundedName,
    input: Payload,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    let parent = active.id().child_promise(number);
    // The id depends on the attempt number, so that a retry does not find the child of the failed
    // attempt.
    let attempt = active.execution.next_attempt(number);
    let key = attempt.to_string();
    let id = ExecutionId::derive(&component_digest, Some(&parent), &key);
    active
        .execution
        .start_attempt(number, InvokePerformer::Child(id), now)
        .map_err(|violation| journal_refused(&violation))?;
    let start = ExecutionStart {
        component_digest,
        input,
        parent: Some(parent),
        key: Some(key.as_str().into()),
        signals: Vec::new(),
    };
    let execution = Execution::start(id, start, now, core.options.limits)
        .map_err(|violation| journal_refused(&violation))?;
    let (function, body) = (
        SharedText::from(&**function),
        [row_body::call_depth(&active.row.body) + 1].into(),
    );
    let row = Row {
        function,
        component_digest,
        body,
        ..sibling_row(active, id, now)
    };
    active
        .pending
        .children
        .push(ActiveExecution::new(row, 1, execution, now));
    Ok(())
}

/// The row of another execution of the same owner that starts now.
pub(super) fn sibling_row(
    active: &ActiveExecution,
    execution_id: ExecutionId,
    now: Timestamp,
) -> Row {
    Row {
        execution_id,
        start_key: None,
        state: ExecutionState::Running,
        wake_at: WAKE_NOW,
        created_at: now,
        body: [row_body::call_depth(&active.row.body)].into(),
        ..active.row.clone()
    }
}
