//! One step of one execution: take in what happened, run the guest until it waits, start what it wants; and put all that was
//! done since the last commit into one.

use onward_execution::{Execution, Level, Progress, Start, World};
use onward_journal::{
    ComponentDigest, Delivery, ErrorKind, Event, ExecutionError, ExecutionId, InvokeKind, Name, Payload, Performer,
    RetryPolicy, Text, Timestamp, Violation, codec,
};
use onward_store::tables::{Execution as Row, Message, Task};
use onward_store::{Commit, JournalAppend};

use super::active::{AT_ONCE, Active, News, Pending, UNSTORED};
use super::core::{Core, in_doubt};
use super::task::Queued;
use super::{Action, Attempt, AttemptId, Entry, Resolved, Unready, message, task};
use crate::{client, work};

/// What a step came to.
#[derive(PartialEq, Eq)]
pub(super) enum Stepped {
    /// It has done what it can for now.
    Done,
    /// The guest has used up its slice of time.
    Paused,
}

/// Why an execution does not go on now.
pub(super) enum Halt {
    /// It cannot, and why.
    Stuck(String),
    /// There is no room for its guest.
    NoRoom,
    /// Its code is not in memory any more.
    NoCode,
}

impl From<String> for Halt {
    fn from(reason: String) -> Self {
        Self::Stuck(reason)
    }
}

impl From<Unready> for Halt {
    fn from(unready: Unready) -> Self {
        match unready {
            Unready::Code => Self::NoCode,
            Unready::Room => Self::NoRoom,
            Unready::Broken(_) => Self::Stuck(unready.to_string()),
        }
    }
}

pub(super) fn step(
    core: &mut Core,
    active: &mut Active,
    now: Timestamp,
    actions: &mut Vec<Action>,
) -> Result<Stepped, Halt> {
    loop {
        // A guest that has paused goes on first: it has not seen what is recorded so far.
        if !active.is_paused {
            take_news(core, active, now, actions)?;
            if !core.is_draining {
                active.execution.fire_due(now).map_err(|violation| broken(&violation))?;
                end_overdue(core, active, now, actions)?;
            }
        }
        match settle(core, active, now, actions)? {
            Progress::Paused => return Ok(Stepped::Paused),
            // The rest is for the next step.
            Progress::Full => break,
            Progress::Blocked | Progress::Ended | Progress::Diverged(_) => {}
        }
        // What comes for an execution that is over is not its business any more; what is too much is for the next step.
        if active.news.is_empty() || active.execution.is_over() || active.execution.is_full() {
            break;
        }
    }
    // What was given up before it was stored need not begin.
    if active.execution.is_over() {
        active.pending.attempts.clear();
    }
    let Pending { attempts, abandoned, .. } = &mut active.pending;
    attempts.retain(|attempt| !abandoned.contains(&attempt.id));
    Ok(Stepped::Done)
}

/// Runs the guest until it waits, and begins and ends what it wants begun and ended.
fn settle(core: &mut Core, active: &mut Active, now: Timestamp, actions: &mut Vec<Action>) -> Result<Progress, Halt> {
    loop {
        if active.execution.is_runnable() {
            match run(core, active, now, actions)? {
                Progress::Blocked | Progress::Ended => {}
                Progress::Paused => return Ok(Progress::Paused),
                // It goes on where it was before it is told anything new.
                Progress::Full => {
                    active.is_paused = true;
                    return Ok(Progress::Full);
                }
                Progress::Diverged(divergence) => return Err(divergence.to_string().into()),
            }
        }
        active.is_paused = false;
        drop_unwanted(core, active, now)?;
        start_attempts(core, active, now)?;
        if !active.execution.is_runnable() {
            return Ok(Progress::Blocked);
        }
    }
}

/// A rule of the journal forbids what the engine wants recorded: a defect.
fn broken(violation: &Violation) -> Halt {
    format!("the journal refuses what happened: {violation}").into()
}

