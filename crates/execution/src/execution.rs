//! An execution in memory: its journal, and the position of its guest in the journal.
//!
//! First runs and replays use the same code. The execution looks up each request of the guest in
//! the journal first, and records something new only after the last recorded guest event. So a
//! replay takes the same path as the first run, or the divergence is detected.

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_journal::{
    AwaitState, Event, ExecutionError, ExecutionId, ExecutionPhase, InvokeResult, Journal,
    JournalCommand, JournalEvent, PromiseId, RuleViolation,
};

use crate::guest_operations::GuestOperations;
use crate::journal_index::{AwaitResolution, JournalIndex};
use crate::payload_size::event_record_bytes;
use crate::{Guest, GuestLogLevel, GuestResponse, GuestTurn, ReplayDivergence, guest_request};

/// The environment of an execution: the clock, the entropy source and the log that the caller
/// provides.
pub trait ExecutionEnvironment {
    /// Returns the current time.
    fn now(&mut self) -> Timestamp;

    /// Fills `bytes` with unpredictable random bytes.
    fn fill_entropy(&mut self, bytes: &mut [u8]);

    /// Writes a log message of the guest. A replay does not repeat messages that precede a recorded
    /// guest event.
    fn log_message(&mut self, level: GuestLogLevel, message: &str);
}

/// Limits on the size of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutionLimits {
    /// Maximum size of one input or result, in bytes. Default: 1 MiB.
    pub payload_bytes_max: usize,
    /// Maximum number of events of a journal; an execution with more to do must continue as new.
    /// Default: 1048576.
    pub events_max: u64,
    /// Bytes of recorded events after which the batch must be stored, although the execution could
    /// continue. Default: 4 MiB.
    pub batch_bytes_max: usize,
    /// Number of recorded events after which the batch must be stored, although the execution could
    /// continue. Default: 10000.
    pub batch_events_max: usize,
}

impl Default for ExecutionLimits {
    fn default() -> Self {
        Self {
            payload_bytes_max: 1 << 20,
            events_max: 1 << 20,
            batch_bytes_max: 4 << 20,
            batch_events_max: 10_000,
        }
    }
}

/// Bytes of log messages after which a guest pauses, so that the caller can write them.
const LOGGED_BYTES_MAX: usize = 256 << 10;

/// Why [`Execution::run`] returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutionProgress {
    /// The guest waits for something that has not happened yet.
    Blocked,
    /// The guest has more to do, but has used up its time slice: other executions should run first.
    Paused,
    /// The guest is gone, because the machine has no room for it. A new one has to replay the
    /// journal later.
    Evicted,
    /// The guest has more to do; the caller should store the recorded events first.
    BatchFull,
    /// The execution is over, and its terminal event is recorded.
    Ended,
    /// The guest diverged from the journal; nothing was recorded.
    Diverged(ReplayDivergence),
}

/// The execution that continues this one (continue-as-new).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuccessorExecution {
    /// The id of the successor, derived from the id of this execution.
    pub execution: ExecutionId,
    /// The input of the successor.
    pub input: Payload,
    /// The signals that this execution did not consume, in the order of delivery.
    pub signals: Vec<(BoundedName, Payload)>,
}

/// An execution in memory: its journal, an index over it, and the position of its guest.
#[derive(Debug, Clone)]
pub struct Execution {
    pub(crate) journal: Journal,
    pub(crate) index: JournalIndex,
    pub(crate) guest_operations: GuestOperations,
    /// Number of guest events that the guest has replayed or recorded.
    pub(crate) replay_cursor: usize,
    wait_state: GuestWaitState,
    pub(crate) limits: ExecutionLimits,
    /// The input of the successor, if the guest requested to continue as new.
    pub(crate) continue_input: Option<Payload>,
    /// Operations that the guest abandoned by closing their join set.
    pub(crate) abandoned: Vec<u32>,
    /// Whether an await of the guest was refused because of the cancellation.
    pub(crate) is_cancellation_observed: bool,
    taken_count: usize,
    /// Bytes of the events that were recorded and not yet taken.
    pending_bytes: usize,
    /// Bytes that the guest has logged in the current run.
    pub(crate) logged_bytes: usize,
}

/// The condition under which the guest can be resumed.
#[derive(Debug, Clone)]
pub(crate) enum GuestWaitState {
    /// The guest can run: it has not begun, or it paused.
    Ready,
    /// The guest can run with this response to its request.
    Responding(GuestResponse),
    /// The guest is blocked until the await ends.
    Awaiting(PendingAwait),
}

/// An await of the guest, and the shape of the response that the guest expects.
#[derive(Debug, Clone)]
pub(crate) struct PendingAwait {
    pub(crate) sequence: u64,
    pub(crate) shape: AwaitShape,
}

