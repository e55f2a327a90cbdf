//! One step of one execution: record inputs, run the guest until it waits, start the operations it
//! requests; and compose one commit of everything since the last.

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_execution::{
    Execution, ExecutionEnvironment, ExecutionProgress, ExecutionStart, GuestLogLevel,
};
use onward_journal::{
    ComponentDigest, DeliveryGuarantee, ErrorKind, Event, ExecutionError, ExecutionId, InvokeKind,
    InvokePerformer, RetryPolicy, RuleViolation, codec,
};
use onward_store::tables::{ExecutionRow as Row, InboxMessageRow, TaskRow};
use onward_store::{Commit, JournalAppend};

use super::active_execution::{
    ActiveExecution, PendingEffects, PendingInput, VERSION_UNSTORED, WAKE_NOW,
};
use super::shard_core::{ShardCore, in_doubt_error};
use super::task_row::QueuedTask;
use super::{
    AttemptId, GuestEntry, GuestUnavailable, ResolvedFunction, ShardAction, TaskAttempt, message,
    task_row,
};
use crate::{client, task_queue};

/// Result of a step.
#[derive(PartialEq, Eq)]
pub(super) enum StepProgress {
    /// The execution has advanced as far as it can for now.
    Done,
    /// The guest has used up its time slice.
    Paused,
}

/// Reason why an execution cannot advance now.
pub(super) enum StepBlocked {
    /// It is stuck, with the reason.
    Stuck(String),
    /// There is no capacity for its guest.
    NoCapacity,
    /// Its code is no longer in memory.
    CodeNotLoaded,
}

impl From<String> for StepBlocked {
    fn from(reason: String) -> Self {
        Self::Stuck(reason)
    }
}

impl From<GuestUnavailable> for StepBlocked {
    fn from(unready: GuestUnavailable) -> Self {
        match unready {
            GuestUnavailable::CodeNotLoaded => Self::CodeNotLoaded,
            GuestUnavailable::NoCapacity => Self::NoCapacity,
            GuestUnavailable::BrokenCode(_) => Self::Stuck(unready.to_string()),
        }
    }
}

pub(super) fn run_step(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
    actions: &mut Vec<ShardAction>,
) -> Result<StepProgress, StepBlocked> {
    loop {
        // A paused guest continues first: it has not yet seen everything that is recorded.
        if !active.is_paused {
            record_inputs(core, active, now, actions)?;
            if !core.is_draining {
                active
                    .execution
                    .fire_due_timers(now)
                    .map_err(|violation| journal_refused(&violation))?;
                fail_overdue_attempts(core, active, now, actions)?;
            }
        }
        match run_until_blocked(core, active, now, actions)? {
            ExecutionProgress::Paused => return Ok(StepProgress::Paused),
            // The next step handles the rest.
            ExecutionProgress::BatchFull => break,
            ExecutionProgress::Blocked
            | ExecutionProgress::Ended
            | ExecutionProgress::Diverged(_) => {}
        }
        // Inputs of an execution that has ended are not recorded; inputs beyond the batch limit are
        // left to the next step.
        if active.inputs.is_empty()
            || active.execution.is_terminal()
            || active.execution.is_batch_full()
        {
            break;
        }
    }
    // Attempts that were abandoned before they were stored need not start.
    if active.execution.is_terminal() {
        active.pending.attempts.clear();
    }
    let PendingEffects {
        attempts,
        abandoned,
        ..
    } = &mut active.pending;
    attempts.retain(|attempt| !abandoned.contains(&attempt.id));
    Ok(StepProgress::Done)
}

/// Runs the guest until it waits, and starts and abandons operations as it requests.
fn run_until_blocked(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
    actions: &mut Vec<ShardAction>,
) -> Result<ExecutionProgress, StepBlocked> {
    loop {
        if active.execution.is_runnable() {
            match run_guest(core, active, now, actions)? {
                ExecutionProgress::Blocked | ExecutionProgress::Ended => {}
                ExecutionProgress::Paused => return Ok(ExecutionProgress::Paused),
                // The guest continues where it was before it receives new inputs.
                ExecutionProgress::BatchFull => {
                    active.is_paused = true;
                    return Ok(ExecutionProgress::BatchFull);
                }
                ExecutionProgress::Diverged(divergence) => {
                    return Err(divergence.to_string().into());
                }
            }
        }
        active.is_paused = false;
        drop_unwanted_attempts(core, active, now)?;
        start_attempts(core, active, now)?;
        if !active.execution.is_runnable() {
            return Ok(ExecutionProgress::Blocked);
        }
    }
}

