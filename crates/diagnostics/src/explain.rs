//! Explains why an execution makes no progress: what it waits for, since when, which process or
//! worker works on it, and what happens next.

use std::collections::BTreeMap;

use onward_api::explanation::{
    ExecutionExplanation, ExecutionOutcomeView, ExecutionOwner, PendingMessage, RaisedAlert,
    RelatedExecution,
};
use onward_api::waits::{ExecutionWait, WaitTarget, short_execution_id};
use onward_api::{DisplayText, RawJson, format_relative_time};
use onward_base::{SharedText, Timestamp};
use onward_engine::client::{ClientError, EngineClient, read_journal};
use onward_engine::shard::decode_message;
use onward_engine::{inbox, task_queue};
use onward_journal::{Event, ExecutionId, Journal};
use onward_store::tables::{
    AlertRow, ExecutionRow as Row, InboxMessageRow, ShardLeaseRow, TaskRow,
};
use onward_store::{ColumnCodec as _, Error, RecordReader as _, RowKey, Store, TableScan};

use crate::waits;

/// Hint on how to start a process, shown if none works on the store.
const START_PROCESS_HINT: &str =
    "no process works on this store: start one with `onward serve` or `onward node`";

/// The stored facts about an execution from which it is explained.
#[derive(Debug, Clone)]
pub struct ExecutionFacts {
    /// The row of the execution.
    pub row: Row,
    /// The journal of the execution.
    pub journal: Journal,
    /// Messages that the execution has not processed yet.
    pub messages: Vec<InboxMessageRow>,
    /// The lease on its shard; `None` if no process ever had one.
    pub lease: Option<ShardLeaseRow>,
    /// Whether any process has a valid lease on any shard.
    pub has_live_process: bool,
    /// Alerts raised about the execution.
    pub alerts: Vec<AlertRow>,
    /// States of its parent, its children and its successor, as far as their rows exist.
    pub relatives: BTreeMap<ExecutionId, String>,
    /// Its tasks that are queued for or claimed by workers, by operation number.
    pub tasks: BTreeMap<u32, TaskRow>,
    /// For each function of those tasks, the worker that asked for it last, and when.
    pub worker_registrations: BTreeMap<SharedText, (SharedText, Timestamp)>,
    /// Current time of the store.
    pub now: Timestamp,
}

/// Explains an execution from its stored facts, without I/O.
pub fn explain_facts(facts: &ExecutionFacts) -> ExecutionExplanation {
    let ExecutionFacts {
        row,
        journal,
        messages,
        alerts,
        relatives,
        tasks,
        now,
        ..
    } = facts;
    let mut waits = waits::pending_waits(journal);
    for waiting in waits.waits_for.iter_mut().chain(&mut waits.also_waits_for) {
        add_wait_details(waiting, relatives, tasks);
    }
    let mut explanation = ExecutionExplanation {
        execution: DisplayText(row.execution_id),
        function: row.function.to_string(),
        state: row.state.to_string(),
        since: DisplayText(
            journal
                .events()
                .last()
                .map_or(row.created_at, |last| last.timestamp),
        ),
        waits,
        outcome: describe_end(journal, relatives),
        owner: describe_owner(facts),
        pending_messages: messages.iter().map(describe_message).collect(),
        alerts: alerts.iter().map(describe_alert).collect(),
        parent: parent_execution(journal).map(|id| describe_relative(id, relatives)),
        next: Vec::new(),
        now: DisplayText(*now),
    };
    explanation.next = next_steps(facts, &explanation);
    explanation
}

/// Adds what the journal does not record: the state of a child, or the worker that has claimed a
/// task and the expiry of its lease.
fn add_wait_details(
    waiting: &mut ExecutionWait,
    relatives: &BTreeMap<ExecutionId, String>,
    tasks: &BTreeMap<u32, TaskRow>,
) {
    match &mut waiting.target {
        WaitTarget::Child {
            execution, state, ..
        } => {
            *state = Some(
                relatives
                    .get(&execution.0)
                    .cloned()
                    .unwrap_or_else(|| "missing".to_owned()),
            );
        }
        WaitTarget::Worker {
            function,
            attempt,
            worker,
            leased_until,
            ..
        } => {
            let is_same_attempt =
                |task: &&TaskRow| *task.function == **function && task.attempt == *attempt;
            let number = waiting
                .promise
                .as_deref()
                .and_then(|promise| promise.rsplit('.').next()?.parse().ok());
            let claimed = number
                .and_then(|number: u32| tasks.get(&number))
                .filter(is_same_attempt);
            if let Some(TaskRow {
                worker: Some(name),
                leased_until: claim_until,
                ..
            }) = claimed
            {
                *worker = Some(name.to_string());
                *leased_until = Some(DisplayText(*claim_until));
            }
        }
        _ => {}
    }
}

