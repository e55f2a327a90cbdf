//! Why an execution does not go on: what it waits for, since when, who works on it, and what happens next.

use std::collections::BTreeMap;

use onward_api::explanation::{End, Explanation, OnItsWay, Owner, Raised, Relative};
use onward_api::waits::{Waiting, What, short};
use onward_api::{Json, Shown, ago};
use onward_journal::{Event, ExecutionId, Journal, Text, Timestamp};
use onward_store::tables::{Alert, Execution as Row, Message, ShardLease, Task};
use onward_store::{Error, Field as _, Key, Records as _, Scan, Store};

use crate::client::{Client, Refused, read_journal};
use crate::shard::message_event;
use crate::{inbox, waits, work};

/// How to run one; said wherever none runs.
const START_ONE: &str = "no process works on this store: start one with `onward serve` or `onward node`";

/// What is known of an execution, for whoever explains it.
#[derive(Debug, Clone)]
pub struct Facts {
    /// Its row.
    pub row: Row,
    /// Its journal.
    pub journal: Journal,
    /// What is on its way to it.
    pub messages: Vec<Message>,
    /// The lease on its shard, if anybody ever had one.
    pub lease: Option<ShardLease>,
    /// Whether somebody has a lease on any shard.
    pub is_anybody_there: bool,
    /// What people should know about it.
    pub alerts: Vec<Alert>,
    /// The states of its parent, of its children and of its successor, as far as they are there.
    pub relatives: BTreeMap<ExecutionId, String>,
    /// The tasks that workers perform for it, or will, by the number of the operation.
    pub tasks: BTreeMap<u32, Task>,
    /// Who has asked for those functions last, and when.
    pub asked: BTreeMap<Text, (Text, Timestamp)>,
    /// The time of the store.
    pub now: Timestamp,
}

/// Explains an execution from what is known of it.
pub fn explain(facts: &Facts) -> Explanation {
    let Facts { row, journal, messages, alerts, relatives, tasks, now, .. } = facts;
    let mut waits = waits::of(journal);
    for waiting in waits.waits_for.iter_mut().chain(&mut waits.besides) {
        match &mut waiting.what {
            What::Child { execution, state, .. } => {
                *state = Some(relatives.get(&execution.0).cloned().unwrap_or_else(|| "not there".to_owned()));
            }
            What::Worker { function, attempt, worker, until, .. } => {
                let is_it = |task: &&Task| *task.function == **function && task.attempt == *attempt;
                let number = waiting.promise.as_deref().and_then(|promise| promise.rsplit('.').next()?.parse().ok());
                let claimed = number.and_then(|number: u32| tasks.get(&number)).filter(is_it);
                if let Some(Task { worker: Some(name), leased_until, .. }) = claimed {
                    (*worker, *until) = (Some(name.to_string()), Some(Shown(*leased_until)));
                }
            }
            _ => {}
        }
    }
    let mut explanation = Explanation {
        execution: Shown(row.execution_id),
        function: row.function.to_string(),
        state: row.state.to_string(),
        since: Shown(journal.events().last().map_or(row.created_at, |last| last.timestamp)),
        waits,
        end: end(journal, relatives),
        owner: owner(facts),
        on_its_way: messages.iter().map(on_its_way).collect(),
        alerts: alerts.iter().map(raised).collect(),
        parent: parent(journal).map(|id| relative(id, relatives)),
        next: Vec::new(),
        now: Shown(*now),
    };
    explanation.next = next(facts, &explanation);
    explanation
}

/// The execution that called the one of this journal.
pub(crate) fn parent(journal: &Journal) -> Option<ExecutionId> {
    match &journal.events().first()?.event {
        Event::ExecutionStarted { parent_id: Some(parent), .. } => Some(parent.execution_root()),
        _ => None,
    }
}

/// The execution that took the place of the one of this journal.
pub(crate) fn successor(journal: &Journal) -> Option<ExecutionId> {
    journal.events().last()?.event.successor()
}

fn relative(id: ExecutionId, relatives: &BTreeMap<ExecutionId, String>) -> Relative {
    Relative { execution: Shown(id), state: relatives.get(&id).cloned() }
}

fn end(journal: &Journal, relatives: &BTreeMap<ExecutionId, String>) -> Option<End> {
    match &journal.events().last()?.event {
        Event::ExecutionCompleted { continued_as: Some(next), .. } => {
            Some(End::ContinuedAs(relative(*next, relatives)))
        }
        Event::ExecutionCompleted { result, .. } => Json::parse(result.as_str()).map(End::Result),
        Event::ExecutionFailed { error } => Some(End::Error(error.to_string())),
        Event::ExecutionCancelled { reason } => Some(End::Cancelled(reason.to_string())),
        _ => None,
    }
}

