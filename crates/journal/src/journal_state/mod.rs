//! The state that a journal's events reduce to, updated event by event. It is the only place that
//! holds the current state.
//!
//! [`JournalState::check_event`] decides whether an event may follow, and
//! [`JournalState::push_event`] also applies it; the cost of both is independent of the length of
//! the journal. The state holds no payloads, only fingerprints and sequence numbers, so a journal
//! of any length can be checked in little memory.

mod apply;
mod fingerprint;
mod inbox;
mod promise;

use std::collections::BTreeMap;
use std::fmt;

pub(crate) use fingerprint::PayloadFingerprint;
pub use inbox::SignalInbox;
pub use promise::{InvokePhase, InvokeState, JoinSetState, PromiseState};

use crate::invariant::RuleEnforcement;
use crate::{
    AwaitKind, Event, EventKind, ExecutionId, ExecutionPhase, ExecutionState, JoinSetId,
    JournalEvent, LifecycleAction, PromiseId, Rule, RuleViolation, phase_transition, rules,
};
use onward_base::BoundedName;

/// The open await of an execution.
#[derive(Clone, Debug)]
pub struct AwaitState {
    /// The condition that satisfies the await.
    pub kind: AwaitKind,
    /// The child numbers of the promises that the await names.
    waiting_on: Vec<u32>,
    /// The number of those promises that are not complete yet.
    incomplete: usize,
}

impl AwaitState {
    /// Returns whether the await is satisfied, so that the execution may resume.
    pub fn is_satisfied(&self) -> bool {
        match self.kind {
            AwaitKind::Any | AwaitKind::Signal(_) => self.incomplete < self.waiting_on.len(),
            AwaitKind::Single | AwaitKind::All => self.incomplete == 0,
        }
    }
}

/// The state that a journal's events reduce to.
#[derive(Clone, Debug)]
pub struct JournalState {
    execution: ExecutionId,
    next_sequence: u64,
    phase: ExecutionPhase,
    open_await: Option<AwaitState>,
    /// Indexed by child number.
    slots: Vec<PromiseSlot>,
    join_sets: Vec<JoinSetState>,
    inboxes: BTreeMap<BoundedName, SignalInbox>,
    /// The number of awaits so far, so that a slot can record which await named it last.
    await_count: u32,
}

#[derive(Clone, Debug)]
struct PromiseSlot {
    promise: PromiseState,
    /// The number of the await that named the promise last; 0 if none did.
    awaited_by: u32,
}

impl JournalState {
    /// Creates the state of an empty journal.
    pub fn new(execution: ExecutionId) -> Self {
        Self {
            execution,
            next_sequence: 0,
            phase: ExecutionPhase::New,
            open_await: None,
            slots: Vec::new(),
            join_sets: Vec::new(),
            inboxes: BTreeMap::new(),
            await_count: 0,
        }
    }

    /// Returns the execution that the journal belongs to.
    pub const fn execution_id(&self) -> ExecutionId {
        self.execution
    }

    /// Returns the number of applied events, which is the sequence number of the next event.
    pub const fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Returns the phase of the execution's lifecycle.
    pub const fn phase(&self) -> ExecutionPhase {
        self.phase
    }

    /// Returns the state that users see; `None` before the first event.
    pub const fn execution_state(&self) -> Option<ExecutionState> {
        self.phase.execution_state()
    }

    /// Returns the open await; `None` if neither the execution nor its cleanup waits.
    pub const fn open_await(&self) -> Option<&AwaitState> {
        self.open_await.as_ref()
    }

    /// Returns the promises that the open await names; none if no await is open.
    pub fn waiting_on(&self) -> impl Iterator<Item = PromiseId> {
        let numbers = self
            .open_await
            .as_ref()
            .map_or(&[][..], |wait| &wait.waiting_on);
        numbers
            .iter()
            .map(|number| self.execution.child_promise(*number))
    }

    /// Returns the id that the next operation will get.
    pub fn next_promise_id(&self) -> PromiseId {
        self.execution.child_promise(self.slots.len() as u32)
    }

    /// Returns the state of an operation; `None` if it was never allocated.
    pub fn promise_state(&self, id: &PromiseId) -> Option<&PromiseState> {
        self.promise_slot(id).map(|slot| &slot.promise)
    }

    /// Returns the state of an invocation; `None` if the operation is unknown or not an invocation.
    pub fn invoke_state(&self, id: &PromiseId) -> Option<&InvokeState> {
        match self.promise_state(id)? {
            PromiseState::Invoke(invoke) => Some(invoke),
            _ => None,
        }
    }

    /// Returns the state of a join set; `None` if it was never created.
    pub fn join_set_state(&self, id: &JoinSetId) -> Option<&JoinSetState> {
        self.join_sets.get(self.join_set_index(id)? as usize)
    }

    /// Returns the inbox of this signal name; an empty one if no signal of the name was delivered.
    pub fn signal_inbox(&self, signal_name: &str) -> &SignalInbox {
        static EMPTY: SignalInbox = SignalInbox::EMPTY;
        self.inboxes.get(signal_name).unwrap_or(&EMPTY)
    }

    /// Returns all operations in the order of allocation.
    pub fn promise_states(&self) -> impl Iterator<Item = (PromiseId, &PromiseState)> {
        (0..)
            .zip(&self.slots)
            .map(|(number, slot)| (self.execution.child_promise(number), &slot.promise))
    }

