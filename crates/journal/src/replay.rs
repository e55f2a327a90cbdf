//! The index that answers a guest during replay: the recorded outcome of each operation by its
//! position in the call tree, and how each of its awaits ended, in order.
//!
//! Outcomes alone are not enough. A sleep that cancellation interrupted may have fired later, and
//! if an await raced two promises, the loser completes as well; a guest that saw those outcomes
//! would take another path than in the first run. So every outcome has the sequence number of its
//! event, and every await records when and how it ended: [`ReplayIndex::outcome_before`] returns
//! what the guest could see at that moment.
//!
//! The index borrows the events and holds only references and sequence numbers, so building it is
//! one pass without copies.

use std::collections::BTreeMap;

use crate::{AwaitKind, Event, ExecutionId, InvokeResult, JoinSetId, JournalEvent, PromiseId};
use onward_base::{Payload, Timestamp};

/// The recorded outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordedOutcome<'a> {
    /// The result of an invocation.
    Invoke(&'a InvokeResult),
    /// The random bytes that were drawn.
    Random(&'a [u8]),
    /// The time that was read from the clock.
    Time(Timestamp),
    /// The timer fired; it has no value.
    Timer,
    /// The payload of the signal that was consumed.
    Signal(&'a Payload),
}

/// An await that the journal records.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedAwait<'a> {
    /// The sequence number of its ExecutionAwaiting event.
    pub sequence: u64,
    /// The promises that the await named.
    pub waiting_on: &'a [PromiseId],
    /// The condition that satisfies the await.
    pub kind: &'a AwaitKind,
    /// How the await ended, if it has.
    pub end: AwaitEnd,
}

/// How an await ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AwaitEnd {
    /// The await was satisfied, and the guest resumed at this sequence number.
    Resumed(u64),
    /// Cancellation interrupted the await at this sequence number: the guest received that instead
    /// of a result.
    Interrupted(u64),
    /// The await has not ended.
    Open,
}

/// A result that the guest took from a join set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordedJoinResult<'a> {
    /// The sequence number of its JoinSetAwaited event.
    pub sequence: u64,
    /// The invocation that produced the result.
    pub promise_id: &'a PromiseId,
    /// The result of that invocation.
    pub result: &'a InvokeResult,
}

/// An index over a journal's events for replay. It must be built from events that
/// [`crate::Journal::recover`] accepted.
#[derive(Clone, Debug)]
pub struct ReplayIndex<'a> {
    execution: ExecutionId,
    /// Indexed by child number.
    operations: Vec<RecordedOperation<'a>>,
    awaits: Vec<RecordedAwait<'a>>,
    /// The JoinSetAwaited events of each set, by the set's child number.
    join_results: BTreeMap<u32, Vec<RecordedJoinResult<'a>>>,
}

#[derive(Clone, Copy, Debug)]
struct RecordedOperation<'a> {
    allocated_by: &'a Event,
    outcome: Option<(u64, RecordedOutcome<'a>)>,
}

impl<'a> ReplayIndex<'a> {
    /// Builds the index over the events of `execution`.
    pub fn new(execution: ExecutionId, events: &'a [JournalEvent]) -> Self {
        let mut replay = Self {
            execution,
            operations: Vec::new(),
            awaits: Vec::new(),
            join_results: BTreeMap::new(),
        };
        for JournalEvent {
            sequence, event, ..
        } in events
        {
            replay.index_event(*sequence, event);
        }
        replay
    }