fn owner(facts: &Facts) -> Owner {
    match &facts.lease {
        Some(lease) if lease.lease_until > facts.now => {
            Owner::Process { name: lease.node.to_string(), until: Shown(lease.lease_until) }
        }
        // Who stops in order gives its lease up; who is killed leaves it to run out.
        Some(lease) if lease.lease_until > Timestamp::MIN => {
            Owner::Gone { name: lease.node.to_string(), since: Shown(lease.lease_until) }
        }
        _ => Owner::Nobody,
    }
}

fn on_its_way(message: &Message) -> OnItsWay {
    let what = match message_event(message) {
        Ok(Event::SignalDelivered { signal_name, .. }) => format!("signal {signal_name}"),
        Ok(Event::CancelRequested { reason }) => format!("a request to cancel: {reason}"),
        Ok(Event::InvokeCompleted { promise_id, attempt, .. }) => {
            let promise = promise_id.relative_to(message.execution_id).to_string();
            format!("the result of {promise}, attempt {attempt}")
        }
        Ok(other) => other.kind().to_string(),
        Err(error) => format!("a message that cannot be read: {error}"),
    };
    OnItsWay { what, sent_at: Shown(message.sent_at) }
}

fn raised(alert: &Alert) -> Raised {
    Raised { code: alert.code.to_string(), message: alert.message.to_string(), raised_at: Shown(alert.raised_at) }
}

/// What happens next, the most urgent first.
fn next(facts: &Facts, explained: &Explanation) -> Vec<String> {
    let mut next = Vec::new();
    match &explained.end {
        Some(End::ContinuedAs(other)) => {
            next.push(format!("it goes on as another execution: onward why {}", short(other.execution.0)));
            return next;
        }
        Some(_) => {
            next.push("nothing: it is over".to_owned());
            return next;
        }
        None => {}
    }
    match &explained.owner {
        Owner::Process { .. } => {}
        Owner::Gone { .. } if facts.is_anybody_there => {
            next.push("its lease has run out; the next process to look at the store takes it over".to_owned());
        }
        Owner::Nobody if facts.is_anybody_there => {
            next.push("nobody owns its shard; the next process to look at the store takes it over".to_owned());
        }
        Owner::Gone { .. } | Owner::Nobody => next.push(START_ONE.to_owned()),
    }
    if !explained.on_its_way.is_empty() {
        next.push(match explained.on_its_way.len() {
            1 => "it is told what is on its way to it".to_owned(),
            messages => format!("it is told the {messages} things that are on their way to it"),
        });
    }
    let mode = explained.waits.mode.as_deref();
    let is_on_its_way = |waiting: &&Waiting| explained.on_its_way.iter().any(|it| it.what == waiting.name());
    let open: Vec<&Waiting> = explained.waits.waits_for.iter().filter(|waiting| !is_on_its_way(waiting)).collect();
    let all = open.len();
    next.extend(open.into_iter().take(SENTENCES_MAX).map(|waiting| follows(waiting, mode, facts)));
    if all > SENTENCES_MAX {
        next.push(format!("and so on for {} more", all - SENTENCES_MAX));
    }
    next
}

/// Nobody reads a hundred sentences about a hundred members of a join set.
const SENTENCES_MAX: usize = 4;

