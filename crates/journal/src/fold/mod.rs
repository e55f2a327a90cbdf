//! What a journal's events amount to: the one place that knows the current state, kept up to date event by event.
//!
//! [`Fold::check`] says whether an event may follow, [`Fold::push`] takes it in if so; both cost the same however long the
//! journal is. The fold holds no payloads, only fingerprints and places, so a journal of any length can be judged in
//! little memory.

mod apply;
mod fingerprint;
mod inbox;
mod promise;

use std::collections::BTreeMap;
use std::fmt;

pub(crate) use fingerprint::Fingerprint;
pub use inbox::Inbox;
pub use promise::{Flight, Invoke, JoinSet, Promise};

use crate::invariant::Enforced;
use crate::{
    Act, AwaitKind, Event, EventKind, ExecutionId, JoinSetId, JournalEvent, Name, Phase, PromiseId, Rule, State,
    Violation, rules, transition,
};

/// What an execution waits for.
#[derive(Clone, Debug)]
pub struct Wait {
    /// What satisfies it.
    pub kind: AwaitKind,
    /// The child numbers of the promises it names.
    waiting_on: Vec<u32>,
    /// How many of them are not complete yet.
    incomplete: usize,
}

impl Wait {
    /// Whether the execution may resume.
    pub fn is_satisfied(&self) -> bool {
        match self.kind {
            AwaitKind::Any | AwaitKind::Signal(_) => self.incomplete < self.waiting_on.len(),
            AwaitKind::Single | AwaitKind::All => self.incomplete == 0,
        }
    }
}

/// The state that a journal's events amount to.
#[derive(Clone, Debug)]
pub struct Fold {
    execution: ExecutionId,
    version: u64,
    phase: Phase,
    wait: Option<Wait>,
    /// Indexed by child number.
    slots: Vec<Slot>,
    sets: Vec<JoinSet>,
    inboxes: BTreeMap<Name, Inbox>,
    /// Counts awaits, so that a slot can say which await named it last.
    awaits: u32,
}

#[derive(Clone, Debug)]
struct Slot {
    promise: Promise,
    /// The number of the await that named it last; 0 if none did.
    awaited_by: u32,
}

impl Fold {
    /// The fold of an empty journal.
    pub fn new(execution: ExecutionId) -> Self {
        Self {
            execution,
            version: 0,
            phase: Phase::New,
            wait: None,
            slots: Vec::new(),
            sets: Vec::new(),
            inboxes: BTreeMap::new(),
            awaits: 0,
        }
    }

    /// Whose journal it is.
    pub const fn execution(&self) -> ExecutionId {
        self.execution
    }

    /// How many events were taken in; the next event's sequence number.
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Where the execution is in its life.
    pub const fn phase(&self) -> Phase {
        self.phase
    }

    /// What users see; `None` before the first event.
    pub const fn state(&self) -> Option<State> {
        self.phase.state()
    }

    /// The open await, if the execution or its cleanup waits.
    pub const fn wait(&self) -> Option<&Wait> {
        self.wait.as_ref()
    }

    /// The promises that the open await names.
    pub fn waiting_on(&self) -> impl Iterator<Item = PromiseId> {
        let numbers = self.wait.as_ref().map_or(&[][..], |wait| &wait.waiting_on);
        numbers.iter().map(|number| self.execution.child(*number))
    }

    /// The id of the next operation.
    pub fn next_child(&self) -> PromiseId {
        self.execution.child(self.slots.len() as u32)
    }

    /// What is known of an operation.
    pub fn promise(&self, id: &PromiseId) -> Option<&Promise> {
        self.slot(id).map(|slot| &slot.promise)
    }

    /// What is known of an invocation.
    pub fn invoke(&self, id: &PromiseId) -> Option<&Invoke> {
        match self.promise(id)? {
            Promise::Invoke(invoke) => Some(invoke),
            _ => None,
        }
    }

    /// What is known of a join set.
    pub fn join_set(&self, id: &JoinSetId) -> Option<&JoinSet> {
        self.sets.get(self.set_index(id)? as usize)
    }

    /// The signals of this name.
    pub fn inbox(&self, signal_name: &str) -> &Inbox {
        static EMPTY: Inbox = Inbox::EMPTY;
        self.inboxes.get(signal_name).unwrap_or(&EMPTY)
    }

    /// All operations in the order of allocation.
    pub fn promises(&self) -> impl Iterator<Item = (PromiseId, &Promise)> {
        (0..).zip(&self.slots).map(|(number, slot)| (self.execution.child(number), &slot.promise))
    }