/// Records what happened since the last step, as much as a step takes. Who asks for cancellation need not wait for that.
fn take_news(core: &mut Core, active: &mut Active, now: Timestamp, actions: &mut Vec<Action>) -> Result<(), Halt> {
    let is_cancel = |news: &News| matches!(news, News::Message(message, _) if message::is_cancel(message));
    if let Some(place) = active.news.iter().position(is_cancel)
        && let Some(cancel) = active.news.remove(place)
    {
        active.news.push_front(cancel);
    }
    while !active.execution.is_full()
        && let Some(news) = active.news.pop_front()
    {
        match news {
            News::Ended(id, result) => {
                let flight = active.execution.flight(id.number);
                let mut world = Surroundings::new(core, now);
                let is_taken = active
                    .execution
                    .end_attempt(id.number, id.attempt, result.clone(), &mut world)
                    .map_err(|violation| broken(&violation))?;
                if !is_taken {
                    actions.push(Action::Reported { attempt: id, is_taken });
                    continue;
                }
                active.pending.ended.push((id, result));
                if let Some(flight) = flight.filter(|flight| flight.performer == Performer::Worker) {
                    active.withdraw(flight);
                    active.pending.reported.push(id);
                }
            }
            News::Message(message, version) => {
                if !active.execution.is_over() {
                    take_message(core, active, &message, now)?;
                }
                active.pending.consumed.push((*message, version));
            }
        }
    }
    Ok(())
}

fn take_message(core: &mut Core, active: &mut Active, sent: &Message, now: Timestamp) -> Result<(), Halt> {
    match message::event(sent)? {
        Event::SignalDelivered { signal_name, payload, .. } => {
            active.execution.deliver_signal(&signal_name, payload, now).map_err(|violation| broken(&violation))
        }
        Event::CancelRequested { reason } => {
            if active.execution.request_cancel(reason.clone(), now).map_err(|violation| broken(&violation))? {
                let children: Vec<ExecutionId> =
                    active.execution.in_flight().filter_map(|flight| flight.performer.child()).collect();
                for child in children {
                    send_cancel(core, active, child, reason.clone(), now)?;
                }
            }
            Ok(())
        }
        Event::InvokeCompleted { promise_id, result, attempt } => {
            let number = promise_id.number_in(active.id()).unwrap_or(u32::MAX);
            let mut world = Surroundings::new(core, now);
            active
                .execution
                .end_attempt(number, attempt, result, &mut world)
                .map(drop)
                .map_err(|violation| broken(&violation))
        }
        other => Err(format!("a message cannot record {}", other.kind()).into()),
    }
}

fn send_cancel(core: &Core, active: &mut Active, to: ExecutionId, reason: Text, now: Timestamp) -> Result<(), Halt> {
    let message = message::cancel(to, core.shard, reason, now).map_err(|error| error.to_string())?;
    // Who is asked to stop because of a cancellation may be asked again because that was the end.
    let is_asked =
        |sent: &Message| (&sent.execution_id, &sent.dedup_key) == (&message.execution_id, &message.dedup_key);
    if !active.pending.sent.iter().any(is_asked) {
        active.pending.sent.push(message);
    }
    Ok(())
}

fn run(core: &mut Core, active: &mut Active, now: Timestamp, actions: &mut Vec<Action>) -> Result<Progress, Halt> {
    let mut guest = match active.guest.take() {
        Some(guest) => guest,
        None => {
            active.execution.rewind();
            let entry = Entry::of(&active.row, active.execution.journal());
            core.functions.guest(&entry.ok_or_else(|| "its journal does not begin with its start".to_owned())?)?
        }
    };
    let execution = active.id();
    let mut world = Surroundings::new(core, now);
    let progress = active.execution.run(&mut *guest, &mut world).map_err(|violation| broken(&violation))?;
    actions.extend(world.logs.into_iter().map(|(level, message)| Action::Log { execution, level, message }));
    if !active.execution.is_over() {
        active.guest = Some(guest);
    }
    Ok(progress)
}

