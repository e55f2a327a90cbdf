//! What a guest that runs again is answered from: the recorded outcome of each operation, by its place in the call tree.
//!
//! The index borrows the events and holds only places, so building it is one pass without copies.

use std::collections::BTreeMap;

use crate::{AwaitKind, Event, ExecutionId, InvokeResult, JoinSetId, JournalEvent, Payload, PromiseId, Timestamp};

/// The recorded outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Recorded<'a> {
    /// What an invocation ended with.
    Invoke(&'a InvokeResult),
    /// The entropy that was drawn.
    Random(&'a [u8]),
    /// What the clock said.
    Time(Timestamp),
    /// The timer fired.
    Timer,
    /// The signal that was consumed.
    Signal(&'a Payload),
}

/// An index over a journal's events for replay. Build it from events that [`crate::Journal::recover`] accepted.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    execution: ExecutionId,
    /// Indexed by child number.
    operations: Vec<Operation<'a>>,
    /// The JoinSetAwaited events of each set, by the set's child number.
    taken: BTreeMap<u32, Vec<(&'a PromiseId, &'a InvokeResult)>>,
}

#[derive(Clone, Copy, Debug)]
struct Operation<'a> {
    allocated_by: &'a Event,
    outcome: Option<Recorded<'a>>,
}

impl<'a> Replay<'a> {
    /// Indexes the events of `execution`.
    pub fn new(execution: ExecutionId, events: &'a [JournalEvent]) -> Self {
        let mut replay = Self { execution, operations: Vec::new(), taken: BTreeMap::new() };
        for event in events {
            replay.index(&event.event);
        }
        replay
    }

    /// The event that began the operation: what the guest asked for at this place.
    pub fn operation(&self, id: &PromiseId) -> Option<&'a Event> {
        Some(self.at(id)?.allocated_by)
    }

    /// The operation's outcome. `None` if it is unknown or still under way; [`Replay::operation`] tells which.
    pub fn outcome(&self, id: &PromiseId) -> Option<Recorded<'a>> {
        self.at(id)?.outcome
    }

    /// What the `n`-th `next()` of a set returned (0 is the first).
    pub fn next_of(&self, set: &JoinSetId, n: usize) -> Option<(&'a PromiseId, &'a InvokeResult)> {
        let number = set.0.number_in(self.execution)?;
        self.taken.get(&number)?.get(n).copied()
    }

    /// How many operations the journal knows.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Whether the journal knows no operation.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    fn at(&self, id: &PromiseId) -> Option<&Operation<'a>> {
        self.operations.get(id.number_in(self.execution)? as usize)
    }

    fn index(&mut self, event: &'a Event) {
        match event {
            Event::InvokeScheduled { .. } | Event::TimerScheduled { .. } | Event::JoinSetCreated { .. } => {
                self.begin(event, None);
            }
            Event::ExecutionAwaiting { kind: AwaitKind::Signal(_), .. } => self.begin(event, None),
            Event::RandomGenerated { value, .. } => self.begin(event, Some(Recorded::Random(value))),
            Event::TimeRecorded { time, .. } => self.begin(event, Some(Recorded::Time(*time))),
            Event::InvokeCompleted { promise_id, result, .. } => self.end(promise_id, Recorded::Invoke(result)),
            Event::TimerFired { promise_id } => self.end(promise_id, Recorded::Timer),
            Event::SignalReceived { promise_id, payload, .. } => {
                let outcome = Recorded::Signal(payload);
                if self.at(promise_id).is_some() {
                    self.end(promise_id, outcome);
                } else {
                    self.begin(event, Some(outcome));
                }
            }
            Event::JoinSetAwaited { join_set_id, promise_id, result } => {
                if let Some(number) = join_set_id.0.number_in(self.execution) {
                    self.taken.entry(number).or_default().push((promise_id, result));
                }
            }
            _ => {}
        }
    }

    fn begin(&mut self, allocated_by: &'a Event, outcome: Option<Recorded<'a>>) {
        self.operations.push(Operation { allocated_by, outcome });
    }

    fn end(&mut self, id: &PromiseId, outcome: Recorded<'a>) {
        let number = id.number_in(self.execution);
        if let Some(operation) = number.and_then(|number| self.operations.get_mut(number as usize)) {
            operation.outcome = Some(outcome);
        }
    }
}
