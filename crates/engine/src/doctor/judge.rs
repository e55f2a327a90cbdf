//! What is wrong with an execution or a message, as far as it can be told from what was read: pure.

use std::collections::BTreeMap;

use onward_execution::Execution;
use onward_journal::{Event, ExecutionId, Performer, Timestamp};
use onward_store::Shard;
use onward_store::tables::{Execution as Row, Message, Task};

use super::Code;
use super::look::{Around, Fate, Seen};
use crate::client::SHARDS;
use crate::standing::{AT_ONCE, NEVER, standing};
use crate::waits;
use onward_api::waits::What;

/// Something that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Flaw {
    pub(super) code: Code,
    pub(super) message: String,
}

fn flaw(code: Code, message: impl Into<String>) -> Flaw {
    Flaw { code, message: message.into() }
}

/// What is wrong with an execution at `now`.
pub(super) fn execution(seen: &Seen, now: Timestamp) -> Vec<Flaw> {
    let Seen { row, execution, around, .. } = seen;
    let execution = match execution {
        Ok(execution) => execution,
        Err(unusable) => return vec![unusable.clone()],
    };
    let mut flaws = Vec::new();
    flaws.extend(state(row, execution));
    flaws.extend(wake(row, execution, now));
    flaws.extend(component(row, execution, around));
    flaws.extend(shard(row, around));
    if !execution.is_over() {
        flaws.extend(waits(execution));
        flaws.extend(children(execution, &around.children));
        flaws.extend(tasks(execution, &around.tasks));
    }
    if let Some((successor, false)) = around.successor {
        flaws.push(flaw(Code::SuccessorMissing, format!("it goes on as {successor}, which is not there")));
    }
    flaws
}

fn state(row: &Row, execution: &Execution) -> Option<Flaw> {
    let (state, _) = standing(execution);
    let message = || format!("its row says that it is {}, its journal that it is {state}", row.state);
    (&*row.state != state).then(|| flaw(Code::StateDiffers, message()))
}

/// Whether it is woken when it is due, and not otherwise.
fn wake(row: &Row, execution: &Execution, now: Timestamp) -> Option<Flaw> {
    let (_, due) = standing(execution);
    let woken = if row.wake_at == NEVER { "never woken".to_owned() } else { format!("woken at {}", row.wake_at) };
    if execution.is_over() {
        return (row.wake_at != NEVER).then(|| flaw(Code::WakeAfterEnd, format!("it is over, and {woken}")));
    }
    if due == AT_ONCE {
        // Who starts an execution has it woken at the time of the start.
        let is_missing = row.wake_at > now;
        return is_missing.then(|| flaw(Code::WakeMissing, format!("it has something to do now, and is {woken}")));
    }
    let when = if due == NEVER { "it waits for others alone".to_owned() } else { format!("it is due at {due}") };
    match row.wake_at.cmp(&due) {
        std::cmp::Ordering::Equal => None,
        std::cmp::Ordering::Greater => Some(flaw(Code::WakeMissing, format!("{when}, and is {woken}"))),
        std::cmp::Ordering::Less if row.wake_at == AT_ONCE => {
            Some(flaw(Code::WakeEarly, format!("{when}, and is woken at once")))
        }
        std::cmp::Ordering::Less => Some(flaw(Code::WakeEarly, format!("{when}, and is {woken}"))),
    }
}

fn component(row: &Row, execution: &Execution, around: &Around) -> Option<Flaw> {
    let digest = &row.component_digest;
    match execution.journal().events().first().map(|first| &first.event) {
        Some(Event::ExecutionStarted { component_digest, .. }) if component_digest != digest => {
            let message = format!("its row names component {digest}, its journal {component_digest}");
            Some(flaw(Code::ComponentDiffers, message))
        }
        _ if !around.has_component => {
            Some(flaw(Code::ComponentMissing, format!("component {digest} is not in the store: deploy it again")))
        }
        _ => None,
    }
}

