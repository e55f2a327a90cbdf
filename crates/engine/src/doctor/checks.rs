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
use crate::client::SHARD_COUNT;
use crate::row_state::{WAKE_NEVER, WAKE_NOW, derive_row_state};
use crate::waits;
use onward_api::waits::WaitTarget;

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
        references: around,
        ..
    } = seen;
    let execution = match execution {
        Ok(execution) => execution,
        Err(unusable) => return vec![unusable.clone()],
    };
    let mut flaws = Vec::new();
    flaws.extend(check_state(row, execution));
    flaws.extend(check_wake(row, execution, now));
    flaws.extend(check_component(row, execution, around));
    flaws.extend(check_shard(row, around));
    if !execution.is_terminal() {
        flaws.extend(check_signals(execution));
        flaws.extend(check_children(execution, &around.children));
        flaws.extend(check_worker_tasks(execution, &around.tasks));
    }
    if let Some((successor, false)) = around.successor {
        flaws.push(doctor_issue(
            FindingCode::SuccessorMissing,
            format!("it goes on as {successor}, which is not there"),
        ));
    }
    flaws
}

fn check_state(row: &Row, execution: &Execution) -> Option<DoctorIssue> {
    let (state, _) = derive_row_state(execution);
    let message = || {
        format!(
            "its row says that it is {}, its journal that it is {state}",
            row.state
        )
    };
    (&*row.state != state).then(|| doctor_issue(FindingCode::StateDiffers, message()))
}

/// Checks that the wake time in the row is the one that follows from the journal.
fn check_wake(row: &Row, execution: &Execution, now: Timestamp) -> Option<DoctorIssue> {
    let (_, due) = derive_row_state(execution);
    let woken = if row.wake_at == WAKE_NEVER {
        "never woken".to_owned()
    } else {
        format!("woken at {}", row.wake_at)
    };
    if execution.is_terminal() {
        return (row.wake_at != WAKE_NEVER).then(|| {
            doctor_issue(
                FindingCode::WakeAfterEnd,
                format!("it is over, and {woken}"),
            )
        });
    }
    if due == WAKE_NOW {
        // The client that starts an execution sets the wake time to the time of the start.
        let is_missing = row.wake_at > now;
        return is_missing.then(|| {
            doctor_issue(
                FindingCode::WakeMissing,
                format!("it has something to do now, and is {woken}"),
            )
        });
    }
    let when = if due == WAKE_NEVER {
        "it waits for others alone".to_owned()
    } else {
        format!("it is due at {due}")
    };
    match row.wake_at.cmp(&due) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(doctor_issue(
            FindingCode::WakeMissing,
            format!("{when}, and is {woken}"),
        )),
        std::cmp::Ordering::Less if row.wake_at == WAKE_NOW => Some(doctor_issue(
            FindingCode::WakeEarly,
            format!("{when}, and is woken at once"),
        )),
        std::cmp::Ordering::Less => Some(doctor_issue(
            FindingCode::WakeEarly,
            format!("{when}, and is {woken}"),
        )),
    }
}

fn check_component(
    row: &Row,
    execution: &Execution,
    around: &ExecutionReferences,
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
        _ if !around.has_component => Some(doctor_issue(
            FindingCode::ComponentMissing,
            format!("component {digest} is not in the store: deploy it again"),
        )),
        _ => None,
    }
}

fn check_shard(row: &Row, around: &ExecutionReferences) -> Option<DoctorIssue> {
    let ShardId(found) = row.shard;
    match around.expected_shard {
        Some(ShardId(expected)) if expected != found => Some(doctor_issue(
            FindingCode::ShardWrong,
            format!("it is in shard {found} and belongs in shard {expected}"),
        )),
        _ if found >= SHARD_COUNT => Some(doctor_issue(
            FindingCode::ShardWrong,
            format!("it is in shard {found}, and there are {SHARD_COUNT}"),
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
    let mut flaws = Vec::new();
    for waiting in waits.waits_for.iter().chain(&waits.besides) {
        if let WaitTarget::Signal { name, .. } = &waiting.target {
            let signals = execution.journal().journal_state().signal_inbox(name);
            if signals.delivered > signals.consumed {
                flaws.push(doctor_issue(
                    FindingCode::SignalNotTaken,
                    format!("it waits for signal {name}, which is there"),
                ));
            }
        }
    }
    flaws
}

/// Checks that the children in flight exist and that their results are not lost.
fn check_children(
    execution: &Execution,
    fates: &BTreeMap<ExecutionId, ChildStatus>,
) -> Vec<DoctorIssue> {
    let mut flaws = Vec::new();
    for flight in execution.attempts_in_flight() {
        let Some(child) = flight.performer.child_execution() else {
            continue;
        };
        let promise = execution
            .id()
            .child_promise(flight.number)
            .relative_to(execution.id())
            .to_string();
        match fates.get(&child) {
            Some(ChildStatus::Missing(which)) => {
                let message = format!("its child {which} ({promise}) is not there");
                flaws.push(doctor_issue(FindingCode::ChildMissing, message));
            }
            Some(ChildStatus::ResultLost(which)) => {
                let message = format!(
                    "its child {which} ({promise}) is over, and the result is neither recorded nor sent"
                );
                flaws.push(doctor_issue(FindingCode::ChildResultLost, message));
            }
            Some(ChildStatus::Running | ChildStatus::ResultSent) | None => {}
        }
    }
    flaws
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
                format!(
                    "a worker is to perform {promise}, and there is neither a task nor a result"
                ),
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
    let words = || {
        format!(
            "a task of {} (attempt {}) is there, and nobody waits for it",
            task.function, task.attempt
        )
    };
    (!is_wanted).then(|| doctor_issue(FindingCode::TaskOrphan, words()))
}

/// Returns the issues of a message to the execution of this row; `unreadable` is the reason why the
/// message cannot be decoded.
pub(super) fn check_message(
    message: &InboxMessageRow,
    unreadable: Option<String>,
    row: Option<&Row>,
) -> Vec<DoctorIssue> {
    let number = message.message_id.0.unwrap_or_default();
    let Some(row) = row else {
        let words = format!(
            "message {number} ({}) is for an execution that is not there",
            message.kind
        );
        return vec![doctor_issue(FindingCode::MessageOrphan, words)];
    };
    let mut flaws = Vec::new();
    if let Some(reason) = unreadable {
        flaws.push(doctor_issue(
            FindingCode::MessageUnreadable,
            format!("message {number} ({}): {reason}", message.kind),
        ));
    }
    if message.shard != row.shard {
        let words = format!(
            "message {number} is in shard {}, its execution in shard {}",
            message.shard, row.shard
        );
        flaws.push(doctor_issue(FindingCode::MessageShard, words));
    }
    flaws
}
