//! A second implementation of replay, written independently of `crates/execution`: an index over a
//! recorded journal that returns the outcome of each operation and how each await ended. Only the
//! tests use it, to check that a journal contains everything that a replay needs.
//!
//! Outcomes alone are not enough. A sleep that cancellation interrupted may have fired later, and
//! if an await raced two promises, the loser completes as well; a guest that saw those outcomes
//! would take another path than in the first run. So every outcome has the sequence number of its
//! event, and every await records when and how it ended: [`ReplayIndex::outcome_before`] returns
//! what the guest could see at that moment.

use std::collections::BTreeMap;

use onward_base::{Payload, Timestamp};
use onward_journal::{
    AwaitKind, Event, ExecutionError, ExecutionId, InvokeResult, JoinSetId, JournalEvent, PromiseId,
};

use super::script::*;

/// The recorded outcome of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RecordedOutcome<'a> {
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
pub(crate) struct RecordedAwait<'a> {
    /// The sequence number of its ExecutionAwaiting event.
    pub(crate) sequence: u64,
    /// The promises that the await named.
    pub(crate) waiting_on: &'a [PromiseId],
    /// The condition that satisfies the await.
    pub(crate) kind: &'a AwaitKind,
    /// How the await ended, if it has.
    pub(crate) end: AwaitEnd,
}

/// How an await ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AwaitEnd {
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
pub(crate) struct RecordedJoinResult<'a> {
    /// The sequence number of its JoinSetAwaited event.
    pub(crate) sequence: u64,
    /// The invocation that produced the result.
    pub(crate) promise_id: &'a PromiseId,
    /// The result of that invocation.
    pub(crate) result: &'a InvokeResult,
}

/// An index over a journal's events for replay. It must be built from events that
/// [`onward_journal::Journal::recover`] accepted.
#[derive(Clone, Debug)]
pub(crate) struct ReplayIndex<'a> {
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
    pub(crate) fn new(execution: ExecutionId, events: &'a [JournalEvent]) -> Self {
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
    pub(crate) fn allocating_event(&self, id: &PromiseId) -> Option<&'a Event> {
        Some(self.find_operation(id)?.allocated_by)
    }

    /// Returns the operation's outcome. `None` if the operation is unknown or still in flight;
    /// [`ReplayIndex::allocating_event`] distinguishes the two.
    pub(crate) fn recorded_outcome(&self, id: &PromiseId) -> Option<RecordedOutcome<'a>> {
        Some(self.find_operation(id)?.outcome?.1)
    }

    /// Returns the operation's outcome if it was recorded before `sequence`, otherwise `None`.
    pub(crate) fn outcome_before(
        &self,
        id: &PromiseId,
        sequence: u64,
    ) -> Option<RecordedOutcome<'a>> {
        let (recorded, outcome) = self.find_operation(id)?.outcome?;
        (recorded < sequence).then_some(outcome)
    }

    /// Returns the guest's await with index `n` (0 is the first).
    pub(crate) fn recorded_await(&self, n: usize) -> Option<RecordedAwait<'a>> {
        self.awaits.get(n).copied()
    }

    /// Returns the number of awaits that the journal records.
    pub(crate) fn await_count(&self) -> usize {
        self.awaits.len()
    }

    /// Returns the result with index `n` that the guest took from a join set (0 is the first).
    pub(crate) fn join_result(&self, set: &JoinSetId, n: usize) -> Option<RecordedJoinResult<'a>> {
        let number = set.0.child_number_in(self.execution)?;
        self.join_results.get(&number)?.get(n).copied()
    }

    /// Returns the number of operations that the journal records.
    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    /// Returns whether the journal records no operation.
    pub(crate) fn is_empty(&self) -> bool {
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

#[test]
fn a_timer_that_fires_after_an_interrupted_await_is_not_seen() {
    let events = record(&[
        started(),
        timer(0),
        awaiting_one(0),
        cancel_requested(),
        scheduled(1),
        fired(0),
    ]);
    let replay = ReplayIndex::new(own(), &events);
    let awaited = replay.recorded_await(0).unwrap();
    assert_eq!(awaited.end, AwaitEnd::Interrupted(3));
    assert_eq!(
        (
            replay.outcome_before(&promise(0), 3),
            replay.recorded_outcome(&promise(0))
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!(replay.recorded_await(1), None);
}

#[test]
fn an_await_sees_the_outcomes_recorded_before_it_resumed() {
    let any = awaiting(AwaitKind::Any, &[0, 1]);
    let events = record(&[
        started(),
        timer(0),
        timer(1),
        any,
        fired(1),
        resumed(),
        fired(0),
    ]);
    let replay = ReplayIndex::new(own(), &events);
    assert_eq!(replay.recorded_await(0).unwrap().end, AwaitEnd::Resumed(5));
    assert_eq!(
        (
            replay.outcome_before(&promise(0), 5),
            replay.outcome_before(&promise(1), 5)
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!(
        (
            replay.outcome_before(&promise(1), 4),
            replay.outcome_before(&promise(0), 7)
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!((replay.len(), replay.is_empty()), (2, false));
    assert!(ReplayIndex::new(own(), &events[..1]).is_empty());
    assert_eq!(replay.recorded_outcome(&promise(2)), None);
}

#[test]
fn a_failed_invoke_is_an_outcome() {
    let failed = Event::InvokeCompleted {
        promise_id: promise(0),
        result: Err(error("no")),
        attempt: 1,
    };
    let events = record(&[started(), scheduled(0), attempted(0, 1), failed]);
    let replay = ReplayIndex::new(own(), &events);
    let expected: Result<_, ExecutionError> = Err(error("no"));
    assert_eq!(
        replay.recorded_outcome(&promise(0)),
        Some(RecordedOutcome::Invoke(&expected))
    );
}

#[test]
fn a_signal_delivered_after_the_deadline_is_not_seen_at_that_resume() {
    let events = record(&[
        started(),
        timer(0),
        awaiting_signal_until(1, "go", 0),
        fired(0),
        resumed(),
        awaiting_one(1),
        delivered("go", 1, 7),
        received(1, "go", 1, 7),
        resumed(),
    ]);
    let replay = ReplayIndex::new(own(), &events);
    let (first, second) = (
        replay.recorded_await(0).unwrap(),
        replay.recorded_await(1).unwrap(),
    );
    assert_eq!(
        (first.waiting_on, first.end),
        (&[promise(1), promise(0)][..], AwaitEnd::Resumed(4))
    );
    assert_eq!(
        (
            replay.outcome_before(&promise(1), 4),
            replay.outcome_before(&promise(0), 4)
        ),
        (None, Some(RecordedOutcome::Timer))
    );
    assert_eq!(second.end, AwaitEnd::Resumed(8));
    assert_eq!(
        replay.outcome_before(&promise(1), 8),
        Some(RecordedOutcome::Signal(&payload(7)))
    );
    assert_eq!(
        (replay.len(), replay.await_count(), replay.recorded_await(2)),
        (2, 2, None)
    );
    assert_eq!(
        ReplayIndex::new(own(), &events[..5]).recorded_outcome(&promise(1)),
        None
    );
    assert_eq!(ReplayIndex::new(own(), &events[..2]).await_count(), 0);
}