    /// Applies `event` if it may follow. Fails with the violated rule otherwise, and changes
    /// nothing.
    pub fn push_event(&mut self, event: &JournalEvent) -> Result<(), RuleViolation> {
        self.check_event(event)?;
        self.apply_event(event);
        Ok(())
    }

    /// Checks whether `event` may follow. Fails with the first rule that it breaks.
    pub fn check_event(&self, event: &JournalEvent) -> Result<(), RuleViolation> {
        let refuse = |rule: Rule, message| RuleViolation {
            rule,
            sequence: event.sequence,
            event: event.event.kind(),
            message,
        };
        if let Some(message) = rules::structure::sequence_is_index(self, event) {
            return Err(refuse(Rule::S1, message));
        }
        self.check_action(self.classify_event(&event.event), event.event.kind())?;
        for rule in rules::rules_for_event(event.event.kind()) {
            if let RuleEnforcement::Content(check) = rule.invariant().enforced
                && let Some(message) = check(self, event)
            {
                return Err(refuse(*rule, message));
            }
        }
        Ok(())
    }

    /// Checks whether the phase allows `act`. `event` is the kind of event to name in the
    /// violation.
    pub(crate) fn check_action(
        &self,
        act: LifecycleAction,
        event: EventKind,
    ) -> Result<ExecutionPhase, RuleViolation> {
        phase_transition(self.phase, act).map_err(|rule| RuleViolation {
            rule,
            sequence: self.next_sequence,
            event,
            message: self.lifecycle_message(act),
        })
    }

    /// Returns the effect of the event on the phase.
    pub(crate) fn classify_event(&self, event: &Event) -> LifecycleAction {
        match event {
            Event::ExecutionStarted { .. } => LifecycleAction::Start,
            Event::ExecutionCompleted { .. } => LifecycleAction::Complete,
            Event::ExecutionFailed { .. } => LifecycleAction::Fail,
            Event::CancelRequested { .. } => LifecycleAction::RequestCancel,
            Event::ExecutionCancelled { .. } => LifecycleAction::Cancel,
            Event::InvokeScheduled { .. }
            | Event::RandomGenerated { .. }
            | Event::TimeRecorded { .. }
            | Event::TimerScheduled { .. }
            | Event::JoinSetCreated { .. } => LifecycleAction::Allocate,
            Event::InvokeStarted { .. }
            | Event::InvokeCompleted { .. }
            | Event::InvokeRetrying { .. }
            | Event::TimerFired { .. }
            | Event::SignalDelivered { .. } => LifecycleAction::Arrive,
            Event::SignalReceived { promise_id, .. } => match &self.open_await {
                Some(AwaitState {
                    kind: AwaitKind::Signal(_),
                    ..
                }) => LifecycleAction::Receive,
                _ if self.is_awaited(promise_id) => LifecycleAction::Receive,
                _ => LifecycleAction::Allocate,
            },
            Event::ExecutionAwaiting { .. } => LifecycleAction::Await,
            Event::ExecutionResumed => match &self.open_await {
                Some(wait) if !wait.is_satisfied() => LifecycleAction::ResumeUnsatisfied,
                _ => LifecycleAction::Resume,
            },
            Event::JoinSetSubmitted { .. } | Event::JoinSetAwaited { .. } => {
                LifecycleAction::UseJoinSet
            }
        }
    }

    fn lifecycle_message(&self, act: LifecycleAction) -> String {
        match (self.execution_state(), act) {
            (None, _) => "a journal begins with ExecutionStarted".to_owned(),
            (Some(_), LifecycleAction::ResumeUnsatisfied) => {
                let is_incomplete = |id: &PromiseId| {
                    (self.promise_state(id)).is_none_or(|promise| !promise.is_complete())
                };
                let waiting: Vec<String> = self
                    .waiting_on()
                    .filter(is_incomplete)
                    .take(8)
                    .map(|id| self.display_id(&id).to_string())
                    .collect();
                format!("still waiting on {}", waiting.join(", "))
            }
            (Some(state), _) if self.open_await.is_some() => {
                format!("the execution is {state} with an open await")
            }
            (Some(state), _) => format!("the execution is {state}"),
        }
    }

    /// Displays an id relative to this journal's execution: `root.3`.
    pub(crate) fn display_id<'a>(&self, id: &'a PromiseId) -> impl fmt::Display + use<'a> {
        id.relative_to(self.execution)
    }

    /// Returns whether the open await names `id`.
    pub(crate) fn is_awaited(&self, id: &PromiseId) -> bool {
        self.open_await.is_some()
            && self
                .promise_slot(id)
                .is_some_and(|slot| slot.awaited_by == self.await_count)
    }

    /// Returns whether the open await names `id`, and `id` is a signal that was not received yet.
    pub(crate) fn awaits_signal_as(&self, id: &PromiseId) -> bool {
        self.is_awaited(id)
            && matches!(
                self.promise_state(id),
                Some(PromiseState::Signal {
                    received: false,
                    ..
                })
            )
    }

    pub(crate) fn join_set_index(&self, id: &JoinSetId) -> Option<u32> {
        match self.promise_state(&id.0)? {
            PromiseState::JoinSet(index) => Some(*index),
            _ => None,
        }
    }

    fn promise_slot(&self, id: &PromiseId) -> Option<&PromiseSlot> {
        self.slots.get(id.child_number_in(self.execution)? as usize)
    }
}