#[derive(Debug, Clone)]
pub(crate) enum AwaitShape {
    One(u32),
    Any(Vec<u32>),
    All(Vec<u32>),
    Next(u32),
    Signal(u32),
}

impl Execution {
    /// Starts an execution: records its first event and the signals that its predecessor did not
    /// consume.
    pub fn start(
        execution: ExecutionId,
        start: ExecutionStart,
        now: Timestamp,
        limits: ExecutionLimits,
    ) -> Result<Self, RuleViolation> {
        let mut journal = Journal::new(execution);
        let ExecutionStart {
            component_digest,
            input,
            parent,
            key,
            signals,
        } = start;
        journal.handle_command(
            JournalCommand::Start {
                component_digest,
                input,
                parent,
                key,
            },
            now,
        )?;
        for (signal_name, payload) in signals {
            journal.handle_command(
                JournalCommand::DeliverSignal {
                    signal_name,
                    payload,
                },
                now,
            )?;
        }
        Ok(Self {
            taken_count: 0,
            ..Self::recover(journal, limits)
        })
    }

    /// Rebuilds an execution from its journal. All events of the journal count as stored.
    pub fn recover(journal: Journal, limits: ExecutionLimits) -> Self {
        let mut index = JournalIndex::new(journal.journal_state().execution_id());
        journal
            .events()
            .iter()
            .for_each(|event| index.index_event(event));
        Self {
            taken_count: journal.events().len(),
            is_cancellation_observed: false,
            pending_bytes: 0,
            logged_bytes: 0,
            journal,
            index,
            guest_operations: GuestOperations::default(),
            replay_cursor: 0,
            wait_state: GuestWaitState::Ready,
            limits,
            continue_input: None,
            abandoned: Vec::new(),
        }
    }

    /// Resets the position of the guest: the next run must begin with a new guest, which replays
    /// the journal.
    pub fn rewind_guest(&mut self) {
        self.guest_operations = GuestOperations::default();
        self.replay_cursor = 0;
        self.wait_state = GuestWaitState::Ready;
        self.continue_input = None;
        self.is_cancellation_observed = false;
        self.abandoned.clear();
    }

    /// Returns the journal of the execution.
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Returns the id of the execution.
    pub const fn id(&self) -> ExecutionId {
        self.journal.journal_state().execution_id()
    }

    /// Returns whether the execution is over, so that no event can follow.
    pub const fn is_terminal(&self) -> bool {
        self.journal.journal_state().phase().is_terminal()
    }

    /// Returns whether the guest has begun a turn and not finished it, as far as the journal shows.
    pub fn is_mid_turn(&self) -> bool {
        self.journal.journal_state().phase() == ExecutionPhase::Running
            && self.journal.events().len() > 1
    }

    /// Returns whether the guest can make progress now.
    pub fn is_runnable(&self) -> bool {
        match self.journal.journal_state().phase() {
            ExecutionPhase::Running | ExecutionPhase::Cancelling => true,
            ExecutionPhase::Blocked | ExecutionPhase::CleanupBlocked => self.is_await_satisfied(),
            ExecutionPhase::New
            | ExecutionPhase::Completed
            | ExecutionPhase::Failed
            | ExecutionPhase::Cancelled => false,
        }
    }

    fn is_await_satisfied(&self) -> bool {
        self.journal
            .journal_state()
            .open_await()
            .is_some_and(AwaitState::is_satisfied)
    }

    /// Takes the events that were recorded since the last call. The caller must store them
    /// together.
    pub fn take_events(&mut self) -> &[JournalEvent] {
        let from = std::mem::replace(&mut self.taken_count, self.journal.events().len());
        self.pending_bytes = 0;
        &self.journal.events()[from..]
    }

    /// Returns the number of events that [`Execution::take_events`] has returned or that were
    /// already stored.
    pub const fn taken_count(&self) -> u64 {
        self.taken_count as u64
    }

    /// Returns the number of events that [`Execution::take_events`] would return.
    pub fn untaken_count(&self) -> usize {
        self.journal.events().len() - self.taken_count
    }

    /// Takes the operations that the guest abandoned since the last call and that have no outcome
    /// yet.
    pub fn take_abandoned(&mut self) -> Vec<u32> {
        let is_open = |number: &u32| self.index.outcome_sequence(*number).is_none();
        let unwanted = std::mem::take(&mut self.abandoned);
        unwanted.into_iter().filter(is_open).collect()
    }

