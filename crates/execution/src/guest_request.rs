//! Handling the requests of a guest: each is matched against the journal, or recorded after the
//! last recorded guest event.

use std::sync::Arc;

use onward_base::{BoundedName, Payload, Timestamp};
use onward_journal::{
    AwaitKind, Event, ExecutionError, InvokeResult, JoinSetId, JournalCommand, PromiseId,
    RuleViolation,
};

use crate::execution::{
    AwaitShape, Execution, ExecutionEnvironment, GuestWaitState, PendingAwait, cancelled_error,
};
use crate::guest_operations::GuestOperation;
use crate::{AwaitMode, GuestRequest, GuestResponse, JoinSetNext, ReplayDivergence, replay_match};

/// Maximum number of random bytes that a guest may draw at once.
const RANDOM_BYTES_MAX: u32 = 4_096;

/// Weight of a log message besides its text.
const LOG_LINE_BYTES: usize = 64;

/// The outer error is a defect of the journal or of this crate; the inner error is a guest that
/// diverges from its journal.
type ReplayResult<T> = Result<Result<T, ReplayDivergence>, RuleViolation>;

/// Evaluates to the inner value, or returns from the function with the divergence or the violation.
macro_rules! try_replay {
    ($asked:expr) => {
        match $asked? {
            Ok(value) => value,
            Err(divergence) => return Ok(Err(divergence)),
        }
    };
}

#[expect(clippy::too_many_lines, reason = "one table: a row for each case")]
pub(crate) fn handle_request(
    execution: &mut Execution,
    request: GuestRequest,
    world: &mut dyn ExecutionEnvironment,
) -> ReplayResult<GuestWaitState> {
    let is_recorded = !matches!(
        request,
        GuestRequest::ContinueAsNew { .. } | GuestRequest::Log { .. } | GuestRequest::IsCancelled
    );
    if is_recorded
        && execution.journal.journal_state().next_sequence() >= execution.limits.events_max
        && execution.peek_recorded().is_none()
    {
        let message = format!(
            "the journal has {} events: continue as new",
            execution.limits.events_max
        );
        return refuse_request(ExecutionError::from_kind_name("journal_full", message));
    }
    match request {
        GuestRequest::Invoke {
            kind,
            function: function_name,
            input,
            policy: retry_policy,
            delivery,
        } => {
            let input = match execution.check_payload_size(input) {
                Ok(input) => input,
                Err(error) => return refuse_request(error),
            };
            try_replay!(execution.replay_or_record(
                JournalCommand::ScheduleInvoke {
                    kind,
                    function_name,
                    input,
                    retry_policy,
                    delivery
                },
                world
            ));
            begin_operation(
                execution,
                GuestOperation::Invoke {
                    is_submitted: false,
                },
            )
        }
        GuestRequest::ScheduleTimer { duration_ms } => {
            let number = try_replay!(schedule_timer(execution, duration_ms, world));
            respond_with(GuestResponse::Promise(number))
        }
        GuestRequest::Await { promises, wait } => await_promises(execution, &promises, wait, world),
        GuestRequest::CreateJoinSet => {
            try_replay!(execution.replay_or_record(JournalCommand::CreateJoinSet, world));
            begin_operation(execution, GuestOperation::JoinSet)
        }
        GuestRequest::SubmitToJoinSet { set, promise } => {
            submit_to_join_set(execution, set, promise, world)
        }
        GuestRequest::NextResult { set, timeout_ms } => {
            next_result(execution, set, timeout_ms, world)
        }
        GuestRequest::CloseJoinSet { set } => close_join_set(execution, set),
        GuestRequest::AwaitSignal { name, timeout_ms } => {
            await_signal(execution, name, timeout_ms, world)
        }
        GuestRequest::ReadClock => read_clock(execution, world),
        GuestRequest::Random { length } => generate_random(execution, length, world),
        GuestRequest::IsCancelled => respond_with(GuestResponse::Boolean(
            execution.has_observed_cancellation(),
        )),
        GuestRequest::ContinueAsNew { input } => match execution.check_payload_size(input) {
            Ok(input) => {
                execution.continue_input = Some(input);
                respond_with(GuestResponse::Done)
            }
            Err(error) => refuse_request(error),
        },
        GuestRequest::Log { level, message } => {
            if execution.peek_recorded().is_none() {
                execution.logged_bytes += LOG_LINE_BYTES + message.len();
                world.log_message(level, &message);
            }
            respond_with(GuestResponse::Done)
        }
    }
}

fn respond_with(answer: GuestResponse) -> ReplayResult<GuestWaitState> {
    Ok(Ok(GuestWaitState::Responding(answer)))
}