/// The journal's rules forbid an event that the engine has to record, which is a defect of the
/// engine.
fn journal_refused(violation: &RuleViolation) -> StepBlocked {
    format!("the journal refuses what happened: {violation}").into()
}

/// Records the inputs since the last step, up to the batch limit. A cancellation request is
/// recorded first.
fn record_inputs(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
    actions: &mut Vec<ShardAction>,
) -> Result<(), StepBlocked> {
    let is_cancel = |news: &PendingInput| matches!(news, PendingInput::Message(message, _) if message::is_cancel(message));
    if let Some(place) = active.inputs.iter().position(is_cancel)
        && let Some(cancel) = active.inputs.remove(place)
    {
        active.inputs.push_front(cancel);
    }
    while !active.execution.is_batch_full()
        && let Some(news) = active.inputs.pop_front()
    {
        match news {
            PendingInput::AttemptEnded(id, result) => {
                let flight = active.execution.attempt_in_flight(id.number);
                let mut world = StepWorld::new(core, now);
                let is_taken = active
                    .execution
                    .end_attempt(id.number, id.attempt, result.clone(), &mut world)
                    .map_err(|violation| journal_refused(&violation))?;
                if !is_taken {
                    actions.push(ShardAction::WorkerResultSettled {
                        attempt: id,
                        is_recorded: is_taken,
                    });
                    continue;
                }
                active.pending.ended_attempts.push((id, result));
                if let Some(flight) =
                    flight.filter(|flight| flight.performer == InvokePerformer::Worker)
                {
                    active.withdraw_task(flight);
                    active.pending.worker_results.push(id);
                }
            }
            PendingInput::Message(message, version) => {
                if !active.execution.is_terminal() {
                    record_message(core, active, &message, now)?;
                }
                active.pending.consumed.push((*message, version));
            }
        }
    }
    Ok(())
}

fn record_message(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    sent: &InboxMessageRow,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    match message::decode_message(sent)? {
        Event::SignalDelivered {
            signal_name,
            payload,
            ..
        } => active
            .execution
            .deliver_signal(&signal_name, payload, now)
            .map_err(|violation| journal_refused(&violation)),
        Event::CancelRequested { reason } => {
            if active
                .execution
                .request_cancel(reason.clone(), now)
                .map_err(|violation| journal_refused(&violation))?
            {
                let children: Vec<ExecutionId> = active
                    .execution
                    .attempts_in_flight()
                    .filter_map(|flight| flight.performer.child_execution())
                    .collect();
                for child in children {
                    send_cancel(core, active, child, reason.clone(), now)?;
                }
            }
            Ok(())
        }
        Event::InvokeCompleted {
            promise_id,
            result,
            attempt,
        } => {
            let number = promise_id.child_number_in(active.id()).unwrap_or(u32::MAX);
            let mut world = StepWorld::new(core, now);
            active
                .execution
                .end_attempt(number, attempt, result, &mut world)
                .map(drop)
                .map_err(|violation| journal_refused(&violation))
        }
        other => Err(format!("a message cannot record {}", other.kind()).into()),
    }
}

fn send_cancel(
    core: &ShardCore,
    active: &mut ActiveExecution,
    to: ExecutionId,
    reason: SharedText,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    let message =
        message::cancel_message(to, core.shard, reason, now).map_err(|error| error.to_string())?;
    // A child that was asked to stop because of a cancellation may be asked again when the
    // execution ends.
    let is_asked = |sent: &InboxMessageRow| {
        (&sent.execution_id, &sent.dedup_key) == (&message.execution_id, &message.dedup_key)
    };
    if !active.pending.sent.iter().any(is_asked) {
        active.pending.sent.push(message);
    }
    Ok(())
}

fn run_guest(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
    actions: &mut Vec<ShardAction>,
) -> Result<ExecutionProgress, StepBlocked> {
    let mut guest = match active.guest.take() {
        Some(guest) => guest,
        None => {
            active.execution.rewind_guest();
            let entry = GuestEntry::from_journal(&active.row, active.execution.journal());
            core.functions.create_guest(
                &entry.ok_or_else(|| "its journal does not begin with its start".to_owned())?,
            )?
        }
    };
    let execution = active.id();
    let mut world = StepWorld::new(core, now);
    let progress = active
        .execution
        .run(&mut *guest, &mut world)
        .map_err(|violation| journal_refused(&violation))?;
    actions.extend(
        world
            .logs
            .into_iter()
            .map(|(level, message)| ShardAction::Log {
                execution,
                level,
                message,
            }),
    );
    if !active.execution.is_terminal() {
        active.guest = Some(guest);
    }
    Ok(progress)
}

