//! A journal in memory: the events and what they amount to, always in step.

use crate::{
    Command, Event, ExecutionId, Fold, InvokeResult, JournalEvent, Payload, State, Timestamp, Violation, Wait,
};

/// An append-only list of events that never enters an illegal state.
#[derive(Clone, Debug)]
pub struct Journal {
    events: Vec<JournalEvent>,
    fold: Fold,
}

impl Journal {
    /// An empty journal.
    pub fn new(execution: ExecutionId) -> Self {
        Self { events: Vec::new(), fold: Fold::new(execution) }
    }

    /// Rebuilds a journal from recorded events. Every rule is checked again: what was tampered with is refused.
    pub fn recover(execution: ExecutionId, events: Vec<JournalEvent>) -> Result<Self, Violation> {
        if events.is_empty() {
            return Err(Violation::empty());
        }
        let mut fold = Fold::new(execution);
        for event in &events {
            fold.push(event)?;
        }
        Ok(Self { events, fold })
    }

    /// Decides what `command` records at `now`, checks it against every rule and appends it. The events that were
    /// appended are returned; on a violation nothing changes.
    ///
    /// A command records one event; an await that is satisfied already records its resume as well.
    pub fn handle(&mut self, command: Command, now: Timestamp) -> Result<Vec<JournalEvent>, Violation> {
        let event = command.decide(self, now)?;
        let is_await = matches!(event, Event::ExecutionAwaiting { .. });
        let mut recorded = vec![self.record(event, now)?];
        if is_await && self.fold.wait().is_some_and(Wait::is_satisfied) {
            recorded.push(self.record(Event::ExecutionResumed, now)?);
        }
        Ok(recorded)
    }

    fn record(&mut self, event: Event, now: Timestamp) -> Result<JournalEvent, Violation> {
        let recorded = JournalEvent { sequence: self.fold.version(), timestamp: now, event };
        self.append(recorded.clone())?;
        Ok(recorded)
    }

    /// Appends an event that somebody else decided on, if every rule allows it.
    pub fn append(&mut self, event: JournalEvent) -> Result<(), Violation> {
        self.fold.push(&event)?;
        self.events.push(event);
        Ok(())
    }

    /// The events, in order.
    pub fn events(&self) -> &[JournalEvent] {
        &self.events
    }

    /// What the events amount to.
    pub const fn fold(&self) -> &Fold {
        &self.fold
    }

    /// What users see; `None` before the first event.
    pub const fn state(&self) -> Option<State> {
        self.fold.state()
    }

    /// The result recorded at `sequence`, where an InvokeCompleted is.
    pub(crate) fn result_at(&self, sequence: u64) -> Option<&InvokeResult> {
        match &self.events.get(usize::try_from(sequence).ok()?)?.event {
            Event::InvokeCompleted { result, .. } => Some(result),
            _ => None,
        }
    }

    /// The payload recorded at `sequence`, where a SignalDelivered is.
    pub(crate) fn signal_at(&self, sequence: u64) -> Option<&Payload> {
        match &self.events.get(usize::try_from(sequence).ok()?)?.event {
            Event::SignalDelivered { payload, .. } => Some(payload),
            _ => None,
        }
    }
}