fn refuse_request(error: ExecutionError) -> ReplayResult<GuestWaitState> {
    respond_with(GuestResponse::Refused(error))
}

fn refuse_misuse(message: String) -> ReplayResult<GuestWaitState> {
    refuse_request(ExecutionError::from_kind_name("misuse", message).into_permanent())
}

pub(crate) fn payload_too_large(found: usize, limit: usize) -> ExecutionError {
    ExecutionError::from_kind_name(
        "too_large",
        format!("{found} bytes of payload, at most {limit} are allowed"),
    )
    .into_permanent()
}

fn begin_operation(
    execution: &mut Execution,
    operation: GuestOperation,
) -> ReplayResult<GuestWaitState> {
    let number = execution.guest_operations.begin_operation(operation);
    respond_with(GuestResponse::Promise(number))
}

fn schedule_timer(
    execution: &mut Execution,
    duration_ms: u64,
    world: &mut dyn ExecutionEnvironment,
) -> ReplayResult<u32> {
    try_replay!(execution.replay_or_record(JournalCommand::ScheduleTimer { duration_ms }, world));
    Ok(Ok(execution
        .guest_operations
        .begin_operation(GuestOperation::Timer)))
}

fn read_clock(
    execution: &mut Execution,
    world: &mut dyn ExecutionEnvironment,
) -> ReplayResult<GuestWaitState> {
    let sequence = try_replay!(execution.replay_or_record(JournalCommand::ReadClock, world));
    execution
        .guest_operations
        .begin_operation(GuestOperation::Value);
    match execution.event_at(sequence) {
        Some(Event::TimeRecorded { time, .. }) => respond_with(GuestResponse::Time(*time)),
        _ => respond_with(GuestResponse::Time(Timestamp::EPOCH)),
    }
}

fn generate_random(
    execution: &mut Execution,
    length: u32,
    world: &mut dyn ExecutionEnvironment,
) -> ReplayResult<GuestWaitState> {
    if length > RANDOM_BYTES_MAX {
        return refuse_misuse(format!(
            "{length} bytes of randomness, at most {RANDOM_BYTES_MAX} are allowed"
        ));
    }
    let mut bytes = vec![0; length as usize];
    if execution.peek_recorded().is_none() {
        world.fill_entropy(&mut bytes);
    }
    let sequence = try_replay!(execution.replay_or_record(
        JournalCommand::GenerateRandom {
            value: bytes.into()
        },
        world
    ));
    execution
        .guest_operations
        .begin_operation(GuestOperation::Value);
    match execution.event_at(sequence) {
        Some(Event::RandomGenerated { value, .. }) => {
            respond_with(GuestResponse::Random(Arc::clone(value)))
        }
        _ => respond_with(GuestResponse::Random(Arc::from([]))),
    }
}

fn await_promises(
    execution: &mut Execution,
    promises: &[u32],
    wait: AwaitMode,
    world: &mut dyn ExecutionEnvironment,
) -> ReplayResult<GuestWaitState> {
    if let Some(objection) = execution.guest_operations.await_rejection(promises) {
        return refuse_misuse(objection);
    }
    if execution.observe_cancellation() {
        return refuse_request(cancelled_error());
    }
    let (kind, shape) = match wait {
        AwaitMode::One if promises.len() > 1 => {
            return refuse_misuse(format!("{} promises instead of one", promises.len()));
        }
        AwaitMode::One => (AwaitKind::Single, AwaitShape::One(promises[0])),
        AwaitMode::Any => (AwaitKind::Any, AwaitShape::Any(promises.to_vec())),
        AwaitMode::All => (AwaitKind::All, AwaitShape::All(promises.to_vec())),
    };
    let waiting_on = promises
        .iter()
        .map(|number| execution.promise_id(*number))
        .collect();
    let sequence =
        try_replay!(execution.replay_or_record(JournalCommand::Await { waiting_on, kind }, world));
    Ok(Ok(GuestWaitState::Awaiting(PendingAwait {
        sequence,
        shape,
    })))
}

fn submit_to_join_set(
    execution: &mut Execution,
    set: u32,
    promise: u32,
    world: &mut dyn ExecutionEnvironment,
) -> ReplayResult<GuestWaitState> {
    if let Some(objection) = execution.guest_operations.submit_rejection(set, promise) {
        return refuse_misuse(objection);
    }
    let command = JournalCommand::SubmitToJoinSet {
        set: JoinSetId(execution.promise_id(set)),
        promise: execution.promise_id(promise),
    };
    try_replay!(execution.replay_or_record(command, world));
    execution.guest_operations.submit_member(set, promise);
    respond_with(GuestResponse::Done)
}

