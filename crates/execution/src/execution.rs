//! An execution in memory: its journal, and how far its guest has come in it.
//!
//! A guest that runs for the first time and one that is replayed are treated alike. Each thing it asks for is looked for in
//! the record first; only where the record ends is something new recorded. So a replay takes the same path as the first run,
//! or is found out.

use onward_journal::{
    Command, Event, ExecutionError, ExecutionId, InvokeResult, Journal, JournalEvent, Name, Payload, Phase, PromiseId,
    Text, Timestamp, Violation, Wait,
};

use crate::index::{End, Index};
use crate::seen::Seen;
use crate::weight::weight;
use crate::{Answer, Divergence, Guest, Level, Turn, ask};

/// What the world is to an execution.
pub trait World {
    /// The time.
    fn now(&mut self) -> Timestamp;

    /// Fills `bytes` with what nobody can guess.
    fn entropy(&mut self, bytes: &mut [u8]);

    /// The guest says something, for the first time.
    fn log(&mut self, level: Level, message: &str);
}

/// How much an execution may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one input or result.
    pub payload_bytes_max: usize,
    /// Events of a journal; an execution with more to do continues as new.
    pub events_max: u64,
    /// Bytes of payload after which a step is stored, although the execution could go on.
    pub step_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { payload_bytes_max: 1 << 20, events_max: 1 << 20, step_bytes: 4 << 20 }
    }
}

/// How far a guest came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It waits for something that has not happened.
    Blocked,
    /// It has more to do; others should have their turn first.
    Paused,
    /// It has more to do; what it has done so far should be stored first.
    Full,
    /// It is over, and recorded.
    Ended,
    /// It did not repeat what is recorded. Nothing was recorded.
    Diverged(Divergence),
}

/// Another execution that takes the place of this one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Successor {
    /// Its id.
    pub execution: ExecutionId,
    /// What it is called with.
    pub input: Payload,
    /// Signals that were not consumed, in the order of their delivery.
    pub signals: Vec<(Name, Payload)>,
}

/// An execution in memory.
#[derive(Debug, Clone)]
pub struct Execution {
    pub(crate) journal: Journal,
    pub(crate) index: Index,
    pub(crate) seen: Seen,
    /// How much of the script the guest has gone through.
    pub(crate) cursor: usize,
    waits: Waits,
    pub(crate) limits: Limits,
    /// What the guest wants to go on with after its end.
    pub(crate) next_input: Option<Payload>,
    /// Operations that the guest no longer wants.
    pub(crate) unwanted: Vec<u32>,
    taken: usize,
    /// Bytes of payload in what was recorded and not taken.
    pending_bytes: usize,
}

/// What the guest waits for.
#[derive(Debug, Clone)]
pub(crate) enum Waits {
    /// To run: it has not begun, or paused.
    Turn,
    /// To be told this.
    Answer(Answer),
    /// An await to end.
    Await(Open),
}

/// An await, and what its end means to the guest.
#[derive(Debug, Clone)]
pub(crate) struct Open {
    pub(crate) sequence: u64,
    pub(crate) shape: Shape,
}

#[derive(Debug, Clone)]
pub(crate) enum Shape {
    One(u32),
    Any(Vec<u32>),
    All(Vec<u32>),
    Next(u32),
    Signal(u32),
}

impl Execution {
    /// An execution that starts now. Its first event is recorded.
    pub fn start(execution: ExecutionId, start: Start, now: Timestamp, limits: Limits) -> Result<Self, Violation> {
        let mut journal = Journal::new(execution);
        let Start { component_digest, input, parent, key, signals } = start;
        journal.handle(Command::Start { component_digest, input, parent, key }, now)?;
        for (signal_name, payload) in signals {
            journal.handle(Command::DeliverSignal { signal_name, payload }, now)?;
        }
        Ok(Self { taken: 0, ..Self::recover(journal, limits) })
    }

    /// An execution as its journal records it. All of the journal is taken for stored.
    pub fn recover(journal: Journal, limits: Limits) -> Self {
        let mut index = Index::new(journal.fold().execution());
        journal.events().iter().for_each(|event| index.note(event));
        Self {
            taken: journal.events().len(),
            pending_bytes: 0,
            journal,
            index,
            seen: Seen::default(),
            cursor: 0,
            waits: Waits::Turn,
            limits,
            next_input: None,
            unwanted: Vec::new(),
        }
    }

