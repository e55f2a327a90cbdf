//! One step of one execution: records its inputs and runs the guest until it waits. The operations
//! that the guest requests are in [`super::attempts`], the commit of the step is in
//! [`super::step_commit`].

use onward_base::{SharedText, Timestamp};
use onward_execution::{ExecutionEnvironment, ExecutionProgress, GuestLogLevel};
use onward_journal::{Event, ExecutionId, InvokePerformer, RuleViolation};
use onward_store::tables::InboxMessageRow;

use super::active_execution::{ActiveExecution, PendingEffects, PendingInput};
use super::attempts::{fail_overdue_attempts, give_up_abandoned_attempts, start_attempts};
use super::shard_core::ShardCore;
use super::{GuestEntry, GuestUnavailable, ShardAction, message};

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
        // A paused guest continues first: it has not yet seen everything that is recorded. Only a
        // cancellation request is recorded at once, because the guest may compute for long.
        if active.is_paused {
            record_cancel(core, active, now)?;
        } else {
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
            | ExecutionProgress::Evicted
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
        active.pending.resumed.clear();
    }
    let PendingEffects {
        attempts,
        resumed,
        abandoned,
        ..
    } = &mut active.pending;
    attempts.retain(|attempt| !abandoned.contains(&attempt.id));
    resumed.retain(|attempt| !abandoned.contains(&attempt.id));
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
                ExecutionProgress::Paused if !cancel_unresponsive(active, now)? => {
                    return Ok(ExecutionProgress::Paused);
                }
                // The guest continues where it was before it receives new inputs.
                ExecutionProgress::BatchFull if !cancel_unresponsive(active, now)? => {
                    active.is_paused = true;
                    return Ok(ExecutionProgress::BatchFull);
                }
                ExecutionProgress::Diverged(divergence) => {
                    return Err(divergence.to_string().into());
                }
                ExecutionProgress::Blocked
                | ExecutionProgress::Ended
                | ExecutionProgress::Paused
                | ExecutionProgress::BatchFull => {}
                ExecutionProgress::Evicted => {
                    active.guest = None;
                    return Err(StepBlocked::NoCapacity);
                }
            }
        }
        active.is_paused = false;
        give_up_abandoned_attempts(core, active, now)?;
        start_attempts(core, active, now)?;
        if !active.execution.is_runnable() {
            return Ok(ExecutionProgress::Blocked);
        }
    }
}

/// The journal's rules forbid an event that the engine has to record, which is a defect of the
/// engine.
pub(super) fn journal_refused(violation: &RuleViolation) -> StepBlocked {
    format!("an event violates a rule of the journal: {violation}").into()
}

/// Records the inputs since the last step, up to the batch limit. A cancellation request is
/// recorded first.
fn record_inputs(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
    actions: &mut Vec<ShardAction>,
) -> Result<(), StepBlocked> {
    record_cancel(core, active, now)?;
    while !active.execution.is_batch_full()
        && let Some(input) = active.inputs.pop_front()
    {
        match input {
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
            PendingInput::StepRefused(_) => {}
        }
    }
    Ok(())
}

/// Records a cancellation request, if there is one among the inputs.
fn record_cancel(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    let Some(place) = active.inputs.iter().position(PendingInput::is_cancel) else {
        return Ok(());
    };
    if let Some(PendingInput::Message(message, version)) = active.inputs.remove(place) {
        if !active.execution.is_terminal() {
            record_message(core, active, &message, now)?;
        }
        active.pending.consumed.push((*message, version));
    }
    Ok(())
}

/// Stops a guest that goes on computing although cancellation was requested. Returns whether the
/// execution is over now.
fn cancel_unresponsive(active: &mut ActiveExecution, now: Timestamp) -> Result<bool, StepBlocked> {
    let is_over = active
        .execution
        .cancel_unresponsive(CANCEL_GRACE_MS, now)
        .map_err(|violation| journal_refused(&violation))?;
    if is_over {
        active.guest = None;
    }
    Ok(is_over)
}

/// How long a guest may go on without noticing that it is cancelled, in milliseconds. It notices at
/// its next wait.
const CANCEL_GRACE_MS: u64 = 10_000;

fn record_message(
    core: &mut ShardCore,
    active: &mut ActiveExecution,
    sent: &InboxMessageRow,
    now: Timestamp,
) -> Result<(), StepBlocked> {
    match message::decode_message(sent).map_err(|error| error.to_string())? {
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

pub(super) fn send_cancel(
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
            core.functions
                .create_guest(&entry.ok_or_else(|| {
                    "its journal does not begin with ExecutionStarted".to_owned()
                })?)?
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

/// Environment of an execution during a step: the time, the entropy and the log.
pub(super) struct StepWorld<'a> {
    now: Timestamp,
    entropy: &'a mut (dyn FnMut(&mut [u8]) + Send),
    logs: Vec<(GuestLogLevel, SharedText)>,
}

impl<'a> StepWorld<'a> {
    pub(super) fn new(core: &'a mut ShardCore, now: Timestamp) -> Self {
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
