//! A journal in memory: the events and the state they reduce to, always consistent with each other.

use crate::{
    AwaitState, Event, ExecutionId, ExecutionState, InvokeResult, JournalCommand, JournalEvent,
    JournalState, RuleViolation,
};
use onward_base::{Payload, Timestamp};

/// An append-only list of events that never enters an illegal state.
#[derive(Clone, Debug)]
pub struct Journal {
    events: Vec<JournalEvent>,
    state: JournalState,
}

impl Journal {
    /// Creates the empty journal of an execution.
    pub fn new(execution: ExecutionId) -> Self {
        Self {
            events: Vec::new(),
            state: JournalState::new(execution),
        }
    }

    /// Rebuilds a journal from recorded events. Every rule is checked again, so a journal that was
    /// tampered with is refused.
    pub fn recover(
        execution: ExecutionId,
        events: Vec<JournalEvent>,
    ) -> Result<Self, RuleViolation> {
        if events.is_empty() {
            return Err(RuleViolation::empty_journal());
        }
        let mut fold = JournalState::new(execution);
        for event in &events {
            fold.push_event(event)?;
        }
        Ok(Self {
            events,
            state: fold,
        })
    }

    /// Decides which event `command` records at `now`, checks it against every rule and appends it.
    /// Returns the appended events; on a violation nothing changes.
    ///
    /// A command records one event; an await that is already satisfied records its resume as well.
    ///
    /// Timestamps never go backwards: an event is not recorded as earlier than the one before it,
    /// although the clocks of the processes that record events may differ.
    pub fn handle_command(
        &mut self,
        command: JournalCommand,
        now: Timestamp,
    ) -> Result<Vec<JournalEvent>, RuleViolation> {
        let event = command.decide_event(self, now)?;
        let is_await = matches!(event, Event::ExecutionAwaiting { .. });
        let mut recorded = vec![self.record_event(event, now)?];
        if is_await
            && self
                .state
                .open_await()
                .is_some_and(AwaitState::is_satisfied)
        {
            recorded.push(self.record_event(Event::ExecutionResumed, now)?);
        }
        Ok(recorded)
    }

    fn record_event(
        &mut self,
        event: Event,
        now: Timestamp,
    ) -> Result<JournalEvent, RuleViolation> {
        let last = self.events.last().map(|last| last.timestamp);
        let recorded = JournalEvent {
            sequence: self.state.next_sequence(),
            timestamp: last.map_or(now, |last| last.max(now)),
            event,
        };
        self.append(recorded.clone())?;
        Ok(recorded)
    }

    /// Appends an event that the caller decided on. Fails if a rule forbids it, and then changes
    /// nothing.
    pub fn append(&mut self, event: JournalEvent) -> Result<(), RuleViolation> {
        self.state.push_event(&event)?;
        self.events.push(event);
        Ok(())
    }

    /// Returns all events in the order of their sequence numbers.
    pub fn events(&self) -> &[JournalEvent] {
        &self.events
    }

    /// Returns the state that the events reduce to.
    pub const fn journal_state(&self) -> &JournalState {
        &self.state
    }

    /// Returns the state that users see; `None` before the first event.
    pub const fn execution_state(&self) -> Option<ExecutionState> {
        self.state.execution_state()
    }

    /// Returns the result recorded at `sequence`; `None` if the event there is not an
    /// InvokeCompleted.
    pub(crate) fn result_at(&self, sequence: u64) -> Option<&InvokeResult> {
        match &self.events.get(usize::try_from(sequence).ok()?)?.event {
            Event::InvokeCompleted { result, .. } => Some(result),
            _ => None,
        }
    }

    /// Returns the payload recorded at `sequence`; `None` if the event there is not a
    /// SignalDelivered.
    pub(crate) fn signal_at(&self, sequence: u64) -> Option<&Payload> {
        match &self.events.get(usize::try_from(sequence).ok()?)?.event {
            Event::SignalDelivered { payload, .. } => Some(payload),
            _ => None,
        }
    }
}
