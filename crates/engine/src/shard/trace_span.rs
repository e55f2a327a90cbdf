//! Trace spans of what a step ended: one trace per execution, one span per attempt, timer or signal
//! wait.
//!
//! All of it is derived from the journal, so the trace continues unchanged after a takeover.

use std::ops::Range;

use onward_base::{SharedText, Timestamp};
use onward_journal::{
    AwaitKind, Event, ExecutionId, InvokePerformer, InvokeResult, Journal, JournalEvent, PromiseId,
};

use super::AttemptId;

/// A span of the trace of an execution.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceSpan {
    /// The execution whose trace contains the span.
    pub execution: ExecutionId,
    /// What the span stands for.
    pub kind: TraceSpanKind,
    /// Start time; never before the start of the execution.
    pub started_at: Timestamp,
    /// End time; never before the start time.
    pub ended_at: Timestamp,
    /// The error, if the span ended with a failure or cancellation.
    pub error: Option<SharedText>,
}

/// What a span stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceSpanKind {
    /// The whole execution.
    Execution {
        /// The function that the execution runs.
        function: SharedText,
        /// The attempt of the parent execution that it performs; `None` for a root execution.
        parent: Option<AttemptId>,
    },
    /// An attempt of a task, an HTTP request or a child.
    Attempt {
        /// The function that was invoked.
        function: SharedText,
        /// Number of the operation within the execution.
        number: u32,
        /// Attempt number; 1 is the first.
        attempt: u32,
        /// What performs the attempt: the shard owner, a worker or a child execution.
        performer: InvokePerformer,
    },
    /// A timer, from its scheduling to its firing.
    Timer {
        /// Number of the operation within the execution.
        number: u32,
    },
    /// A wait for a signal.
    Signal {
        /// Number of the operation within the execution.
        number: u32,
        /// Name of the signal.
        name: SharedText,
    },
}

/// Returns the spans that the events with these sequences ended, in an execution of this function.
pub(super) fn ended_spans(
    function: &SharedText,
    journal: &Journal,
    recorded: Range<u64>,
) -> Vec<TraceSpan> {
    let place = |sequence: u64| usize::try_from(sequence).unwrap_or(usize::MAX);
    let events = journal.events();
    let (from, to) = (
        place(recorded.start).min(events.len()),
        place(recorded.end).min(events.len()),
    );
    let past = |place: usize| JournalPrefix {
        function,
        journal,
        events: &events[..place],
    };
    (from..to)
        .filter_map(|place| past(place).span_ended_by(&events[place]))
        .collect()
}

/// The events of a journal before a given event.
struct JournalPrefix<'a> {
    function: &'a SharedText,
    journal: &'a Journal,
    events: &'a [JournalEvent],
}

