//! What a step ended, as spans of a trace: one trace for each execution, a span for each thing that it did or waited for.
//!
//! All of it follows from the journal, so whoever takes an execution over goes on with the same trace.

use std::ops::Range;

use onward_journal::{
    AwaitKind, Event, ExecutionId, InvokeResult, Journal, JournalEvent, Performer, PromiseId, Text, Timestamp,
};

use super::AttemptId;

/// Something that has a beginning and an end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// Whose trace it is in.
    pub execution: ExecutionId,
    /// What it is.
    pub what: What,
    /// When it began.
    pub begun: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// What it ended with, if that was a failure.
    pub error: Option<Text>,
}

/// What a span is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// The whole execution.
    Execution {
        /// The function it runs.
        function: Text,
        /// The attempt of another execution that it performs.
        parent: Option<AttemptId>,
    },
    /// An attempt of a task, a request or a child.
    Attempt {
        /// The function.
        function: Text,
        /// The operation.
        number: u32,
        /// Which attempt.
        attempt: u32,
        /// Who performs it.
        performer: Performer,
    },
    /// A timer.
    Timer {
        /// The operation.
        number: u32,
    },
    /// A wait for a signal.
    Signal {
        /// The operation.
        number: u32,
        /// The name of the signal.
        name: Text,
    },
}

/// What the events with these sequences brought to an end, in an execution of this function.
pub(super) fn spans(function: &Text, journal: &Journal, recorded: Range<u64>) -> Vec<Span> {
    let place = |sequence: u64| usize::try_from(sequence).unwrap_or(usize::MAX);
    let events = journal.events();
    let (from, to) = (place(recorded.start).min(events.len()), place(recorded.end).min(events.len()));
    let past = |place: usize| Past { function, journal, events: &events[..place] };
    (from..to).filter_map(|place| past(place).ended_by(&events[place])).collect()
}

/// What came before an event.
struct Past<'a> {
    function: &'a Text,
    journal: &'a Journal,
    events: &'a [JournalEvent],
}

impl Past<'_> {
    fn ended_by(&self, recorded: &JournalEvent) -> Option<Span> {
        match &recorded.event {
            Event::InvokeCompleted { promise_id, result, attempt } => {
                let (what, begun) = self.attempt(promise_id, *attempt)?;
                Some(self.span(what, begun, recorded, failure(result)))
            }
            Event::InvokeRetrying { promise_id, failed_attempt, error, .. } => {
                let (what, begun) = self.attempt(promise_id, *failed_attempt)?;
                Some(self.span(what, begun, recorded, Some(error.to_string().into())))
            }
            Event::TimerFired { promise_id } => {
                let number = self.number(promise_id)?;
                let is_it =
                    |event: &Event| matches!(event, Event::TimerScheduled { promise_id: it, .. } if it == promise_id);
                Some(self.span(What::Timer { number }, self.last(is_it)?.timestamp, recorded, None))
            }
            Event::SignalReceived { promise_id, signal_name, .. } => {
                let number = self.number(promise_id)?;
                let is_it = |event: &Event| matches!(event, Event::ExecutionAwaiting { waiting_on, kind: AwaitKind::Signal(_) } if waiting_on.contains(promise_id));
                let what = What::Signal { number, name: Text::from(&**signal_name) };
                Some(self.span(what, self.last(is_it)?.timestamp, recorded, None))
            }
            Event::ExecutionCompleted { .. } => self.whole(recorded, None),
            Event::ExecutionFailed { error } => self.whole(recorded, Some(error.to_string().into())),
            Event::ExecutionCancelled { reason } => self.whole(recorded, Some(format!("cancelled: {reason}").into())),
            _ => None,
        }
    }

    /// Clocks are set back, and nodes differ: still nothing begins before its execution, or ends before it begins.
    fn span(&self, what: What, begun: Timestamp, recorded: &JournalEvent, error: Option<Text>) -> Span {
        let first = self.events.first().map_or(begun, |first| first.timestamp);
        let begun = begun.max(first);
        Span { execution: self.journal.fold().execution(), what, begun, ended: recorded.timestamp.max(begun), error }
    }

    fn whole(&self, recorded: &JournalEvent, error: Option<Text>) -> Option<Span> {
        let first = self.events.first()?;
        let parent = super::parent(self.journal).and_then(|(promise, attempt)| {
            let execution = promise.execution_root();
            promise.number_in(execution).map(|number| AttemptId { execution, number, attempt })
        });
        let what = What::Execution { function: self.function.clone(), parent };
        let mut whole = self.span(what, first.timestamp, recorded, error);
        // Nor does anything end after its execution.
        whole.ended = self.events.iter().fold(whole.ended, |ended, event| ended.max(event.timestamp));
        Some(whole)
    }

    fn number(&self, promise: &PromiseId) -> Option<u32> {
        promise.number_in(self.journal.fold().execution())
    }

    fn last(&self, is_it: impl Fn(&Event) -> bool) -> Option<&JournalEvent> {
        self.events.iter().rev().find(|recorded| is_it(&recorded.event))
    }

    fn attempt(&self, promise: &PromiseId, attempt: u32) -> Option<(What, Timestamp)> {
        let number = self.number(promise)?;
        let is_start = |event: &Event| matches!(event, Event::InvokeStarted { promise_id, attempt: it, .. } if (promise_id, *it) == (promise, attempt));
        let started = self.last(is_start)?;
        let Event::InvokeStarted { performer, .. } = &started.event else { return None };
        let is_wanted =
            |event: &Event| matches!(event, Event::InvokeScheduled { promise_id, .. } if promise_id == promise);
        let Event::InvokeScheduled { function_name, .. } = &self.last(is_wanted)?.event else { return None };
        let function = Text::from(&**function_name);
        Some((What::Attempt { function, number, attempt, performer: *performer }, started.timestamp))
    }
}

fn failure(result: &InvokeResult) -> Option<Text> {
    result.as_ref().err().map(|error| error.to_string().into())
}

#[cfg(test)]
mod tests {
    use onward_journal::{ComponentDigest, Payload};

    use super::*;

    #[test]
    fn spans_lie_within_their_execution_whatever_the_clock_does() {
        let component_digest = ComponentDigest::of(b"component");
        let execution = ExecutionId::derive(&component_digest, None, "key");
        let promise_id = execution.child(0);
        let input = Payload::null();
        let fire_at = Timestamp::from_micros(9_000_000).unwrap();
        let events = [
            (
                5,
                Event::ExecutionStarted {
                    component_digest,
                    input,
                    parent_id: None,
                    idempotency_key: Some("key".into()),
                },
            ),
            // The clock was set back, and forwards, and back again.
            (3, Event::TimerScheduled { promise_id: promise_id.clone(), duration_ms: 1, fire_at }),
            (9, Event::TimerFired { promise_id }),
            (4, Event::ExecutionCompleted { result: Payload::null(), continued_as: None }),
        ];
        let mut journal = Journal::new(execution);
        for (sequence, (second, event)) in (0..).zip(events) {
            let timestamp = Timestamp::from_micros(second * 1_000_000).unwrap();
            journal.append(JournalEvent { sequence, timestamp, event }).unwrap();
        }
        let spans = spans(&"function".into(), &journal, 0..4);
        let seconds = |at: Timestamp| at.as_micros() / 1_000_000;
        let times: Vec<_> = spans.iter().map(|span| (seconds(span.begun), seconds(span.ended))).collect();
        assert_eq!(times, [(5, 9), (5, 9)]);
    }
}