fn shard(row: &Row, around: &Around) -> Option<Flaw> {
    let Shard(found) = row.shard;
    match around.shard {
        Some(Shard(expected)) if expected != found => {
            Some(flaw(Code::ShardWrong, format!("it is in shard {found} and belongs in shard {expected}")))
        }
        _ if found >= SHARDS => Some(flaw(Code::ShardWrong, format!("it is in shard {found}, and there are {SHARDS}"))),
        _ => None,
    }
}

/// Whether what it waits for can come.
fn waits(execution: &Execution) -> Vec<Flaw> {
    if execution.is_runnable() {
        return Vec::new();
    }
    let waits = waits::of(execution.journal());
    let mut flaws = Vec::new();
    for waiting in waits.waits_for.iter().chain(&waits.besides) {
        if let What::Signal { name, .. } = &waiting.what {
            let signals = execution.journal().fold().inbox(name);
            if signals.delivered > signals.consumed {
                flaws.push(flaw(Code::SignalNotTaken, format!("it waits for signal {name}, which is there")));
            }
        }
    }
    flaws
}

/// Whether the children that are under way are.
fn children(execution: &Execution, fates: &BTreeMap<ExecutionId, Fate>) -> Vec<Flaw> {
    let mut flaws = Vec::new();
    for flight in execution.in_flight() {
        let Some(child) = flight.performer.child() else { continue };
        let promise = execution.id().child(flight.number).relative_to(execution.id()).to_string();
        match fates.get(&child) {
            Some(Fate::Absent(which)) => {
                let message = format!("its child {which} ({promise}) is not there");
                flaws.push(flaw(Code::ChildMissing, message));
            }
            Some(Fate::Lost(which)) => {
                let message =
                    format!("its child {which} ({promise}) is over, and the result is neither recorded nor sent");
                flaws.push(flaw(Code::ChildResultLost, message));
            }
            Some(Fate::Alive | Fate::Sent) | None => {}
        }
    }
    flaws
}

/// Whether what workers are to perform is there for them.
fn tasks<'a>(execution: &'a Execution, tasks: &'a BTreeMap<u32, bool>) -> impl Iterator<Item = Flaw> + 'a {
    tasks.iter().filter(|(_, is_there)| !**is_there).map(|(number, _)| {
        let promise = execution.id().child(*number).relative_to(execution.id()).to_string();
        flaw(Code::TaskMissing, format!("a worker is to perform {promise}, and there is neither a task nor a result"))
    })
}

/// What is wrong with a task of this execution; nothing is known of one that cannot be read.
pub(super) fn task(task: &Task, execution: Option<&Execution>) -> Option<Flaw> {
    let is_wanted = execution.is_none_or(|execution| {
        let flight = execution.flight(task.promise).filter(|_| !execution.is_over());
        flight.is_some_and(|flight| (flight.attempt, flight.performer) == (task.attempt, Performer::Worker))
    });
    let words = || format!("a task of {} (attempt {}) is there, and nobody waits for it", task.function, task.attempt);
    (!is_wanted).then(|| flaw(Code::TaskOrphan, words()))
}

/// What is wrong with a message to the execution of this row; `unreadable` says why it cannot be read.
pub(super) fn message(message: &Message, unreadable: Option<String>, row: Option<&Row>) -> Vec<Flaw> {
    let number = message.message_id.0.unwrap_or_default();
    let Some(row) = row else {
        let words = format!("message {number} ({}) is for an execution that is not there", message.kind);
        return vec![flaw(Code::MessageOrphan, words)];
    };
    let mut flaws = Vec::new();
    if let Some(reason) = unreadable {
        flaws.push(flaw(Code::MessageUnreadable, format!("message {number} ({}): {reason}", message.kind)));
    }
    if message.shard != row.shard {
        let words = format!("message {number} is in shard {}, its execution in shard {}", message.shard, row.shard);
        flaws.push(flaw(Code::MessageShard, words));
    }
    flaws
}
