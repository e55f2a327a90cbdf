//! An execution in memory: its journal, and how far its guest has come in it.
//!
//! A guest that runs for the first time and one that is replayed are treated alike. Each thing it asks for is looked for in
//! the record first; only where the record ends is something new recorded. So a replay takes the same path as the first run,
//! or is found out.

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_journal::{
    AwaitState, Event, ExecutionError, ExecutionId, ExecutionPhase, InvokeResult, Journal,
    JournalCommand, JournalEvent, PromiseId, RuleViolation,
};

use crate::guest_operations::GuestOperations;
use crate::journal_index::{AwaitResolution, JournalIndex};
use crate::payload_size::event_payload_bytes;
use crate::{Guest, GuestLogLevel, GuestResponse, GuestTurn, ReplayDivergence, guest_request};

/// What the world is to an execution.
pub trait ExecutionEnvironment {
    /// The time.
    fn now(&mut self) -> Timestamp;

    /// Fills `bytes` with what nobody can guess.
    fn fill_entropy(&mut self, bytes: &mut [u8]);

    /// The guest says something, for the first time.
    fn log_message(&mut self, level: GuestLogLevel, message: &str);
}

/// How much an execution may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutionLimits {
    /// Bytes of one input or result.
    pub payload_bytes_max: usize,
    /// Events of a journal; an execution with more to do continues as new.
    pub events_max: u64,
    /// Bytes of payload after which a step is stored, although the execution could go on.
    pub batch_bytes_max: usize,
}

impl Default for ExecutionLimits {
    fn default() -> Self {
        Self {
            payload_bytes_max: 1 << 20,
            events_max: 1 << 20,
            batch_bytes_max: 4 << 20,
        }
    }
}

/// How far a guest came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutionProgress {
    /// It waits for something that has not happened.
    Blocked,
    /// It has more to do; others should have their turn first.
    Paused,
    /// It has more to do; what it has done so far should be stored first.
    BatchFull,
    /// It is over, and recorded.
    Ended,
    /// It did not repeat what is recorded. Nothing was recorded.
    Diverged(ReplayDivergence),
}

/// Another execution that takes the place of this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SuccessorExecution {
    /// Its id.
    pub execution: ExecutionId,
    /// What it is called with.
    pub input: Payload,
    /// Signals that were not consumed, in the order of their delivery.
    pub signals: Vec<(BoundedName, Payload)>,
}

/// An execution in memory.
#[derive(Debug, Clone)]
pub struct Execution {
    pub(crate) journal: Journal,
    pub(crate) index: JournalIndex,
    pub(crate) guest_operations: GuestOperations,
    /// How much of the script the guest has gone through.
    pub(crate) replay_cursor: usize,
    wait_state: GuestWaitState,
    pub(crate) limits: ExecutionLimits,
    /// What the guest wants to go on with after its end.
    pub(crate) continue_input: Option<Payload>,
    /// Operations that the guest no longer wants.
    pub(crate) abandoned: Vec<u32>,
    taken_count: usize,
    /// Bytes of payload in what was recorded and not taken.
    pending_bytes: usize,
}

/// What the guest waits for.
#[derive(Debug, Clone)]
pub(crate) enum GuestWaitState {
    /// To run: it has not begun, or paused.
    Ready,
    /// To be told this.
    Responding(GuestResponse),
    /// An await to end.
    Awaiting(PendingAwait),
}