    /// Runs the guest until it waits for something that has not happened, pauses, diverges or ends,
    /// or until the batch is full.
    pub fn run(
        &mut self,
        guest: &mut dyn Guest,
        world: &mut dyn ExecutionEnvironment,
    ) -> Result<ExecutionProgress, RuleViolation> {
        if self.is_terminal() {
            return Ok(ExecutionProgress::Ended);
        }
        self.logged_bytes = 0;
        loop {
            let answer = match std::mem::replace(&mut self.wait_state, GuestWaitState::Ready) {
                GuestWaitState::Ready => None,
                GuestWaitState::Responding(answer) => Some(answer),
                GuestWaitState::Awaiting(open) => match self.resolve_await(&open, world)? {
                    Ok(Some(answer)) => Some(answer),
                    Ok(None) => {
                        self.wait_state = GuestWaitState::Awaiting(open);
                        return Ok(ExecutionProgress::Blocked);
                    }
                    Err(divergence) => return Ok(ExecutionProgress::Diverged(divergence)),
                },
            };
            match guest.resume_guest(answer) {
                GuestTurn::Paused => return Ok(ExecutionProgress::Paused),
                GuestTurn::Evicted => return Ok(ExecutionProgress::Evicted),
                GuestTurn::Completed(result) => return self.complete_guest(result, world.now()),
                GuestTurn::Requested(request) => {
                    match guest_request::handle_request(self, request, world)? {
                        Ok(waits) => self.wait_state = waits,
                        Err(divergence) => return Ok(ExecutionProgress::Diverged(divergence)),
                    }
                }
            }
            if self.is_batch_full() {
                return Ok(ExecutionProgress::BatchFull);
            }
            if self.logged_bytes >= LOGGED_BYTES_MAX {
                return Ok(ExecutionProgress::Paused);
            }
        }
    }

    /// Returns whether the events recorded since the last store have reached the size that should
    /// be stored together.
    pub fn is_batch_full(&self) -> bool {
        self.pending_bytes >= self.limits.batch_bytes_max
            || self.untaken_count() >= self.limits.batch_events_max
    }

    /// Returns the response of an await that has ended; `None` while it is open.
    fn resolve_await(
        &mut self,
        open: &PendingAwait,
        world: &mut dyn ExecutionEnvironment,
    ) -> Result<Result<Option<GuestResponse>, ReplayDivergence>, RuleViolation> {
        if self.index.await_resolution(open.sequence).is_none() && self.is_await_satisfied() {
            self.record_command(JournalCommand::Resume, world.now())?;
        }
        match self.index.await_resolution(open.sequence) {
            None => Ok(Ok(None)),
            Some(AwaitResolution::Interrupted(_)) => {
                Ok(Ok(Some(GuestResponse::Refused(cancelled_error()))))
            }
            Some(AwaitResolution::Resumed(at)) => {
                Ok(guest_request::resumed_response(self, &open.shape, at, world)?.map(Some))
            }
        }
    }

    /// Records the terminal event after the guest returned.
    fn complete_guest(
        &mut self,
        result: InvokeResult,
        now: Timestamp,
    ) -> Result<ExecutionProgress, RuleViolation> {
        if let Some(divergence) = self.unreplayed_divergence() {
            return Ok(ExecutionProgress::Diverged(divergence));
        }
        let result = match self.continue_input {
            Some(_) => Ok(Payload::null()),
            None => result.and_then(|payload| self.check_payload_size(payload)),
        };
        let is_cancelling = self.journal.journal_state().phase() == ExecutionPhase::Cancelling;
        let command = match result {
            Ok(result) => JournalCommand::Complete {
                result,
                continued_as: self.continue_input.as_ref().map(|_| self.successor_id()),
            },
            Err(error) if is_cancelling && error.kind == onward_journal::ErrorKind::Cancelled => {
                JournalCommand::Cancel {
                    reason: self.cancel_reason(),
                }
            }
            Err(error) => JournalCommand::Fail { error },
        };
        self.record_command(command, now)?;
        Ok(ExecutionProgress::Ended)
    }

    /// Returns a divergence if the guest ended before it replayed all recorded guest events.
    fn unreplayed_divergence(&self) -> Option<ReplayDivergence> {
        let sequence = *self.index.guest_events.get(self.replay_cursor)?;
        let recorded = &self.journal.events()[usize::try_from(sequence).unwrap_or(usize::MAX)];
        Some(ReplayDivergence::new(
            self.id(),
            recorded,
            "the end of the function",
        ))
    }

    /// Returns the payload. Fails if it is larger than `payload_bytes_max`.
    pub(crate) fn check_payload_size(&self, payload: Payload) -> Result<Payload, ExecutionError> {
        let (found, limit) = (payload.as_str().len(), self.limits.payload_bytes_max);
        if found > limit {
            Err(guest_request::payload_too_large(found, limit))
        } else {
            Ok(payload)
        }
    }