/// Children and workers that have taken too long are asked to stop, and nobody waits for them.
fn end_overdue(core: &mut Core, active: &mut Active, now: Timestamp, actions: &mut Vec<Action>) -> Result<(), Halt> {
    if active.execution.is_over() {
        return Ok(());
    }
    for flight in active.execution.overdue(now) {
        match flight.performer {
            Performer::Child(child) => send_cancel(core, active, child, "it took too long".into(), now)?,
            Performer::Worker => active.withdraw(flight),
            Performer::Owner => {}
        }
        let is_once = matches!(
            active.execution.invocation(flight.number),
            Some(Event::InvokeScheduled { delivery: Delivery::AtMostOnce, .. })
        );
        let error = if is_once {
            // It may have been performed, and must not be again.
            actions.push(Action::InDoubt(active.attempt_of(flight)));
            in_doubt("it took longer than it may")
        } else {
            ExecutionError::new(ErrorKind::Timeout, "it took longer than it may")
        };
        let mut world = Surroundings::new(core, now);
        let ended = active.execution.end_attempt(flight.number, flight.attempt, Err(error), &mut world);
        ended.map_err(|violation| broken(&violation))?;
    }
    Ok(())
}

/// What the guest no longer wants: tasks are given up, children are asked to stop.
fn drop_unwanted(core: &Core, active: &mut Active, now: Timestamp) -> Result<(), Halt> {
    for number in active.execution.take_unwanted() {
        let flight = active.execution.flight(number);
        if let Some(child) = flight.and_then(|flight| flight.performer.child()) {
            send_cancel(core, active, child, "it is no longer wanted".into(), now)?;
            continue;
        }
        let error = ExecutionError::new(ErrorKind::Cancelled, "it is no longer wanted").permanent();
        active.execution.give_up(number, error, now).map_err(|violation| broken(&violation))?;
        match flight {
            Some(flight) if flight.performer == Performer::Worker => active.withdraw(flight),
            Some(flight) => active.pending.abandoned.push(active.attempt_of(flight)),
            None => {}
        }
    }
    Ok(())
}

/// Starts what the guest wants done: tasks once the step is durable, children as executions of their own. What is wanted from a
/// core that drains is for the next owner.
fn start_attempts(core: &mut Core, active: &mut Active, now: Timestamp) -> Result<(), Halt> {
    if active.execution.is_over() || core.is_draining {
        return Ok(());
    }
    for number in active.execution.startable(now) {
        let Some((function, input)) = invocation(&active.execution, number) else { continue };
        let resolved = resolve(core, active, number);
        match resolved {
            Resolved::Workflow(_) if depth(&active.row) >= DEPTH_MAX => {
                let message = format!("{DEPTH_MAX} workflows wait for each other already");
                fail_attempt(core, active, number, ExecutionError::named("too_deep", message).permanent(), now)?;
            }
            Resolved::Workflow(digest) => start_child(core, active, number, digest, &function, input, now)?,
            Resolved::Unknown => {
                let error = ExecutionError::named("unknown_function", format!("there is no function {function}"));
                fail_attempt(core, active, number, error, now)?;
            }
            Resolved::Worker => queue_task(core, active, number, now)?,
            Resolved::Task(_) | Resolved::Native => {
                let attempt = active
                    .execution
                    .start_attempt(number, Performer::Owner, now)
                    .map_err(|violation| broken(&violation))?;
                let id = AttemptId { execution: active.id(), number, attempt };
                active.pending.attempts.extend(self::attempt(core, active, id, resolved));
            }
        }
    }
    Ok(())
}

/// A task for a worker: it is there for whoever asks once the step is durable.
fn queue_task(core: &Core, active: &mut Active, number: u32, now: Timestamp) -> Result<(), Halt> {
    let started = active.execution.start_attempt(number, Performer::Worker, now);
    let attempt = started.map_err(|violation| broken(&violation))?;
    let id = AttemptId { execution: active.id(), number, attempt };
    let wanted = self::attempt(core, active, id, Resolved::Worker);
    let is_last = is_last(&active.execution, number, attempt);
    active.pending.tasks.extend(wanted.map(|wanted| Queued::new(&active.row, &wanted, is_last, now)));
    Ok(())
}

/// Whether no attempt follows this one, should it fail.
fn is_last(execution: &Execution, number: u32, attempt: u32) -> bool {
    let Some(Event::InvokeScheduled { retry_policy, .. }) = execution.invocation(number) else { return true };
    let usual = RetryPolicy::default();
    let policy = retry_policy.as_deref().unwrap_or(&usual);
    !policy.allows_retry(attempt, &work::deployed_meanwhile())
}