/// An await, and what its end means to the guest.
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
    /// An execution that starts now. Its first event is recorded.
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

    /// An execution as its journal records it. All of the journal is taken for stored.
    pub fn recover(journal: Journal, limits: ExecutionLimits) -> Self {
        let mut index = JournalIndex::new(journal.journal_state().execution_id());
        journal
            .events()
            .iter()
            .for_each(|event| index.index_event(event));
        Self {
            taken_count: journal.events().len(),
            pending_bytes: 0,
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

    /// Forgets how far the guest came: the next run begins with a new guest.
    pub fn rewind_guest(&mut self) {
        self.guest_operations = GuestOperations::default();
        self.replay_cursor = 0;
        self.wait_state = GuestWaitState::Ready;
        self.continue_input = None;
        self.abandoned.clear();
    }

    /// The journal.
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Whose journal it is.
    pub const fn id(&self) -> ExecutionId {
        self.journal.journal_state().execution_id()
    }

    /// Whether nothing can follow.
    pub const fn is_terminal(&self) -> bool {
        self.journal.journal_state().phase().is_terminal()
    }

    /// Whether the guest has begun a turn and not come to its end, as far as the journal tells.
    pub fn is_mid_turn(&self) -> bool {
        self.journal.journal_state().phase() == ExecutionPhase::Running
            && self.journal.events().len() > 1
    }

    /// Whether the guest has something to do.
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

    /// Takes the events that were recorded since the last call: they are to be stored together.
    pub fn take_events(&mut self) -> &[JournalEvent] {
        let from = std::mem::replace(&mut self.taken_count, self.journal.events().len());
        self.pending_bytes = 0;
        &self.journal.events()[from..]
    }

    /// How many events were taken.
    pub const fn taken_count(&self) -> u64 {
        self.taken_count as u64
    }

    /// How many were not.
    pub fn untaken_count(&self) -> usize {
        self.journal.events().len() - self.taken_count
    }

    /// Takes the operations that the guest no longer wants since the last call.
    pub fn take_abandoned(&mut self) -> Vec<u32> {
        let is_open = |number: &u32| self.index.outcome_sequence(*number).is_none();
        let unwanted = std::mem::take(&mut self.abandoned);
        unwanted.into_iter().filter(is_open).collect()
    }

    /// Runs the guest until it waits for something that has not happened, or ends.
    pub fn run(
        &mut self,
        guest: &mut dyn Guest,
        world: &mut dyn ExecutionEnvironment,
    ) -> Result<ExecutionProgress, RuleViolation> {
        if self.is_terminal() {
            return Ok(ExecutionProgress::Ended);
        }
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
        }
    }

    /// Whether what was recorded since the last store is as much as should be stored together.
    pub fn is_batch_full(&self) -> bool {
        self.pending_bytes >= self.limits.batch_bytes_max
    }

    /// What the guest is told at the end of an await; `None` while it has not ended.
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

    /// Records the end of the guest.
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

    /// A guest that ends before all it did is repeated has not repeated it.
    fn unreplayed_divergence(&self) -> Option<ReplayDivergence> {
        let sequence = *self.index.guest_events.get(self.replay_cursor)?;
        let recorded = &self.journal.events()[usize::try_from(sequence).unwrap_or(usize::MAX)];
        Some(ReplayDivergence::new(
            self.id(),
            recorded,
            "the end of the function",
        ))
    }

    /// The payload, if it is not too large.
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

    /// How it ended, once it has.
    pub fn execution_outcome(&self) -> Option<ExecutionOutcome> {
        match self.journal.events().last()?.event.continued_as() {
            Some(next) => Some(ExecutionOutcome::Continued(next)),
            None => self.result().map(ExecutionOutcome::Result),
        }
    }

    /// Who takes the place of this execution, when it ended that way.
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

    fn cancel_reason(&self) -> SharedText {
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

    /// Records what a command leads to, and returns the sequence of its first event.
    pub(crate) fn record_command(
        &mut self,
        command: JournalCommand,
        now: Timestamp,
    ) -> Result<u64, RuleViolation> {
        let sequence = self.journal.journal_state().next_sequence();
        for event in self.journal.handle_command(command, now)? {
            self.index.index_event(&event);
            self.pending_bytes += event_payload_bytes(&event.event);
        }
        Ok(sequence)
    }

    /// What the execution ended with; `None` while it has not.
    pub fn result(&self) -> Option<InvokeResult> {
        match &self.journal.events().last()?.event {
            Event::ExecutionCompleted { result, .. } => Some(Ok(result.clone())),
            Event::ExecutionFailed { error } => Some(Err(error.clone())),
            Event::ExecutionCancelled { reason } => {
                // Whoever asked for that does not want another attempt.
                Some(Err(ExecutionError::new(
                    onward_journal::ErrorKind::Cancelled,
                    reason.clone(),
                )
                .into_permanent()))
            }
            _ => None,
        }
    }
}

/// How an execution ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExecutionOutcome {
    /// With this.
    Result(InvokeResult),
    /// Another has taken its place.
    Continued(ExecutionId),
}

/// How an execution starts.
#[derive(Debug, Clone)]
pub struct ExecutionStart {
    /// The code.
    pub component_digest: onward_journal::ComponentDigest,
    /// What it is called with.
    pub input: Payload,
    /// The operation of another execution that it performs.
    pub parent: Option<PromiseId>,
    /// What makes starting it idempotent.
    pub key: Option<SharedText>,
    /// Signals that its predecessor did not consume.
    pub signals: Vec<(BoundedName, Payload)>,
}

pub(crate) fn cancelled_error() -> ExecutionError {
    ExecutionError::new(
        onward_journal::ErrorKind::Cancelled,
        "cancellation was asked for",
    )
}
