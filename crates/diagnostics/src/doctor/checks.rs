//! Checks of an execution, task or message against the data that was read; pure functions without
//! I/O.

use std::collections::BTreeMap;

use onward_base::Timestamp;
use onward_execution::Execution;
use onward_journal::{Event, ExecutionId, InvokePerformer};
use onward_store::ShardId;
use onward_store::tables::{ExecutionRow as Row, InboxMessageRow, TaskRow};

use super::FindingCode;
use super::inspection::{ChildStatus, ExecutionReferences, InspectedExecution};
use crate::waits;
use onward_api::waits::WaitTarget;
use onward_engine::client::SHARD_COUNT;
use onward_engine::row_state::{WAKE_NEVER, WAKE_NOW, derive_row_state};
use onward_engine::shard::MessageDecodeError;

/// An issue that a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DoctorIssue {
    pub(super) code: FindingCode,
    pub(super) message: String,
}

fn doctor_issue(code: FindingCode, message: impl Into<String>) -> DoctorIssue {
    DoctorIssue {
        code,
        message: message.into(),
    }
}

/// Returns the issues of an execution at `now`.
pub(super) fn check_execution(seen: &InspectedExecution, now: Timestamp) -> Vec<DoctorIssue> {
    let InspectedExecution {
        row,
        execution,
        references,
        ..
    } = seen;
    let execution = match execution {
        Ok(execution) => execution,
        Err(unusable) => return vec![unusable.clone()],
    };
    let mut issues = Vec::new();
    issues.extend(check_state(row, execution));
    issues.extend(check_wake(row, execution, now));
    issues.extend(check_component(row, execution, references));
    issues.extend(check_shard(row, references));
    if !execution.is_terminal() {
        issues.extend(check_signals(execution));
        issues.extend(check_children(execution, &references.children));
        issues.extend(check_worker_tasks(execution, &references.tasks));
    }
    if let Some((successor, false)) = references.successor {
        issues.push(doctor_issue(
            FindingCode::SuccessorMissing,
            format!("it continued as {successor}, which does not exist"),
        ));
    }
    issues
}

fn check_state(row: &Row, execution: &Execution) -> Option<DoctorIssue> {
    let (state, _) = derive_row_state(execution);
    let message = || {
        format!(
            "its row has state {}, its journal has state {state}",
            row.state
        )
    };
    (row.state != state).then(|| doctor_issue(FindingCode::StateDiffers, message()))
}

/// Checks that the wake time in the row is the one that follows from the journal.
fn check_wake(row: &Row, execution: &Execution, now: Timestamp) -> Option<DoctorIssue> {
    let (_, due) = derive_row_state(execution);
    let wake_time = if row.wake_at == WAKE_NEVER {
        "no wake time".to_owned()
    } else {
        format!("wake time {}", row.wake_at)
    };
    if execution.is_terminal() {
        return (row.wake_at != WAKE_NEVER).then(|| {
            doctor_issue(
                FindingCode::WakeAfterEnd,
                format!("it has ended, but its row has {wake_time}"),
            )
        });
    }
    if due == WAKE_NOW {
        // The client that starts an execution sets the wake time to the time of the start.
        let is_missing = row.wake_at > now;
        return is_missing.then(|| {
            doctor_issue(
                FindingCode::WakeMissing,
                format!("it is runnable now, but its row has {wake_time}"),
            )
        });
    }
    let when = if due == WAKE_NEVER {
        "it waits for external events only".to_owned()
    } else {
        format!("it is due at {due}")
    };
    match row.wake_at.cmp(&due) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(doctor_issue(
            FindingCode::WakeMissing,
            format!("{when}, but its row has {wake_time}"),
        )),
        std::cmp::Ordering::Less if row.wake_at == WAKE_NOW => Some(doctor_issue(
            FindingCode::WakeEarly,
            format!("{when}, but its row wakes it at once"),
        )),
        std::cmp::Ordering::Less => Some(doctor_issue(
            FindingCode::WakeEarly,
            format!("{when}, but its row has {wake_time}"),
        )),
    }
}

fn check_component(
    row: &Row,
    execution: &Execution,
    references: &ExecutionReferences,
) -> Option<DoctorIssue> {
    let digest = &row.component_digest;
    match execution
        .journal()
        .events()
        .first()
        .map(|first| &first.event)
    {
        Some(Event::ExecutionStarted {
            component_digest, ..
        }) if component_digest != digest => {
            let message =
                format!("its row names component {digest}, its journal {component_digest}");
            Some(doctor_issue(FindingCode::ComponentDiffers, message))
        }
        _ if !references.has_component => Some(doctor_issue(
            FindingCode::ComponentMissing,
            format!("component {digest} is not in the store: deploy it again"),
        )),
        _ => None,
    }
}