/// An attempt that ends as it starts.
fn fail_attempt(
    core: &mut Core,
    active: &mut Active,
    number: u32,
    error: ExecutionError,
    now: Timestamp,
) -> Result<(), Halt> {
    let started = active.execution.start_attempt(number, Performer::Owner, now);
    let attempt = started.map_err(|violation| broken(&violation))?;
    let mut world = Surroundings::new(core, now);
    let ended = active.execution.end_attempt(number, attempt, Err(error), &mut world);
    ended.map(drop).map_err(|violation| broken(&violation))
}

/// How many workflows may wait for each other, each for the next.
const DEPTH_MAX: u8 = 64;

/// How many wait for this one. The body of a row says so; nobody waits where there is none.
fn depth(row: &Row) -> u8 {
    row.body.first().copied().unwrap_or(0)
}

fn invocation(execution: &Execution, number: u32) -> Option<(Name, Payload)> {
    match execution.invocation(number)? {
        Event::InvokeScheduled { function_name, input, .. } => Some((function_name.clone(), input.clone())),
        _ => None,
    }
}

/// What an operation asks for.
pub(super) fn resolve(core: &Core, active: &Active, number: u32) -> Resolved {
    match active.execution.invocation(number) {
        Some(Event::InvokeScheduled { kind: InvokeKind::Http, .. }) => Resolved::Native,
        Some(Event::InvokeScheduled { function_name, .. }) => core.functions.resolve(active.caller(), function_name),
        _ => Resolved::Unknown,
    }
}