    /// Returns the event that began the operation: it records what the guest requested at this
    /// position.
    pub fn allocating_event(&self, id: &PromiseId) -> Option<&'a Event> {
        Some(self.find_operation(id)?.allocated_by)
    }

    /// Returns the operation's outcome. `None` if the operation is unknown or still in flight;
    /// [`ReplayIndex::allocating_event`] distinguishes the two.
    pub fn recorded_outcome(&self, id: &PromiseId) -> Option<RecordedOutcome<'a>> {
        Some(self.find_operation(id)?.outcome?.1)
    }

    /// Returns the operation's outcome if it was recorded before `sequence`, otherwise `None`.
    pub fn outcome_before(&self, id: &PromiseId, sequence: u64) -> Option<RecordedOutcome<'a>> {
        let (recorded, outcome) = self.find_operation(id)?.outcome?;
        (recorded < sequence).then_some(outcome)
    }

    /// Returns the guest's await with index `n` (0 is the first).
    pub fn recorded_await(&self, n: usize) -> Option<RecordedAwait<'a>> {
        self.awaits.get(n).copied()
    }

    /// Returns the number of awaits that the journal records.
    pub fn await_count(&self) -> usize {
        self.awaits.len()
    }

    /// Returns the result with index `n` that the guest took from a join set (0 is the first).
    pub fn join_result(&self, set: &JoinSetId, n: usize) -> Option<RecordedJoinResult<'a>> {
        let number = set.0.child_number_in(self.execution)?;
        self.join_results.get(&number)?.get(n).copied()
    }

    /// Returns the number of operations that the journal records.
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns whether the journal records no operation.
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    fn find_operation(&self, id: &PromiseId) -> Option<&RecordedOperation<'a>> {
        self.operations
            .get(id.child_number_in(self.execution)? as usize)
    }

    fn index_event(&mut self, sequence: u64, event: &'a Event) {
        match event {
            Event::InvokeScheduled { .. }
            | Event::TimerScheduled { .. }
            | Event::JoinSetCreated { .. } => {
                self.begin_operation(event, None);
            }
            Event::RandomGenerated { value, .. } => {
                self.begin_operation(event, Some((sequence, RecordedOutcome::Random(value))))
            }
            Event::TimeRecorded { time, .. } => {
                self.begin_operation(event, Some((sequence, RecordedOutcome::Time(*time))))
            }
            Event::InvokeCompleted {
                promise_id, result, ..
            } => {
                self.complete_operation(promise_id, (sequence, RecordedOutcome::Invoke(result)));
            }
            Event::TimerFired { promise_id } => {
                self.complete_operation(promise_id, (sequence, RecordedOutcome::Timer))
            }
            Event::SignalReceived {
                promise_id,
                payload,
                ..
            } => {
                let outcome = (sequence, RecordedOutcome::Signal(payload));
                if self.find_operation(promise_id).is_some() {
                    self.complete_operation(promise_id, outcome);
                } else {
                    self.begin_operation(event, Some(outcome));
                }
            }
            Event::ExecutionAwaiting { waiting_on, kind } => {
                if matches!(kind, AwaitKind::Signal(_)) {
                    self.begin_operation(event, None);
                }
                self.awaits.push(RecordedAwait {
                    sequence,
                    waiting_on,
                    kind,
                    end: AwaitEnd::Open,
                });
            }
            Event::ExecutionResumed => self.end_await(AwaitEnd::Resumed(sequence)),
            Event::CancelRequested { .. } => self.end_await(AwaitEnd::Interrupted(sequence)),
            Event::JoinSetAwaited {
                join_set_id,
                promise_id,
                result,
            } => {
                if let Some(number) = join_set_id.0.child_number_in(self.execution) {
                    self.join_results
                        .entry(number)
                        .or_default()
                        .push(RecordedJoinResult {
                            sequence,
                            promise_id,
                            result,
                        });
                }
            }
            _ => {}
        }
    }

    fn begin_operation(
        &mut self,
        allocated_by: &'a Event,
        outcome: Option<(u64, RecordedOutcome<'a>)>,
    ) {
        self.operations.push(RecordedOperation {
            allocated_by,
            outcome,
        });
    }

    fn complete_operation(&mut self, id: &PromiseId, outcome: (u64, RecordedOutcome<'a>)) {
        let number = id.child_number_in(self.execution);
        if let Some(operation) = number.and_then(|number| self.operations.get_mut(number as usize))
        {
            operation.outcome = Some(outcome);
        }
    }

    fn end_await(&mut self, end: AwaitEnd) {
        if let Some(last) = self.awaits.last_mut()
            && last.end == AwaitEnd::Open
        {
            last.end = end;
        }
    }
}