fn check_shard(row: &Row, references: &ExecutionReferences) -> Option<DoctorIssue> {
    let ShardId(found) = row.shard;
    match references.expected_shard {
        Some(ShardId(expected)) if expected != found => Some(doctor_issue(
            FindingCode::ShardWrong,
            format!("it is in shard {found} and belongs in shard {expected}"),
        )),
        _ if found >= SHARD_COUNT => Some(doctor_issue(
            FindingCode::ShardWrong,
            format!("it is in shard {found}, but there are only {SHARD_COUNT} shards"),
        )),
        _ => None,
    }
}

/// Checks that no signal that the execution waits for has already been delivered.
fn check_signals(execution: &Execution) -> Vec<DoctorIssue> {
    if execution.is_runnable() {
        return Vec::new();
    }
    let waits = waits::pending_waits(execution.journal());
    let mut issues = Vec::new();
    for waiting in waits.waits_for.iter().chain(&waits.also_waits_for) {
        if let WaitTarget::Signal { name, .. } = &waiting.target {
            let signals = execution.journal().journal_state().signal_inbox(name);
            if signals.delivered > signals.consumed {
                issues.push(doctor_issue(
                    FindingCode::SignalNotConsumed,
                    format!("it waits for signal {name}, which was delivered and is not consumed"),
                ));
            }
        }
    }
    issues
}

/// Checks that the children in flight exist and that their results are not lost.
fn check_children(
    execution: &Execution,
    children: &BTreeMap<ExecutionId, ChildStatus>,
) -> Vec<DoctorIssue> {
    let mut issues = Vec::new();
    for flight in execution.attempts_in_flight() {
        let Some(child) = flight.performer.child_execution() else {
            continue;
        };
        let promise = execution
            .id()
            .child_promise(flight.number)
            .relative_to(execution.id())
            .to_string();
        match children.get(&child) {
            Some(ChildStatus::Missing(which)) => {
                let message = format!("its child {which} ({promise}) does not exist");
                issues.push(doctor_issue(FindingCode::ChildMissing, message));
            }
            Some(ChildStatus::ResultLost(which)) => {
                let message = format!(
                    "its child {which} ({promise}) has ended, but its result is neither recorded nor sent"
                );
                issues.push(doctor_issue(FindingCode::ChildResultLost, message));
            }
            Some(ChildStatus::Running | ChildStatus::ResultSent) | None => {}
        }
    }
    issues
}

/// Checks that every operation in flight for a worker has a task or a result.
fn check_worker_tasks<'a>(
    execution: &'a Execution,
    tasks: &'a BTreeMap<u32, bool>,
) -> impl Iterator<Item = DoctorIssue> + 'a {
    tasks
        .iter()
        .filter(|(_, is_there)| !**is_there)
        .map(|(number, _)| {
            let promise = execution
                .id()
                .child_promise(*number)
                .relative_to(execution.id())
                .to_string();
            doctor_issue(
                FindingCode::TaskMissing,
                format!("{promise} waits for a worker, but has neither a task nor a result"),
            )
        })
}

/// Checks that the execution waits for this task; without a readable execution no issue is
/// reported.
pub(super) fn check_task(task: &TaskRow, execution: Option<&Execution>) -> Option<DoctorIssue> {
    let is_wanted = execution.is_none_or(|execution| {
        let flight = execution
            .attempt_in_flight(task.promise)
            .filter(|_| !execution.is_terminal());
        flight.is_some_and(|flight| {
            (flight.attempt, flight.performer) == (task.attempt, InvokePerformer::Worker)
        })
    });
    let message = || {
        format!(
            "a task of {} (attempt {}) exists, but its execution does not wait for it",
            task.function, task.attempt
        )
    };
    (!is_wanted).then(|| doctor_issue(FindingCode::TaskOrphan, message()))
}

/// Returns the issues of a message to the execution of this row; `unreadable` is the reason why the
/// message cannot be decoded.
pub(super) fn check_message(
    message: &InboxMessageRow,
    unreadable: Option<&MessageDecodeError>,
    row: Option<&Row>,
) -> Vec<DoctorIssue> {
    let number = message.message_id.0.unwrap_or_default();
    let Some(row) = row else {
        let text = format!(
            "message {number} ({}) is for an execution that does not exist",
            message.kind
        );
        return vec![doctor_issue(FindingCode::MessageOrphan, text)];
    };
    let mut issues = Vec::new();
    if let Some(reason) = unreadable {
        issues.push(doctor_issue(
            FindingCode::MessageUnreadable,
            format!("message {number} ({}): {reason}", message.kind),
        ));
    }
    if message.shard != row.shard {
        let text = format!(
            "message {number} is in shard {}, its execution in shard {}",
            message.shard, row.shard
        );
        issues.push(doctor_issue(FindingCode::MessageShard, text));
    }
    issues
}