    fn successor_id(&self) -> ExecutionId {
        let digest = match self.journal.events().first().map(|first| &first.event) {
            Some(Event::ExecutionStarted {
                component_digest, ..
            }) => *component_digest,
            _ => onward_journal::ComponentDigest::from_bytes([0; 32]),
        };
        ExecutionId::derive(&digest, Some(&self.id().root_promise()), "continued")
    }

    /// Returns how the execution ended; `None` while it has not.
    pub fn execution_outcome(&self) -> Option<ExecutionOutcome> {
        ExecutionOutcome::from_last_event(&self.journal.events().last()?.event)
    }

    /// Returns the successor of an execution that ended with continue-as-new; `None` if the guest
    /// did not request one.
    pub fn successor_execution(&self) -> Option<SuccessorExecution> {
        let input = self.continue_input.clone()?;
        let mut signals: Vec<(u64, BoundedName, Payload)> = Vec::new();
        for (name, waiting) in &self.index.buffered_signals {
            for sequence in waiting {
                if let Some(Event::SignalDelivered { payload, .. }) = self.event_at(*sequence) {
                    signals.push((*sequence, name.clone(), payload.clone()));
                }
            }
        }
        signals.sort_unstable_by_key(|(sequence, ..)| *sequence);
        let signals = signals
            .into_iter()
            .map(|(_, name, payload)| (name, payload))
            .collect();
        Some(SuccessorExecution {
            execution: self.successor_id(),
            input,
            signals,
        })
    }

    pub(crate) fn cancel_reason(&self) -> SharedText {
        match self
            .index
            .cancel_requested_at
            .and_then(|sequence| self.event_at(sequence))
        {
            Some(Event::CancelRequested { reason }) => reason.clone(),
            _ => SharedText::from(""),
        }
    }

    pub(crate) fn event_at(&self, sequence: u64) -> Option<&Event> {
        self.journal
            .events()
            .get(usize::try_from(sequence).ok()?)
            .map(|recorded| &recorded.event)
    }

    pub(crate) fn promise_id(&self, number: u32) -> PromiseId {
        self.id().child_promise(number)
    }

    /// Records the events of a command, and returns the sequence number of the first one.
    pub(crate) fn record_command(
        &mut self,
        command: JournalCommand,
        now: Timestamp,
    ) -> Result<u64, RuleViolation> {
        let sequence = self.journal.journal_state().next_sequence();
        for event in self.journal.handle_command(command, now)? {
            self.index.index_event(&event);
            self.pending_bytes += event_record_bytes(&event.event);
        }
        Ok(sequence)
    }

    /// Returns the result of the execution; `None` while it has not ended.
    pub fn result(&self) -> Option<InvokeResult> {
        result_of_last_event(&self.journal.events().last()?.event)
    }
}

/// How an execution ended: with a result, or continued as new.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutionOutcome {
    /// The execution ended with this result or failure.
    Result(InvokeResult),
    /// This execution continues the one that ended.
    Continued(ExecutionId),
}

impl ExecutionOutcome {
    /// Returns how the execution ended whose journal has this last event; `None` if it has not
    /// ended.
    pub fn from_last_event(last: &Event) -> Option<Self> {
        match last.continued_as() {
            Some(next) => Some(Self::Continued(next)),
            None => result_of_last_event(last).map(Self::Result),
        }
    }
}

fn result_of_last_event(last: &Event) -> Option<InvokeResult> {
    match last {
        Event::ExecutionCompleted { result, .. } => Some(Ok(result.clone())),
        Event::ExecutionFailed { error } => Some(Err(error.clone())),
        Event::ExecutionCancelled { reason } => {
            // Permanent: after a requested cancellation there must be no further attempt.
            let kind = onward_journal::ErrorKind::Cancelled;
            Some(Err(
                ExecutionError::new(kind, reason.clone()).into_permanent()
            ))
        }
        _ => None,
    }
}

/// The parameters of a new execution.
#[derive(Debug, Clone)]
pub struct ExecutionStart {
    /// The component whose code the execution runs.
    pub component_digest: onward_journal::ComponentDigest,
    /// The input of the workflow function.
    pub input: Payload,
    /// The operation of the parent execution that this execution performs; `None` if it has no
    /// parent.
    pub parent: Option<PromiseId>,
    /// The idempotency key of the start.
    pub key: Option<SharedText>,
    /// Signals that the predecessor did not consume, in the order of delivery.
    pub signals: Vec<(BoundedName, Payload)>,
}

pub(crate) fn cancelled_error() -> ExecutionError {
    ExecutionError::new(
        onward_journal::ErrorKind::Cancelled,
        "cancellation was requested",
    )
}