impl JournalPrefix<'_> {
    fn span_ended_by(&self, recorded: &JournalEvent) -> Option<TraceSpan> {
        match &recorded.event {
            Event::InvokeCompleted {
                promise_id,
                result,
                attempt,
            } => {
                let (what, started) = self.attempt_start(promise_id, *attempt)?;
                Some(self.build_span(what, started, recorded, failure_text(result)))
            }
            Event::InvokeRetrying {
                promise_id,
                failed_attempt,
                error,
                ..
            } => {
                let (what, started) = self.attempt_start(promise_id, *failed_attempt)?;
                Some(self.build_span(what, started, recorded, Some(error.to_string().into())))
            }
            Event::TimerFired { promise_id } => {
                let number = self.promise_number(promise_id)?;
                let is_it = |event: &Event| matches!(event, Event::TimerScheduled { promise_id: it, .. } if it == promise_id);
                Some(self.build_span(
                    TraceSpanKind::Timer { number },
                    self.last_matching(is_it)?.timestamp,
                    recorded,
                    None,
                ))
            }
            Event::SignalReceived {
                promise_id,
                signal_name,
                ..
            } => {
                let number = self.promise_number(promise_id)?;
                let is_it = |event: &Event| matches!(event, Event::ExecutionAwaiting { waiting_on, kind: AwaitKind::Signal(_) } if waiting_on.contains(promise_id));
                let what = TraceSpanKind::Signal {
                    number,
                    name: SharedText::from(&**signal_name),
                };
                Some(self.build_span(what, self.last_matching(is_it)?.timestamp, recorded, None))
            }
            Event::ExecutionCompleted { .. } => self.execution_span(recorded, None),
            Event::ExecutionFailed { error } => {
                self.execution_span(recorded, Some(error.to_string().into()))
            }
            Event::ExecutionCancelled { reason } => {
                self.execution_span(recorded, Some(format!("cancelled: {reason}").into()))
            }
            _ => None,
        }
    }

    /// Builds a span. Clocks may be set back, and the clocks of nodes differ: even so, no span
    /// starts before its execution or ends before it starts.
    fn build_span(
        &self,
        what: TraceSpanKind,
        started: Timestamp,
        recorded: &JournalEvent,
        error: Option<SharedText>,
    ) -> TraceSpan {
        let first = self.events.first().map_or(started, |first| first.timestamp);
        let started = started.max(first);
        TraceSpan {
            execution: self.journal.journal_state().execution_id(),
            kind: what,
            started_at: started,
            ended_at: recorded.timestamp.max(started),
            error,
        }
    }

    fn execution_span(
        &self,
        recorded: &JournalEvent,
        error: Option<SharedText>,
    ) -> Option<TraceSpan> {
        let first = self.events.first()?;
        let parent = super::parent_attempt(self.journal).and_then(|(promise, attempt)| {
            let execution = promise.execution_root();
            promise.child_number_in(execution).map(|number| AttemptId {
                execution,
                number,
                attempt,
            })
        });
        let what = TraceSpanKind::Execution {
            function: self.function.clone(),
            parent,
        };
        let mut whole = self.build_span(what, first.timestamp, recorded, error);
        // No span ends after its execution either.
        whole.ended_at = self
            .events
            .iter()
            .fold(whole.ended_at, |ended, event| ended.max(event.timestamp));
        Some(whole)
    }

    fn promise_number(&self, promise: &PromiseId) -> Option<u32> {
        promise.child_number_in(self.journal.journal_state().execution_id())
    }

    fn last_matching(&self, is_it: impl Fn(&Event) -> bool) -> Option<&JournalEvent> {
        self.events
            .iter()
            .rev()
            .find(|recorded| is_it(&recorded.event))
    }

    fn attempt_start(
        &self,
        promise: &PromiseId,
        attempt: u32,
    ) -> Option<(TraceSpanKind, Timestamp)> {
        let number = self.promise_number(promise)?;
        let is_start = |event: &Event| matches!(event, Event::InvokeStarted { promise_id, attempt: it, .. } if (promise_id, *it) == (promise, attempt));
        let started = self.last_matching(is_start)?;
        let Event::InvokeStarted { performer, .. } = &started.event else {
            return None;
        };
        let is_wanted = |event: &Event| matches!(event, Event::InvokeScheduled { promise_id, .. } if promise_id == promise);
        let Event::InvokeScheduled { function_name, .. } = &self.last_matching(is_wanted)?.event
        else {
            return None;
        };
        let function = SharedText::from(&**function_name);
        Some((
            TraceSpanKind::Attempt {
                function,
                number,
                attempt,
                performer: *performer,
            },
            started.timestamp,
        ))
    }
}

fn failure_text(result: &InvokeResult) -> Option<SharedText> {
    result.as_ref().err().map(|error| error.to_string().into())
}

#[cfg(test)]
mod tests {
    use onward_base::Payload;
    use onward_journal::ComponentDigest;

    use super::*;

    #[test]
    fn spans_lie_within_their_execution_whatever_the_clock_does() {
        let component_digest = ComponentDigest::from_component(b"component");
        let execution = ExecutionId::derive(&component_digest, None, "key");
        let promise_id = execution.child_promise(0);
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
            (
                3,
                Event::TimerScheduled {
                    promise_id: promise_id.clone(),
                    duration_ms: 1,
                    fire_at,
                },
            ),
            (9, Event::TimerFired { promise_id }),
            (
                4,
                Event::ExecutionCompleted {
                    result: Payload::null(),
                    continued_as: None,
                },
            ),
        ];
        let mut journal = Journal::new(execution);
        for (sequence, (second, event)) in (0..).zip(events) {
            let timestamp = Timestamp::from_micros(second * 1_000_000).unwrap();
            journal
                .append(JournalEvent {
                    sequence,
                    timestamp,
                    event,
                })
                .unwrap();
        }
        let spans = ended_spans(&"function".into(), &journal, 0..4);
        let seconds = |at: Timestamp| at.as_micros() / 1_000_000;
        let times: Vec<_> = spans
            .iter()
            .map(|span| (seconds(span.started_at), seconds(span.ended_at)))
            .collect();
        assert_eq!(times, [(5, 9), (5, 9)]);
    }
}