    /// Forgets how far the guest came: the next run begins with a new guest.
    pub fn rewind(&mut self) {
        self.seen = Seen::default();
        self.cursor = 0;
        self.waits = Waits::Turn;
        self.next_input = None;
        self.unwanted.clear();
    }

    /// The journal.
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Whose journal it is.
    pub const fn id(&self) -> ExecutionId {
        self.journal.fold().execution()
    }

    /// Whether nothing can follow.
    pub const fn is_over(&self) -> bool {
        self.journal.fold().phase().is_terminal()
    }

    /// Whether the guest has begun a turn and not come to its end, as far as the journal tells.
    pub fn is_in_turn(&self) -> bool {
        self.journal.fold().phase() == Phase::Running && self.journal.events().len() > 1
    }

    /// Whether the guest has something to do.
    pub fn is_runnable(&self) -> bool {
        match self.journal.fold().phase() {
            Phase::Running | Phase::Cancelling => true,
            Phase::Blocked | Phase::CleanupBlocked => self.is_satisfied(),
            Phase::New | Phase::Completed | Phase::Failed | Phase::Cancelled => false,
        }
    }

    fn is_satisfied(&self) -> bool {
        self.journal.fold().wait().is_some_and(Wait::is_satisfied)
    }

    /// Takes the events that were recorded since the last call: they are to be stored together.
    pub fn take_events(&mut self) -> &[JournalEvent] {
        let from = std::mem::replace(&mut self.taken, self.journal.events().len());
        self.pending_bytes = 0;
        &self.journal.events()[from..]
    }

    /// How many events were taken.
    pub const fn taken(&self) -> u64 {
        self.taken as u64
    }

    /// How many were not.
    pub fn untaken(&self) -> usize {
        self.journal.events().len() - self.taken
    }

    /// Takes the operations that the guest no longer wants since the last call.
    pub fn take_unwanted(&mut self) -> Vec<u32> {
        let is_open = |number: &u32| self.index.outcome(*number).is_none();
        let unwanted = std::mem::take(&mut self.unwanted);
        unwanted.into_iter().filter(is_open).collect()
    }

    /// Runs the guest until it waits for something that has not happened, or ends.
    pub fn run(&mut self, guest: &mut dyn Guest, world: &mut dyn World) -> Result<Progress, Violation> {
        if self.is_over() {
            return Ok(Progress::Ended);
        }
        loop {
            let answer = match std::mem::replace(&mut self.waits, Waits::Turn) {
                Waits::Turn => None,
                Waits::Answer(answer) => Some(answer),
                Waits::Await(open) => match self.end_of(&open, world)? {
                    Ok(Some(answer)) => Some(answer),
                    Ok(None) => {
                        self.waits = Waits::Await(open);
                        return Ok(Progress::Blocked);
                    }
                    Err(divergence) => return Ok(Progress::Diverged(divergence)),
                },
            };
            match guest.turn(answer) {
                Turn::Pauses => return Ok(Progress::Paused),
                Turn::Ends(result) => return self.end(result, world.now()),
                Turn::Asks(request) => match ask::ask(self, request, world)? {
                    Ok(waits) => self.waits = waits,
                    Err(divergence) => return Ok(Progress::Diverged(divergence)),
                },
            }
            if self.is_full() {
                return Ok(Progress::Full);
            }
        }
    }

    /// Whether what was recorded since the last store is as much as should be stored together.
    pub fn is_full(&self) -> bool {
        self.pending_bytes >= self.limits.step_bytes
    }

    /// What the guest is told at the end of an await; `None` while it has not ended.
    fn end_of(&mut self, open: &Open, world: &mut dyn World) -> Result<Result<Option<Answer>, Divergence>, Violation> {
        if self.index.end_of(open.sequence).is_none() && self.is_satisfied() {
            self.record(Command::Resume, world.now())?;
        }
        match self.index.end_of(open.sequence) {
            None => Ok(Ok(None)),
            Some(End::Interrupted(_)) => Ok(Ok(Some(Answer::Refused(cancelled())))),
            Some(End::Resumed(at)) => Ok(ask::resumed(self, &open.shape, at, world)?.map(Some)),
        }
    }