    /// Takes `event` in if it may follow; changes nothing if not.
    pub fn push(&mut self, event: &JournalEvent) -> Result<(), Violation> {
        self.check(event)?;
        self.apply(event);
        Ok(())
    }

    /// Whether `event` may follow; the rule it breaks if not.
    pub fn check(&self, event: &JournalEvent) -> Result<(), Violation> {
        let refuse =
            |rule: Rule, message| Violation { rule, sequence: event.sequence, event: event.event.kind(), message };
        if let Some(message) = rules::structure::sequence_is_index(self, event) {
            return Err(refuse(Rule::S1, message));
        }
        self.guard(self.act(&event.event), event.event.kind())?;
        for rule in rules::of(event.event.kind()) {
            if let Enforced::Content(check) = rule.invariant().enforced
                && let Some(message) = check(self, event)
            {
                return Err(refuse(*rule, message));
            }
        }
        Ok(())
    }

    /// Whether the phase allows `act`, which an event of this kind would be.
    pub(crate) fn guard(&self, act: Act, event: EventKind) -> Result<Phase, Violation> {
        transition(self.phase, act).map_err(|rule| Violation {
            rule,
            sequence: self.version,
            event,
            message: self.status_message(act),
        })
    }

    /// What the event does, as far as the phase is concerned.
    pub(crate) fn act(&self, event: &Event) -> Act {
        match event {
            Event::ExecutionStarted { .. } => Act::Start,
            Event::ExecutionCompleted { .. } => Act::Complete,
            Event::ExecutionFailed { .. } => Act::Fail,
            Event::CancelRequested { .. } => Act::RequestCancel,
            Event::ExecutionCancelled { .. } => Act::Cancel,
            Event::InvokeScheduled { .. }
            | Event::RandomGenerated { .. }
            | Event::TimeRecorded { .. }
            | Event::TimerScheduled { .. }
            | Event::JoinSetCreated { .. } => Act::Allocate,
            Event::InvokeStarted { .. }
            | Event::InvokeCompleted { .. }
            | Event::InvokeRetrying { .. }
            | Event::TimerFired { .. }
            | Event::SignalDelivered { .. } => Act::Arrive,
            Event::SignalReceived { promise_id, .. } => match &self.wait {
                Some(Wait { kind: AwaitKind::Signal(_), .. }) => Act::Receive,
                _ if self.is_awaited(promise_id) => Act::Receive,
                _ => Act::Allocate,
            },
            Event::ExecutionAwaiting { .. } => Act::Await,
            Event::ExecutionResumed => match &self.wait {
                Some(wait) if !wait.is_satisfied() => Act::ResumeUnsatisfied,
                _ => Act::Resume,
            },
            Event::JoinSetSubmitted { .. } | Event::JoinSetAwaited { .. } => Act::UseJoinSet,
        }
    }

    fn status_message(&self, act: Act) -> String {
        match (self.state(), act) {
            (None, _) => "a journal begins with ExecutionStarted".to_owned(),
            (Some(_), Act::ResumeUnsatisfied) => {
                let waiting: Vec<String> = self.waiting_on().take(8).map(|id| self.show(&id).to_string()).collect();
                format!("still waiting on {}", waiting.join(", "))
            }
            (Some(state), _) if self.wait.is_some() => {
                format!("the execution is {state} with an open await")
            }
            (Some(state), _) => format!("the execution is {state}"),
        }
    }

    /// The id as people read it in this journal: `root.3`.
    pub(crate) fn show<'a>(&self, id: &'a PromiseId) -> impl fmt::Display + use<'a> {
        id.relative_to(self.execution)
    }

    /// Whether the open await names `id`.
    pub(crate) fn is_awaited(&self, id: &PromiseId) -> bool {
        self.wait.is_some() && self.slot(id).is_some_and(|slot| slot.awaited_by == self.awaits)
    }

    /// Whether the open await names `id`, and `id` is a signal that was not received yet.
    pub(crate) fn awaits_signal_as(&self, id: &PromiseId) -> bool {
        self.is_awaited(id) && matches!(self.promise(id), Some(Promise::Signal { received: false, .. }))
    }

    pub(crate) fn set_index(&self, id: &JoinSetId) -> Option<u32> {
        match self.promise(&id.0)? {
            Promise::JoinSet(index) => Some(*index),
            _ => None,
        }
    }

    fn slot(&self, id: &PromiseId) -> Option<&Slot> {
        self.slots.get(id.number_in(self.execution)? as usize)
    }
}
