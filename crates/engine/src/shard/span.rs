//! What a step ended, as spans of a trace: one trace for each execution, a span for each thing that it did or waited for.
//!
//! All of it follows from the journal, so whoever takes an execution over goes on with the same trace.

use std::ops::Range;

use onward_journal::{
    AwaitKind, Event, ExecutionId, InvokeResult, Journal, JournalEvent, Performer, PromiseId, Text, Timestamp,
};
use onward_store::tables::Execution as Row;

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

/// What the events with these sequences brought to an end.
pub(super) fn spans(row: &Row, journal: &Journal, recorded: Range<u64>) -> Vec<Span> {
    let place = |sequence: u64| usize::try_from(sequence).unwrap_or(usize::MAX);
    let events = journal.events();
    let (from, to) = (place(recorded.start).min(events.len()), place(recorded.end).min(events.len()));
    let past = |place: usize| Past { row, journal, events: &events[..place] };
    (from..to).filter_map(|place| past(place).ended_by(&events[place])).collect()
}

/// What came before an event.
struct Past<'a> {
    row: &'a Row,
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

    fn span(&self, what: What, begun: Timestamp, recorded: &JournalEvent, error: Option<Text>) -> Span {
        Span { execution: self.row.execution_id, what, begun, ended: recorded.timestamp, error }
    }

    fn whole(&self, recorded: &JournalEvent, error: Option<Text>) -> Option<Span> {
        let first = self.events.first()?;
        let parent = super::parent(self.journal).and_then(|(promise, attempt)| {
            let execution = promise.execution_root();
            promise.number_in(execution).map(|number| AttemptId { execution, number, attempt })
        });
        let what = What::Execution { function: self.row.function.clone(), parent };
        Some(self.span(what, first.timestamp, recorded, error))
    }

    fn number(&self, promise: &PromiseId) -> Option<u32> {
        promise.number_in(self.row.execution_id)
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
