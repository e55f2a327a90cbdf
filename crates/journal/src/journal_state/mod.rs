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

pub(crate) use fingerprint::PayloadFingerprint;
pub use inbox::SignalInbox;
pub use promise::{InvokePhase, InvokeState, JoinSetState, PromiseState};

use crate::invariant::RuleEnforcement;
use crate::{
    AwaitKind, Event, EventKind, ExecutionId, ExecutionPhase, ExecutionState, JoinSetId,
    JournalEvent, LifecycleAction, PromiseId, Rule, RuleViolation, phase_transition, rules,
};
use onward_base::BoundedName;

/// What an execution waits for.
#[derive(Clone, Debug)]
pub struct AwaitState {
    /// What satisfies it.
    pub kind: AwaitKind,
    /// The child numbers of the promises it names.
    waiting_on: Vec<u32>,
    /// How many of them are not complete yet.
    incomplete: usize,
}

impl AwaitState {
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
pub struct JournalState {
    execution: ExecutionId,
    next_sequence: u64,
    phase: ExecutionPhase,
    open_await: Option<AwaitState>,
    /// Indexed by child number.
    slots: Vec<PromiseSlot>,
    join_sets: Vec<JoinSetState>,
    inboxes: BTreeMap<BoundedName, SignalInbox>,
    /// Counts awaits, so that a slot can say which await named it last.
    await_count: u32,
}

#[derive(Clone, Debug)]
struct PromiseSlot {
    promise: PromiseState,
    /// The number of the await that named it last; 0 if none did.
    awaited_by: u32,
}

impl JournalState {
    /// The fold of an empty journal.
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

    /// Whose journal it is.
    pub const fn execution_id(&self) -> ExecutionId {
        self.execution
    }

    /// How many events were taken in; the next event's sequence number.
    pub const fn next_sequence(&self) -> u64 {
        self.next_sequence
    }

    /// Where the execution is in its life.
    pub const fn phase(&self) -> ExecutionPhase {
        self.phase
    }

    /// What users see; `None` before the first event.
    pub const fn execution_state(&self) -> Option<ExecutionState> {
        self.phase.execution_state()
    }

    /// The open await, if the execution or its cleanup waits.
    pub const fn open_await(&self) -> Option<&AwaitState> {
        self.open_await.as_ref()
    }

    /// The promises that the open await names.
    pub fn waiting_on(&self) -> impl Iterator<Item = PromiseId> {
        let numbers = self
            .open_await
            .as_ref()
            .map_or(&[][..], |wait| &wait.waiting_on);
        numbers
            .iter()
            .map(|number| self.execution.child_promise(*number))
    }

    /// The id of the next operation.
    pub fn next_promise_id(&self) -> PromiseId {
        self.execution.child_promise(self.slots.len() as u32)
    }

    /// What is known of an operation.
    pub fn promise_state(&self, id: &PromiseId) -> Option<&PromiseState> {
        self.promise_slot(id).map(|slot| &slot.promise)
    }

    /// What is known of an invocation.
    pub fn invoke_state(&self, id: &PromiseId) -> Option<&InvokeState> {
        match self.promise_state(id)? {
            PromiseState::Invoke(invoke) => Some(invoke),
            _ => None,
        }
    }

    /// What is known of a join set.
    pub fn join_set_state(&self, id: &JoinSetId) -> Option<&JoinSetState> {
        self.join_sets.get(self.join_set_index(id)? as usize)
    }

    /// The signals of this name.
    pub fn signal_inbox(&self, signal_name: &str) -> &SignalInbox {
        static EMPTY: SignalInbox = SignalInbox::EMPTY;
        self.inboxes.get(signal_name).unwrap_or(&EMPTY)
    }

    /// All operations in the order of allocation.
    pub fn promise_states(&self) -> impl Iterator<Item = (PromiseId, &PromiseState)> {
        (0..)
            .zip(&self.slots)
            .map(|(number, slot)| (self.execution.child_promise(number), &slot.promise))
    }

    /// Takes `event` in if it may follow; changes nothing if not.
    pub fn push_event(&mut self, event: &JournalEvent) -> Result<(), RuleViolation> {
        self.check_event(event)?;
        self.apply_event(event);
        Ok(())
    }

    /// Whether `event` may follow; the rule it breaks if not.
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

    /// Whether the phase allows `act`, which an event of this kind would be.
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

    /// What the event does, as far as the phase is concerned.
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
                let waiting: Vec<String> = self
                    .waiting_on()
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

    /// The id as people read it in this journal: `root.3`.
    pub(crate) fn display_id<'a>(&self, id: &'a PromiseId) -> impl fmt::Display + use<'a> {
        id.relative_to(self.execution)
    }

    /// Whether the open await names `id`.
    pub(crate) fn is_awaited(&self, id: &PromiseId) -> bool {
        self.open_await.is_some()
            && self
                .promise_slot(id)
                .is_some_and(|slot| slot.awaited_by == self.await_count)
    }

    /// Whether the open await names `id`, and `id` is a signal that was not received yet.
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