/// The attempt as whoever performs it needs it.
pub(super) fn attempt(core: &Core, active: &Active, id: AttemptId, resolved: Resolved) -> Option<Attempt> {
    let Some(Event::InvokeScheduled { kind, function_name, input, retry_policy, delivery, .. }) =
        active.execution.invocation(id.number)
    else {
        return None;
    };
    let sender = match kind {
        InvokeKind::Function => &**function_name,
        InvokeKind::Http => &*active.row.function,
    };
    Some(Attempt {
        id,
        performance: 0,
        hosts: core.functions.hosts(active.caller(), sender),
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
    core: &Core,
    active: &mut Active,
    number: u32,
    component_digest: ComponentDigest,
    function: &Name,
    input: Payload,
    now: Timestamp,
) -> Result<(), Halt> {
    let parent = active.id().child(number);
    // The id says which attempt it is: one that failed is not found again by the next.
    let attempt = active.execution.next_attempt(number);
    let key = attempt.to_string();
    let id = ExecutionId::derive(&component_digest, Some(&parent), &key);
    active.execution.start_attempt(number, Performer::Child(id), now).map_err(|violation| broken(&violation))?;
    let start =
        Start { component_digest, input, parent: Some(parent), key: Some(key.as_str().into()), signals: Vec::new() };
    let execution = Execution::start(id, start, now, core.options.limits).map_err(|violation| broken(&violation))?;
    let (function, body) = (Text::from(&**function), [depth(&active.row) + 1].into());
    let row = Row { function, component_digest, body, ..row_beside(active, id, now) };
    active.pending.children.push(Active::new(row, 1, execution, now));
    Ok(())
}

/// The row of another execution that begins now and belongs to the same owner.
fn row_beside(active: &Active, execution_id: ExecutionId, now: Timestamp) -> Row {
    let state = "Running".into();
    Row { execution_id, start_key: None, state, wake_at: AT_ONCE, created_at: now, ..active.row.clone() }
}

/// Everything since the last commit, in one; nothing if there is nothing to record.
pub(super) fn compose(core: &mut Core, active: &mut Active, now: Timestamp) -> Result<Option<Commit>, Halt> {
    let mut commit = Commit::new().fence(core.shard, core.epoch);
    if active.execution.is_over() {
        end(core, active, now)?;
    }
    let append = append(&mut active.execution)?;
    let has_events = append.is_some();
    active.pending.recorded = append.as_ref().map_or(0..0, |it| it.expected..it.expected + u64::from(it.count));
    commit.journals.extend(append);
    let (state, wake_at) = active.standing();
    let is_new = active.version == UNSTORED;
    active.pending.changes_row = is_new || &*active.row.state != state || active.row.wake_at != wake_at;
    if active.pending.changes_row {
        active.row.state = state.into();
        active.row.wake_at = wake_at;
        commit = if is_new { commit.insert(&active.row) } else { commit.update(&active.row, active.version) };
    }
    for child in &mut active.pending.children {
        commit.journals.extend(self::append(&mut child.execution)?);
        commit = commit.insert(&child.row);
    }
    for task in &mut active.pending.tasks {
        task.seat(&core.offers, &active.owner, || client::key_from(&mut *core.entropy).into(), now);
        commit = commit.insert(&task.row);
    }
    for withdrawn in &active.pending.withdrawn {
        commit = commit.remove::<Task>(task::key(*withdrawn));
    }
    for message in &active.pending.sent {
        commit = commit.insert_or_keep(message);
    }
    for (message, version) in &active.pending.consumed {
        commit = message::take(commit, message, *version);
    }
    let Pending { attempts, ahead, .. } = &active.pending;
    commit.is_unhurried =
        attempts.iter().any(Attempt::reaches_nobody) || ahead.iter().rev().any(|id| core.is_performing(id));
    let Pending { attempts, consumed, changes_row, .. } = &active.pending;
    let is_empty = !has_events && !changes_row && consumed.is_empty() && attempts.is_empty();
    Ok((!is_empty).then_some(commit))
}

fn append(execution: &mut Execution) -> Result<Option<JournalAppend>, Halt> {
    let (id, expected) = (execution.id(), execution.taken());
    let events = execution.take_events();
    if events.is_empty() {
        return Ok(None);
    }
    let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
    let records = codec::encode(id, events).map_err(|error| format!("its events cannot be stored: {error}"))?;
    Ok(Some(JournalAppend { execution: id, expected, count, records: records.into() }))
}

/// The end of an execution: whoever waits for it is told, its children are asked to stop, its successor starts.
fn end(core: &Core, active: &mut Active, now: Timestamp) -> Result<(), Halt> {
    for flight in active.execution.in_flight().collect::<Vec<_>>() {
        match flight.performer {
            Performer::Child(child) => send_cancel(core, active, child, "whoever wanted it is over".into(), now)?,
            Performer::Worker => active.withdraw(flight),
            Performer::Owner => {}
        }
    }
    if let Some(successor) = active.execution.successor() {
        let Some(Event::ExecutionStarted { component_digest, parent_id, .. }) =
            active.execution.journal().events().first().map(|first| first.event.clone())
        else {
            return Err("its journal does not begin with its start".to_owned().into());
        };
        // Whose place it takes; a child's key begins with the attempt that it performs.
        let id = active.id();
        let key = active.parent().map_or_else(|| id.to_string(), |(_, attempt)| format!("{attempt}~{id}"));
        let key = Some(Text::from(key.as_str()));
        let start =
            Start { component_digest, input: successor.input, parent: parent_id, key, signals: successor.signals };
        let execution = Execution::start(successor.execution, start, now, core.options.limits)
            .map_err(|violation| broken(&violation))?;
        let row = row_beside(active, successor.execution, now);
        active.pending.children.push(Active::new(row, 1, execution, now));
    } else if let (Some((parent, attempt)), Some(result)) = (active.parent(), active.execution.result()) {
        let message = message::result(&parent, core.shard, attempt, result, now).map_err(|error| error.to_string())?;
        active.pending.sent.push(message);
    }
    Ok(())
}

/// The world as an execution sees it during a step.
struct Surroundings<'a> {
    now: Timestamp,
    entropy: &'a mut (dyn FnMut(&mut [u8]) + Send),
    logs: Vec<(Level, Text)>,
}

impl<'a> Surroundings<'a> {
    fn new(core: &'a mut Core, now: Timestamp) -> Self {
        Self { now, entropy: &mut *core.entropy, logs: Vec::new() }
    }
}

impl World for Surroundings<'_> {
    fn now(&mut self) -> Timestamp {
        self.now
    }

    fn entropy(&mut self, bytes: &mut [u8]) {
        (self.entropy)(bytes);
    }

    fn log(&mut self, level: Level, message: &str) {
        self.logs.push((level, message.into()));
    }
}