    /// Records the end of the guest.
    fn end(&mut self, result: InvokeResult, now: Timestamp) -> Result<Progress, Violation> {
        if let Some(divergence) = self.has_more() {
            return Ok(Progress::Diverged(divergence));
        }
        let result = match self.next_input {
            Some(_) => Ok(Payload::null()),
            None => result.and_then(|payload| self.fitting(payload)),
        };
        let is_cancelling = self.journal.fold().phase() == Phase::Cancelling;
        let command = match result {
            Ok(result) => {
                Command::Complete { result, continued_as: self.next_input.as_ref().map(|_| self.successor_id()) }
            }
            Err(error) if is_cancelling && error.kind == onward_journal::ErrorKind::Cancelled => {
                Command::Cancel { reason: self.cancel_reason() }
            }
            Err(error) => Command::Fail { error },
        };
        self.record(command, now)?;
        Ok(Progress::Ended)
    }

    /// A guest that ends before all it did is repeated has not repeated it.
    fn has_more(&self) -> Option<Divergence> {
        let sequence = *self.index.script.get(self.cursor)?;
        let recorded = &self.journal.events()[usize::try_from(sequence).unwrap_or(usize::MAX)];
        Some(Divergence::new(self.id(), recorded, "the end of the function"))
    }

    /// The payload, if it is not too large.
    pub(crate) fn fitting(&self, payload: Payload) -> Result<Payload, ExecutionError> {
        let (found, limit) = (payload.as_str().len(), self.limits.payload_bytes_max);
        if found > limit { Err(ask::too_large(found, limit)) } else { Ok(payload) }
    }

    fn successor_id(&self) -> ExecutionId {
        let digest = match self.journal.events().first().map(|first| &first.event) {
            Some(Event::ExecutionStarted { component_digest, .. }) => *component_digest,
            _ => onward_journal::ComponentDigest::from_bytes([0; 32]),
        };
        ExecutionId::derive(&digest, Some(&self.id().promise()), "continued")
    }

    /// How it ended, once it has.
    pub fn ending(&self) -> Option<Ending> {
        match self.journal.events().last()?.event.successor() {
            Some(next) => Some(Ending::Continued(next)),
            None => self.result().map(Ending::Result),
        }
    }

    /// Who takes the place of this execution, when it ended that way.
    pub fn successor(&self) -> Option<Successor> {
        let input = self.next_input.clone()?;
        let mut signals: Vec<(u64, Name, Payload)> = Vec::new();
        for (name, waiting) in &self.index.buffered {
            for sequence in waiting {
                if let Some(Event::SignalDelivered { payload, .. }) = self.event_at(*sequence) {
                    signals.push((*sequence, name.clone(), payload.clone()));
                }
            }
        }
        signals.sort_unstable_by_key(|(sequence, ..)| *sequence);
        let signals = signals.into_iter().map(|(_, name, payload)| (name, payload)).collect();
        Some(Successor { execution: self.successor_id(), input, signals })
    }

    fn cancel_reason(&self) -> Text {
        match self.index.cancel.and_then(|sequence| self.event_at(sequence)) {
            Some(Event::CancelRequested { reason }) => reason.clone(),
            _ => Text::from(""),
        }
    }

    pub(crate) fn event_at(&self, sequence: u64) -> Option<&Event> {
        self.journal.events().get(usize::try_from(sequence).ok()?).map(|recorded| &recorded.event)
    }

    pub(crate) fn promise(&self, number: u32) -> PromiseId {
        self.id().child(number)
    }

    /// Records what a command leads to, and returns the sequence of its first event.
    pub(crate) fn record(&mut self, command: Command, now: Timestamp) -> Result<u64, Violation> {
        let sequence = self.journal.fold().version();
        for event in self.journal.handle(command, now)? {
            self.index.note(&event);
            self.pending_bytes += weight(&event.event);
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
                Some(Err(ExecutionError::new(onward_journal::ErrorKind::Cancelled, reason.clone()).permanent()))
            }
            _ => None,
        }
    }
}

/// How an execution ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// With this.
    Result(InvokeResult),
    /// Another has taken its place.
    Continued(ExecutionId),
}

/// How an execution starts.
#[derive(Debug, Clone)]
pub struct Start {
    /// The code.
    pub component_digest: onward_journal::ComponentDigest,
    /// What it is called with.
    pub input: Payload,
    /// The operation of another execution that it performs.
    pub parent: Option<PromiseId>,
    /// What makes starting it idempotent.
    pub key: Option<Text>,
    /// Signals that its predecessor did not consume.
    pub signals: Vec<(Name, Payload)>,
}

pub(crate) fn cancelled() -> ExecutionError {
    ExecutionError::new(onward_journal::ErrorKind::Cancelled, "cancellation was asked for")
}