/// Ends attempts of children and workers whose timeout has passed: children are cancelled, tasks
/// are withdrawn.
fn fail_overdue_attempts(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
    actions: &mut Vec<ShardAction>,
) -> Result<(), StepBlocked> {
    if active.execution.is_terminal() {
        return Ok(());
    }
    for flight in active.execution.overdue_attempts(now) {
        match flight.performer {
            InvokePerformer::Child(child) => {
                send_cancel(core, active, child, "it took too long".into(), now)?
            }
            InvokePerformer::Worker => active.withdraw_task(flight),
            InvokePerformer::Owner => {}
        }
        let is_once = matches!(
            active.execution.invocation_event(flight.number),
            Some(Event::InvokeScheduled {
                delivery: DeliveryGuarantee::AtMostOnce,
                ..
            })
        );
        let error = if is_once {
            // It may have been performed and must not be repeated.
            actions.push(ShardAction::InDoubt(active.attempt_id_of(flight)));
            in_doubt_error("it took longer than it may")
        } else {
            ExecutionError::new(ErrorKind::Timeout, "it took longer than it may")
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
fn drop_unwanted_attempts(
    core: &ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    for number in active.execution.take_abandoned() {
        let flight = active.execution.attempt_in_flight(number);
        if let Some(child) = flight.and_then(|flight| flight.performer.child_execution()) {
            send_cancel(core, active, child, "it is no longer wanted".into(), now)?;
            continue;
        }
        let error =
            ExecutionError::new(ErrorKind::Cancelled, "it is no longer wanted").into_permanent();
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
fn start_attempts(
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
            ResolvedFunction::Workflow(_) if call_depth(&active.row) >= CALL_DEPTH_MAX => {
                let message = format!("{CALL_DEPTH_MAX} workflows wait for each other already");
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
                    format!("there is no function {function}"),
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
    let wanted = self::build_attempt(core, active, id, ResolvedFunction::Worker);
    let is_last = is_last_attempt(&active.execution, number, attempt);
    active
        .pending
        .tasks
        .extend(wanted.map(|wanted| QueuedTask::new(&active.row, &wanted, is_last, now)));
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

/// Maximum depth of nested workflow calls.
const CALL_DEPTH_MAX: u8 = 64;

/// Depth of nested calls above this execution, stored as the first byte of the row's body; 0 if the
/// body is empty.
fn call_depth(row: &Row) -> u8 {
    row.body.first().copied().unwrap_or(0)
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
        [call_depth(&active.row) + 1].into(),
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
fn sibling_row(active: &ActiveExecution, execution_id: ExecutionId, now: Timestamp) -> Row {
    let state = "Running".into();
    Row {
        execution_id,
        start_key: None,
        state,
        wake_at: WAKE_NOW,
        created_at: now,
        ..active.row.clone()
    }
}

/// Composes one commit of everything since the last commit; `None` if there is nothing to record.
pub(super) fn compose_commit(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
) -> Result<Option<Commit>, StepBlocked> {
    let mut commit = Commit::new().fence_shard(core.shard, core.epoch);
    if active.execution.is_terminal() {
        finish_execution(core, active, now)?;
    }
    let append = take_journal_append(&mut active.execution)?;
    let has_events = append.is_some();
    active.pending.recorded = append.as_ref().map_or(0..0, |it| {
        it.expected_length..it.expected_length + u64::from(it.count)
    });
    commit.journals.extend(append);
    let (state, wake_at) = active.row_state();
    let is_new = active.version == VERSION_UNSTORED;
    active.pending.changes_row =
        is_new || &*active.row.state != state || active.row.wake_at != wake_at;
    if active.pending.changes_row {
        active.row.state = state.into();
        active.row.wake_at = wake_at;
        commit = if is_new {
            commit.insert(&active.row)
        } else {
            commit.update(&active.row, active.version)
        };
    }
    for child in &mut active.pending.children {
        commit
            .journals
            .extend(self::take_journal_append(&mut child.execution)?);
        commit = commit.insert(&child.row);
    }
    for task in &mut active.pending.tasks {
        task.reserve_slot(
            &core.task_matcher,
            &active.owner,
            || client::key_from_entropy(&mut *core.entropy).into(),
            now,
        );
        commit = commit.insert(&task.row);
    }
    for withdrawn in &active.pending.withdrawn {
        commit = commit.delete_if_exists::<TaskRow>(task_row::task_key(*withdrawn));
    }
    for message in &active.pending.sent {
        commit = commit.insert_or_keep(message);
    }
    for (message, version) in &active.pending.consumed {
        commit = message::consume_message(commit, message, *version);
    }
    let PendingEffects {
        attempts,
        started_early: ahead,
        ..
    } = &active.pending;
    commit.is_background = attempts.iter().any(TaskAttempt::is_side_effect_free)
        || ahead.iter().rev().any(|id| core.is_performing(id));
    let PendingEffects {
        attempts,
        consumed,
        changes_row,
        ..
    } = &active.pending;
    let is_empty = !has_events && !changes_row && consumed.is_empty() && attempts.is_empty();
    Ok((!is_empty).then_some(commit))
}

fn take_journal_append(execution: &mut Execution) -> Result<Option<JournalAppend>, StepBlocked> {
    let (id, expected) = (execution.id(), execution.taken_count());
    let events = execution.take_events();
    if events.is_empty() {
        return Ok(None);
    }
    let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
    let records = codec::encode_record(id, events)
        .map_err(|error| format!("its events cannot be stored: {error}"))?;
    Ok(Some(JournalAppend {
        execution: id,
        expected_length: expected,
        count,
        records: records.into(),
    }))
}

/// Adds the effects of the end of an execution: the result goes to its parent, its children are
/// cancelled, its tasks are withdrawn, its successor starts.
fn finish_execution(
    core: &ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    for flight in active.execution.attempts_in_flight().collect::<Vec<_>>() {
        match flight.performer {
            InvokePerformer::Child(child) => {
                send_cancel(core, active, child, "whoever wanted it is over".into(), now)?
            }
            InvokePerformer::Worker => active.withdraw_task(flight),
            InvokePerformer::Owner => {}
        }
    }
    if let Some(successor) = active.execution.successor_execution() {
        let Some(Event::ExecutionStarted {
            component_digest,
            parent_id,
            ..
        }) = active
            .execution
            .journal()
            .events()
            .first()
            .map(|first| first.event.clone())
        else {
            return Err("its journal does not begin with its start"
                .to_owned()
                .into());
        };
        // The key names the predecessor; the key of a child begins with the number of the attempt
        // that it performs.
        let id = active.id();
        let key = active
            .parent_attempt()
            .map_or_else(|| id.to_string(), |(_, attempt)| format!("{attempt}~{id}"));
        let key = Some(SharedText::from(key.as_str()));
        let start = ExecutionStart {
            component_digest,
            input: successor.input,
            parent: parent_id,
            key,
            signals: successor.signals,
        };
        let execution = Execution::start(successor.execution, start, now, core.options.limits)
            .map_err(|violation| journal_refused(&violation))?;
        let row = sibling_row(active, successor.execution, now);
        active
            .pending
            .children
            .push(ActiveExecution::new(row, 1, execution, now));
    } else if let (Some((parent, attempt)), Some(result)) =
        (active.parent_attempt(), active.execution.result())
    {
        let message = message::attempt_result_message(&parent, core.shard, attempt, result, now)
            .map_err(|error| error.to_string())?;
        active.pending.sent.push(message);
    }
    Ok(())
}

/// Environment of an execution during a step: the time, the entropy and the log.
struct StepWorld<'a> {
    now: Timestamp,
    entropy: &'a mut (dyn FnMut(&mut [u8]) + Send),
    logs: Vec<(GuestLogLevel, SharedText)>,
}

impl<'a> StepWorld<'a> {
    fn new(core: &'a mut ShardCore, now: Timestamp) -> Self {
        Self {
            now,
            entropy: &mut *core.entropy,
            logs: Vec::new(),
        }
    }
}

impl ExecutionEnvironment for StepWorld<'_> {
    fn now(&mut self) -> Timestamp {
        self.now
    }

    fn fill_entropy(&mut self, bytes: &mut [u8]) {
        (self.entropy)(bytes);
    }

    fn log_message(&mut self, level: GuestLogLevel, message: &str) {
        self.logs.push((level, message.into()));
    }
}