/// The execution that invoked the one of this journal.
pub(crate) fn parent_execution(journal: &Journal) -> Option<ExecutionId> {
    match &journal.events().first()?.event {
        Event::ExecutionStarted {
            parent_id: Some(parent),
            ..
        } => Some(parent.execution_root()),
        _ => None,
    }
}

/// The execution that the one of this journal continued as.
pub(crate) fn successor_execution(journal: &Journal) -> Option<ExecutionId> {
    journal.events().last()?.event.continued_as()
}

fn describe_relative(
    id: ExecutionId,
    relatives: &BTreeMap<ExecutionId, String>,
) -> RelatedExecution {
    RelatedExecution {
        execution: DisplayText(id),
        state: relatives.get(&id).cloned(),
    }
}

fn describe_end(
    journal: &Journal,
    relatives: &BTreeMap<ExecutionId, String>,
) -> Option<ExecutionOutcomeView> {
    match &journal.events().last()?.event {
        Event::ExecutionCompleted {
            continued_as: Some(next),
            ..
        } => Some(ExecutionOutcomeView::ContinuedAs(describe_relative(
            *next, relatives,
        ))),
        Event::ExecutionCompleted { result, .. } => {
            RawJson::parse(result.as_str()).map(ExecutionOutcomeView::Result)
        }
        Event::ExecutionFailed { error } => Some(ExecutionOutcomeView::Error(error.to_string())),
        Event::ExecutionCancelled { reason } => {
            Some(ExecutionOutcomeView::Cancelled(reason.to_string()))
        }
        _ => None,
    }
}

fn describe_owner(facts: &ExecutionFacts) -> ExecutionOwner {
    match &facts.lease {
        Some(lease) if lease.lease_until > facts.now => ExecutionOwner::Live {
            name: lease.node.to_string(),
            leased_until: DisplayText(lease.lease_until),
        },
        // A process that shuts down gracefully releases its lease; the lease of a killed process
        // expires.
        Some(lease) if lease.lease_until > Timestamp::MIN => ExecutionOwner::Expired {
            name: lease.node.to_string(),
            expired_at: DisplayText(lease.lease_until),
        },
        _ => ExecutionOwner::Unowned,
    }
}

fn describe_message(message: &InboxMessageRow) -> PendingMessage {
    let description = match decode_message(message) {
        Ok(Event::SignalDelivered { signal_name, .. }) => format!("signal {signal_name}"),
        Ok(Event::CancelRequested { reason }) => format!("a request to cancel: {reason}"),
        Ok(Event::InvokeCompleted {
            promise_id,
            attempt,
            ..
        }) => {
            let promise = promise_id.relative_to(message.execution_id).to_string();
            format!("the result of {promise}, attempt {attempt}")
        }
        Ok(other) => other.kind().to_string(),
        Err(error) => format!("a message that cannot be read: {error}"),
    };
    PendingMessage {
        description,
        sent_at: DisplayText(message.sent_at),
    }
}

fn describe_alert(alert: &AlertRow) -> RaisedAlert {
    RaisedAlert {
        code: alert.code.to_string(),
        message: alert.message.to_string(),
        raised_at: DisplayText(alert.raised_at),
    }
}