/// What follows from one thing that is waited for.
fn follows(waiting: &Waiting, mode: Option<&str>, facts: &Facts) -> String {
    let (id, now) = (short(facts.row.execution_id), facts.now);
    let it_goes_on = if mode == Some("all") { "it goes on, once the others have ended too," } else { "it goes on" };
    let when = |at: &Shown<Timestamp>| if at.0 <= now { "at once".to_owned() } else { ago(at.0, now) };
    match &waiting.what {
        What::Code => "its code goes on as soon as a process runs it".to_owned(),
        What::Signal { name, deadline } => {
            let or = deadline.map(|at| format!("; without one {}", when(&at))).unwrap_or_default();
            format!("{it_goes_on} when a signal `{name}` is delivered: onward signal {id} {name} [PAYLOAD]{or}")
        }
        What::Timer { until } => format!("{it_goes_on} {}", when(until)),
        What::Start { function } => format!("{function} is started as soon as a process runs it"),
        What::Task { function, attempt, attempts } => {
            let again = match attempts {
                Some(all) if attempt >= all => "it was the last attempt",
                _ => "if that fails, it is tried again",
            };
            format!("{it_goes_on} when {function} ends; {again}")
        }
        What::Worker { function, worker: Some(worker), until, .. } => {
            let lost = until.map(|at| format!("; unless that one is heard of, it is lost {}", when(&at)));
            format!("{it_goes_on} when worker {worker} ends {function}{}", lost.unwrap_or_default())
        }
        What::Worker { function, worker: None, .. } => {
            let asked = match facts.asked.get(function.as_str()) {
                Some((worker, at)) => format!("{worker} asked for such a task {}", ago(*at, now)),
                None => "none has ever asked for such a task: is the name right?".to_owned(),
            };
            format!("{it_goes_on} when a worker has asked for {function} and ended it; {asked}")
        }
        What::Retry { function, at, .. } => format!("{function} is tried again {}", when(at)),
        What::Child { function, execution, .. } => {
            format!("{it_goes_on} when its child {function} ends: onward why {}", short(execution.0))
        }
    }
}

/// Explains an execution of the client's scope.
pub async fn of(client: &Client, id: ExecutionId) -> Result<Explanation, Refused> {
    let row = client.execution(id).await?.ok_or(Refused::NoExecution(id))?;
    Ok(explain(&gather(&**client.store(), row).await?))
}

/// Reads what there is to know of an execution.
pub async fn gather(store: &dyn Store, row: Row) -> Result<Facts, Error> {
    let id = row.execution_id;
    let journal = Journal::recover(id, read_journal(store, id).await?).map_err(Error::corrupt)?;
    let now = store.now().await?;
    let leases = leases(store, now).await?;
    let alerts: Vec<(Alert, u64)> = {
        let subject = onward_journal::Text::from(id.to_string());
        store.list(Scan::by::<Alert>(Alert::BY_SUBJECT).equal(&subject)).await?
    };
    let relatives = relatives(store, &journal).await?;
    let tasks: Vec<(Task, u64)> = store.list(Scan::all::<Task>().equal(&id)).await?;
    let tasks: Vec<Task> = tasks.into_iter().map(|(task, _)| task).collect();
    Ok(Facts {
        asked: work::asked_for(store, &tasks).await?,
        tasks: tasks.into_iter().map(|task| (task.promise, task)).collect(),
        messages: inbox::messages_to(store, row.shard, id).await?,
        is_anybody_there: leases.iter().any(|lease| lease.lease_until > now),
        lease: leases.into_iter().find(|lease| lease.shard == row.shard),
        alerts: alerts.into_iter().map(|(alert, _)| alert).collect(),
        row,
        journal,
        relatives,
        now,
    })
}

/// Who owns, or owned, which shard. Of those who are known to be gone, the lease has run out.
pub(crate) async fn leases(store: &dyn Store, now: Timestamp) -> Result<Vec<ShardLease>, Error> {
    let rows: Vec<(ShardLease, u64)> = store.list(Scan::all::<ShardLease>()).await?;
    let current = |(mut lease, _): (ShardLease, u64)| {
        if store.is_gone(&lease.node_id) {
            lease.lease_until = lease.lease_until.min(now);
        }
        lease
    };
    Ok(rows.into_iter().map(current).collect())
}

async fn relatives(store: &dyn Store, journal: &Journal) -> Result<BTreeMap<ExecutionId, String>, Error> {
    let waits = waits::of(journal);
    let child = |waiting: &Waiting| match &waiting.what {
        What::Child { execution, .. } => Some(execution.0),
        _ => None,
    };
    let children = waits.waits_for.iter().chain(&waits.besides).filter_map(child);
    let ids: Vec<ExecutionId> = children.chain(parent(journal)).chain(successor(journal)).collect();
    let mut found = BTreeMap::new();
    for id in ids {
        let row: Option<(Row, u64)> = store.get(Key(vec![id.to_value()])).await?;
        found.extend(row.map(|(row, _)| (id, row.state.to_string())));
    }
    Ok(found)
}

/// Whether a process works on a shard now, and whether any works on the store at all.
pub async fn is_owned(store: &dyn Store, shard: onward_store::Shard) -> Result<(bool, bool), Error> {
    let now = store.now().await?;
    let leases = leases(store, now).await?;
    let is_current = |lease: &&ShardLease| lease.lease_until > now;
    let any = leases.iter().any(|lease| is_current(&lease));
    Ok((leases.iter().filter(is_current).any(|lease| lease.shard == shard), any))
}