fn next_result(
    execution: &mut Execution,
    set: u32,
    timeout_ms: Option<u64>,
    world: &mut dyn ExecutionEnvironment,
) -> ReplayResult<GuestWaitState> {
    let Some(remaining) = execution.guest_operations.remaining_members(set) else {
        return refuse_misuse(format!("join set {set} does not exist"));
    };
    if remaining.is_empty() {
        return respond_with(GuestResponse::NextResult(JoinSetNext::Empty));
    }
    let mut waiting_on: Vec<PromiseId> = remaining
        .iter()
        .map(|number| execution.promise_id(*number))
        .collect();
    if execution.observe_cancellation() {
        return refuse_request(cancelled_error());
    }
    if execution.can_take_result(set) {
        let taken = try_replay!(take_result(execution, set, world));
        return respond_with(taken);
    }
    if let Some(duration_ms) = timeout_ms {
        let timer = try_replay!(schedule_timer(execution, duration_ms, world));
        waiting_on.push(execution.promise_id(timer));
    }
    let sequence = try_replay!(execution.replay_or_record(
        JournalCommand::Await {
            waiting_on,
            kind: AwaitKind::Any
        },
        world
    ));
    Ok(Ok(GuestWaitState::Awaiting(PendingAwait {
        sequence,
        shape: AwaitShape::Next(set),
    })))
}

fn take_result(
    execution: &mut Execution,
    set: u32,
    world: &mut dyn ExecutionEnvironment,
) -> ReplayResult<GuestResponse> {
    let command = JournalCommand::TakeNextResult {
        set: JoinSetId(execution.promise_id(set)),
        timeout: None,
    };
    let sequence = try_replay!(execution.replay_or_record(command, world));
    let own = execution.id();
    let Some(Event::JoinSetAwaited {
        promise_id, result, ..
    }) = execution.event_at(sequence)
    else {
        return Ok(Ok(GuestResponse::NextResult(JoinSetNext::TimedOut)));
    };
    let (number, result) = (
        promise_id.child_number_in(own).unwrap_or(u32::MAX),
        result.clone(),
    );
    execution.guest_operations.take_member(set, number);
    Ok(Ok(GuestResponse::NextResult(JoinSetNext::Result(
        number, result,
    ))))
}

/// Abandons the members of the join set whose result was not taken; the caller that runs the
/// execution cancels them. During replay nothing is abandoned, because that was done in the first
/// run.
fn close_join_set(execution: &mut Execution, set: u32) -> ReplayResult<GuestWaitState> {
    let Some(remaining) = execution.guest_operations.remaining_members(set) else {
        return refuse_misuse(format!("join set {set} does not exist"));
    };
    if execution.peek_recorded().is_none() {
        let unwanted: Vec<u32> = remaining.iter().copied().collect();
        execution.abandoned.extend(unwanted);
    }
    respond_with(GuestResponse::Done)
}

fn await_signal(
    execution: &mut Execution,
    name: BoundedName,
    timeout_ms: Option<u64>,
    world: &mut dyn ExecutionEnvironment,
) -> ReplayResult<GuestWaitState> {
    if execution.observe_cancellation() {
        return refuse_request(cancelled_error());
    }
    let timeout = match timeout_ms {
        Some(duration_ms) if !execution.can_receive_signal(&name) => {
            let timer = try_replay!(schedule_timer(execution, duration_ms, world));
            Some(execution.promise_id(timer))
        }
        _ => None,
    };
    let sequence = try_replay!(execution.replay_or_record(
        JournalCommand::AwaitSignal {
            signal_name: name,
            timeout
        },
        world
    ));
    let number = execution
        .guest_operations
        .begin_operation(GuestOperation::Signal);
    match signal_payload_at(execution, sequence) {
        Some(payload) => respond_with(GuestResponse::Signal(Some(payload))),
        None => Ok(Ok(GuestWaitState::Awaiting(PendingAwait {
            sequence,
            shape: AwaitShape::Signal(number),
        }))),
    }
}

fn signal_payload_at(execution: &Execution, sequence: u64) -> Option<Payload> {
    match execution.event_at(sequence) {
        Some(Event::SignalReceived { payload, .. }) => Some(payload.clone()),
        _ => None,
    }
}