/// The next steps, most urgent first.
fn next_steps(facts: &ExecutionFacts, explained: &ExecutionExplanation) -> Vec<String> {
    let mut next = Vec::new();
    match &explained.outcome {
        Some(ExecutionOutcomeView::ContinuedAs(other)) => {
            next.push(format!(
                "it continued as another execution: onward why {}",
                short_execution_id(other.execution.0)
            ));
            return next;
        }
        Some(_) => {
            next.push("nothing: it has ended".to_owned());
            return next;
        }
        None => {}
    }
    match &explained.owner {
        ExecutionOwner::Live { .. } => {}
        ExecutionOwner::Expired { .. } if facts.has_live_process => {
            next.push(
                "the lease of its shard has expired; a running process takes the shard over"
                    .to_owned(),
            );
        }
        ExecutionOwner::Unowned if facts.has_live_process => {
            next.push("no process owns its shard; a running process takes it over".to_owned());
        }
        ExecutionOwner::Expired { .. } | ExecutionOwner::Unowned => {
            next.push(START_PROCESS_HINT.to_owned())
        }
    }
    if !explained.pending_messages.is_empty() {
        next.push(match explained.pending_messages.len() {
            1 => "the owner of its shard delivers 1 pending message".to_owned(),
            messages => format!("the owner of its shard delivers {messages} pending messages"),
        });
    }
    let mode = explained.waits.mode.as_deref();
    let is_on_its_way = |waiting: &&ExecutionWait| {
        explained
            .pending_messages
            .iter()
            .any(|it| it.description == waiting.target_name())
    };
    let open: Vec<&ExecutionWait> = explained
        .waits
        .waits_for
        .iter()
        .filter(|waiting| !is_on_its_way(waiting))
        .collect();
    let all = open.len();
    next.extend(
        open.into_iter()
            .take(SENTENCES_MAX)
            .map(|waiting| describe_next_step(waiting, mode, facts)),
    );
    if all > SENTENCES_MAX {
        next.push(format!("and {} more waits", all - SENTENCES_MAX));
    }
    next
}

/// Maximum number of sentences about open waits, to keep the output short for a join set with a
/// hundred members.
const SENTENCES_MAX: usize = 4;

/// Describes what happens next for one pending wait.
fn describe_next_step(
    waiting: &ExecutionWait,
    mode: Option<&str>,
    facts: &ExecutionFacts,
) -> String {
    let (id, now) = (short_execution_id(facts.row.execution_id), facts.now);
    let it_continues = if mode == Some("all") {
        "it continues, once the other waits have ended too,"
    } else {
        "it continues"
    };
    let when = |at: &DisplayText<Timestamp>| describe_due_time(at.0, now);
    match &waiting.target {
        WaitTarget::Code => "its code continues as soon as a process runs it".to_owned(),
        WaitTarget::Signal { name, deadline } => {
            let or = deadline
                .map(|at| format!("; without one it continues {}", when(&at)))
                .unwrap_or_default();
            format!(
                "{it_continues} when a signal `{name}` is delivered: onward signal {id} {name} [PAYLOAD]{or}"
            )
        }
        WaitTarget::Timer { fires_at } => format!("{it_continues} {}", when(fires_at)),
        WaitTarget::Start { function } => {
            format!("{function} is started as soon as a process runs it")
        }
        WaitTarget::Task {
            function,
            attempt,
            max_attempts,
        } => {
            let again = match max_attempts {
                Some(max) if attempt >= max => "this is the last attempt",
                _ => "if the attempt fails, it is retried",
            };
            format!("{it_continues} when {function} ends; {again}")
        }
        WaitTarget::Worker {
            function,
            worker: Some(worker),
            leased_until,
            ..
        } => {
            let expiry = leased_until.map(|at| describe_lease_expiry(&when(&at)));
            format!(
                "{it_continues} when worker {worker} completes {function}{}",
                expiry.unwrap_or_default()
            )
        }
        WaitTarget::Worker {
            function,
            worker: None,
            ..
        } => {
            let asked = describe_last_request(function, facts);
            format!("{it_continues} when a worker has claimed and completed {function}; {asked}")
        }
        WaitTarget::Retry {
            function, retry_at, ..
        } => format!("{function} is retried {}", when(retry_at)),
        WaitTarget::Child {
            function,
            execution,
            ..
        } => {
            format!(
                "{it_continues} when its child {function} ends: onward why {}",
                short_execution_id(execution.0)
            )
        }
    }
}

fn describe_lease_expiry(when: &str) -> String {
    format!("; its lease expires {when} unless it sends a heartbeat")
}

fn describe_due_time(at: Timestamp, now: Timestamp) -> String {
    if at <= now {
        "at once".to_owned()
    } else {
        format_relative_time(at, now)
    }
}

/// Describes which worker asked for tasks of a function last, and when.
fn describe_last_request(function: &str, facts: &ExecutionFacts) -> String {
    match facts.worker_registrations.get(function) {
        Some((worker, at)) => format!(
            "{worker} last asked for tasks of this function {}",
            format_relative_time(*at, facts.now)
        ),
        None => "no worker has ever asked for tasks of this function: check its name".to_owned(),
    }
}

/// Explains an execution of the client's scope. Fails if it does not exist there.
pub async fn explain_execution(
    client: &EngineClient,
    id: ExecutionId,
) -> Result<ExecutionExplanation, ClientError> {
    let row = client
        .find_execution(id)
        .await?
        .ok_or(ClientError::ExecutionNotFound(id))?;
    Ok(explain_facts(&gather_facts(&**client.store(), row).await?))
}

/// Reads the facts about an execution from the store.
pub async fn gather_facts(store: &dyn Store, row: Row) -> Result<ExecutionFacts, Error> {
    let id = row.execution_id;
    let journal = Journal::recover(id, read_journal(store, id).await?).map_err(Error::corrupt)?;
    let now = store.now().await?;
    let leases = list_leases(store, now).await?;
    let alerts: Vec<(AlertRow, u64)> = {
        let subject = onward_base::SharedText::from(id.to_string());
        store
            .list_records(
                TableScan::by_index::<AlertRow>(AlertRow::BY_SUBJECT).where_equal(&subject),
            )
            .await?
    };
    let relatives = read_relatives(store, &journal).await?;
    let tasks: Vec<(TaskRow, u64)> = store
        .list_records(TableScan::all_rows::<TaskRow>().where_equal(&id))
        .await?;
    let tasks: Vec<TaskRow> = tasks.into_iter().map(|(task, _)| task).collect();
    Ok(ExecutionFacts {
        worker_registrations: task_queue::worker_registrations(store, &tasks).await?,
        tasks: tasks.into_iter().map(|task| (task.promise, task)).collect(),
        messages: inbox::messages_to(store, row.shard, id).await?,
        has_live_process: leases.iter().any(|lease| lease.lease_until > now),
        lease: leases.into_iter().find(|lease| lease.shard == row.shard),
        alerts: alerts.into_iter().map(|(alert, _)| alert).collect(),
        row,
        journal,
        relatives,
        now,
    })
}

/// Reads the leases of all shards, current and past. The lease of a process that is known to be
/// dead counts as expired.
pub(crate) async fn list_leases(
    store: &dyn Store,
    now: Timestamp,
) -> Result<Vec<ShardLeaseRow>, Error> {
    let rows: Vec<(ShardLeaseRow, u64)> = store
        .list_records(TableScan::all_rows::<ShardLeaseRow>())
        .await?;
    let current = |(mut lease, _): (ShardLeaseRow, u64)| {
        if store.is_process_dead(&lease.node_id) {
            lease.lease_until = lease.lease_until.min(now);
        }
        lease
    };
    Ok(rows.into_iter().map(current).collect())
}

async fn read_relatives(
    store: &dyn Store,
    journal: &Journal,
) -> Result<BTreeMap<ExecutionId, String>, Error> {
    let waits = waits::pending_waits(journal);
    let child = |waiting: &ExecutionWait| match &waiting.target {
        WaitTarget::Child { execution, .. } => Some(execution.0),
        _ => None,
    };
    let children = waits
        .waits_for
        .iter()
        .chain(&waits.also_waits_for)
        .filter_map(child);
    let ids: Vec<ExecutionId> = children
        .chain(parent_execution(journal))
        .chain(successor_execution(journal))
        .collect();
    let mut found = BTreeMap::new();
    for id in ids {
        let row: Option<(Row, u64)> = store.read_record(RowKey(vec![id.to_value()])).await?;
        found.extend(row.map(|(row, _)| (id, row.state.to_string())));
    }
    Ok(found)
}