/// Returns the guest's response to an await that was resumed at sequence `at`: it contains only
/// outcomes that were recorded before `at`.
pub(crate) fn resumed_response(
    execution: &mut Execution,
    shape: &AwaitShape,
    at: u64,
    world: &mut dyn ExecutionEnvironment,
) -> ReplayResult<GuestResponse> {
    let seen = |number: &u32| {
        execution
            .index
            .outcome_sequence(*number)
            .filter(|sequence| *sequence < at)
    };
    let response = match shape {
        AwaitShape::One(number) => GuestResponse::Outcome(outcome_at(execution, seen(number))),
        AwaitShape::All(numbers) => GuestResponse::Outcomes(
            numbers
                .iter()
                .map(|number| outcome_at(execution, seen(number)))
                .collect(),
        ),
        AwaitShape::Any(numbers) => {
            let complete = numbers
                .iter()
                .zip(0..)
                .filter_map(|(number, place)| Some((seen(number)?, place)));
            let first = complete.min();
            let place = first.map_or(0, |(_, place)| place);
            GuestResponse::First(
                place,
                outcome_at(execution, first.map(|(sequence, _)| sequence)),
            )
        }
        AwaitShape::Signal(number) => GuestResponse::Signal(
            seen(number).and_then(|sequence| signal_payload_at(execution, sequence)),
        ),
        AwaitShape::Next(set) => {
            return if execution.can_take_result(*set) {
                take_result(execution, *set, world)
            } else {
                Ok(Ok(GuestResponse::NextResult(JoinSetNext::TimedOut)))
            };
        }
    };
    Ok(Ok(response))
}

/// Returns the outcome that is recorded at `sequence`. The outcome of a timer is `null`.
fn outcome_at(execution: &Execution, sequence: Option<u64>) -> InvokeResult {
    match sequence.and_then(|sequence| execution.event_at(sequence)) {
        Some(Event::InvokeCompleted { result, .. }) => result.clone(),
        _ => Ok(Payload::null()),
    }
}

impl Execution {
    /// Returns the next recorded guest event to replay; `None` after the last one.
    pub(crate) fn peek_recorded(&self) -> Option<&Event> {
        self.index
            .guest_events
            .get(self.replay_cursor)
            .and_then(|sequence| self.event_at(*sequence))
    }

    /// Matches the guest's request against the next recorded guest event, or records it after the
    /// last one. Returns the sequence number of the event.
    fn replay_or_record(
        &mut self,
        command: JournalCommand,
        world: &mut dyn ExecutionEnvironment,
    ) -> ReplayResult<u64> {
        let Some(sequence) = self.index.guest_events.get(self.replay_cursor).copied() else {
            let sequence = self.record_command(command, world.now())?;
            self.replay_cursor += 1;
            return Ok(Ok(sequence));
        };
        let recorded = &self.journal.events()[usize::try_from(sequence).unwrap_or(usize::MAX)];
        if !replay_match::matches_recorded(&recorded.event, &command) {
            return Ok(Err(ReplayDivergence::new(
                self.id(),
                recorded,
                replay_match::describe_command(&command),
            )));
        }
        self.replay_cursor += 1;
        Ok(Ok(sequence))
    }

    /// Returns whether a result of the join set can be taken: during replay, whether the journal
    /// records that one was taken here; otherwise, whether one is ready.
    fn can_take_result(&self, set: u32) -> bool {
        let set = JoinSetId(self.promise_id(set));
        match self.peek_recorded() {
            Some(event) => {
                matches!(event, Event::JoinSetAwaited { join_set_id, .. } if *join_set_id == set)
            }
            None => self
                .journal
                .journal_state()
                .next_ready_member(&set)
                .is_some(),
        }
    }

    /// Returns whether a signal can be consumed: during replay, whether the journal records that
    /// one was consumed here; otherwise, whether one is buffered.
    fn can_receive_signal(&self, name: &str) -> bool {
        match self.peek_recorded() {
            Some(event) => matches!(event, Event::SignalReceived { .. }),
            None => self
                .index
                .buffered_signals
                .get(name)
                .is_some_and(|waiting| !waiting.is_empty()),
        }
    }

    /// Returns whether the guest makes its first await since cancellation was requested while it
    /// computed: that await is refused, because there was none to interrupt. The position of the
    /// request in the journal decides, so that a replay refuses the same await.
    fn observe_cancellation(&mut self) -> bool {
        let Some(requested) = self.index.cancel_requested_at else {
            return false;
        };
        let next = self.index.guest_events.get(self.replay_cursor);
        let is_after = next.is_none_or(|sequence| *sequence > requested);
        let is_first = self.index.interrupted_await.is_none() && !self.is_cancellation_observed;
        self.is_cancellation_observed |= is_first && is_after;
        is_first && is_after
    }

    /// Returns whether cancellation interrupted one of the awaits that the guest has already made,
    /// or refused one.
    pub(crate) fn has_observed_cancellation(&self) -> bool {
        let is_interrupted = self.index.interrupted_await.is_some_and(|awaiting| {
            self.index.guest_events[..self.replay_cursor]
                .binary_search(&awaiting)
                .is_ok()
        });
        is_interrupted || self.is_cancellation_observed
    }
}
