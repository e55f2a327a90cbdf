//! One-line descriptions of events, for the tables of `onward journal check`.

use std::fmt;

use crate::{
    AwaitKind, DeliveryGuarantee, Event, ExecutionError, ExecutionId, InvokePerformer,
    InvokeResult, PromiseId,
};
use onward_base::excerpt::truncate_printable;
use onward_base::{Payload, hex};

/// Maximum length of a value in characters. Longer values are truncated: the table is for reading,
/// and the journal contains the full value.
const VALUE_CHARS_MAX: usize = 32;

/// Length of a truncated execution id in characters: enough to find the execution, and an ellipsis.
const ID_CHARS: usize = 13;

impl Event {
    /// Displays the event as `InvokeStarted("root.1", attempt=1)`, with ids relative to `own`.
    pub fn describe(&self, own: ExecutionId) -> impl fmt::Display + '_ {
        EventDescription { event: self, own }
    }
}

struct EventDescription<'a> {
    event: &'a Event,
    own: ExecutionId,
}

impl fmt::Display for EventDescription<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.event {
            Event::ExecutionStarted { .. }
            | Event::ExecutionCompleted { .. }
            | Event::ExecutionFailed { .. }
            | Event::CancelRequested { .. }
            | Event::ExecutionCancelled { .. }
            | Event::ExecutionAwaiting { .. }
            | Event::ExecutionResumed => self.describe_execution(f),
            Event::InvokeScheduled { .. }
            | Event::InvokeStarted { .. }
            | Event::InvokeCompleted { .. }
            | Event::InvokeRetrying { .. } => self.describe_invoke(f),
            Event::RandomGenerated { .. }
            | Event::TimeRecorded { .. }
            | Event::TimerScheduled { .. }
            | Event::TimerFired { .. }
            | Event::SignalDelivered { .. }
            | Event::SignalReceived { .. } => self.describe_input(f),
            Event::JoinSetCreated { .. }
            | Event::JoinSetSubmitted { .. }
            | Event::JoinSetAwaited { .. } => self.describe_join_set(f),
        }
    }
}

impl EventDescription<'_> {
    fn quote_id(&self, id: &PromiseId) -> String {
        format!("\"{}\"", id.relative_to(self.own))
    }

    /// Describes an event of the execution itself: start, wait, resumption and end.
    fn describe_execution(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.event.kind();
        match self.event {
            Event::ExecutionStarted { input, .. } => {
                write!(f, "{name}({})", describe_payload(input))
            }
            Event::ExecutionCompleted {
                result,
                continued_as: None,
            } => write!(f, "{name}({})", describe_payload(result)),
            Event::ExecutionCompleted {
                result,
                continued_as: Some(next),
            } => {
                write!(
                    f,
                    "{name}({}, continued_as={})",
                    describe_payload(result),
                    truncate_printable(&next.to_string(), ID_CHARS)
                )
            }
            Event::ExecutionFailed { error } => write!(f, "{name}({})", describe_error(error)),
            Event::CancelRequested { reason } | Event::ExecutionCancelled { reason } => {
                write!(f, "{name}({})", quote_text(reason))
            }
            Event::ExecutionAwaiting { waiting_on, kind } => {
                write!(
                    f,
                    "{name}([{}], {})",
                    truncate_value(&describe_ids(waiting_on, self.own)),
                    describe_await_kind(kind)
                )
            }
            _ => write!(f, "{name}"),
        }
    }

    /// Describes an event of an invocation.
    fn describe_invoke(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.event.kind();
        let id = |id: &PromiseId| self.quote_id(id);
        match self.event {
            Event::InvokeScheduled {
                promise_id,
                function_name,
                input,
                delivery,
                ..
            } => {
                write!(
                    f,
                    "{name}({}, {}, {}",
                    id(promise_id),
                    quote_text(function_name),
                    describe_payload(input)
                )?;
                match delivery {
                    DeliveryGuarantee::AtLeastOnce => write!(f, ")"),
                    DeliveryGuarantee::AtMostOnce => write!(f, ", {})", delivery.as_str()),
                }
            }
            Event::InvokeStarted {
                promise_id,
                attempt,
                performer,
            } => {
                write!(f, "{name}({}, attempt={attempt}", id(promise_id))?;
                match performer {
                    InvokePerformer::Owner => write!(f, ")"),
                    InvokePerformer::Child(child) => write!(
                        f,
                        ", child={})",
                        truncate_printable(&child.to_string(), ID_CHARS)
                    ),
                    InvokePerformer::Worker => write!(f, ", worker)"),
                }
            }
            Event::InvokeCompleted {
                promise_id,
                result,
                attempt,
            } => {
                write!(
                    f,
                    "{name}({}, {}, attempt={attempt})",
                    id(promise_id),
                    describe_result(result)
                )
            }
            Event::InvokeRetrying {
                promise_id,
                failed_attempt,
                error,
                retry_at,
            } => {
                let error = describe_error(error);
                write!(
                    f,
                    "{name}({}, attempt={failed_attempt}, {error}, {retry_at})",
                    id(promise_id)
                )
            }
            _ => write!(f, "{name}"),
        }
    }

    /// Describes an input of the execution: a random value, a time, a timer or a signal.
    fn describe_input(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.event.kind();
        let id = |id: &PromiseId| self.quote_id(id);
        match self.event {
            Event::RandomGenerated { promise_id, value } => {
                write!(
                    f,
                    "{name}({}, 0x{})",
                    id(promise_id),
                    truncate_value(&hex::encode_hex(value))
                )
            }
            Event::TimeRecorded { promise_id, time } => {
                write!(f, "{name}({}, {time})", id(promise_id))
            }
            Event::TimerScheduled {
                promise_id,
                duration_ms,
                fire_at,
            } => {
                write!(f, "{name}({}, {duration_ms}ms, {fire_at})", id(promise_id))
            }
            Event::TimerFired { promise_id } => write!(f, "{name}({})", id(promise_id)),
            Event::SignalDelivered {
                signal_name,
                payload,
                delivery_id,
            } => {
                write!(
                    f,
                    "{name}({}, {}, delivery_id={delivery_id})",
                    quote_text(signal_name),
                    describe_payload(payload)
                )
            }
            Event::SignalReceived {
                promise_id,
                signal_name,
                payload,
                delivery_id,
            } => {
                let (id, signal) = (id(promise_id), quote_text(signal_name));
                write!(
                    f,
                    "{name}({id}, {signal}, {}, delivery_id={delivery_id})",
                    describe_payload(payload)
                )
            }
            _ => write!(f, "{name}"),
        }
    }

    /// Describes an event of a join set.
    fn describe_join_set(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.event.kind();
        let id = |id: &PromiseId| self.quote_id(id);
        match self.event {
            Event::JoinSetCreated { join_set_id } => write!(f, "{name}({})", id(&join_set_id.0)),
            Event::JoinSetSubmitted {
                join_set_id,
                promise_id,
            } => {
                write!(f, "{name}({}, {})", id(&join_set_id.0), id(promise_id))
            }
            Event::JoinSetAwaited {
                join_set_id,
                promise_id,
                result,
            } => {
                write!(
                    f,
                    "{name}({}, {}, {})",
                    id(&join_set_id.0),
                    id(promise_id),
                    describe_result(result)
                )
            }
            _ => write!(f, "{name}"),
        }
    }
}

fn describe_ids(ids: &[PromiseId], own: ExecutionId) -> String {
    // 16 ids fill the line; further ones would be truncated anyway.
    let shown: Vec<String> = ids
        .iter()
        .take(16)
        .map(|id| format!("\"{}\"", id.relative_to(own)))
        .collect();
    shown.join(",")
}

fn describe_await_kind(kind: &AwaitKind) -> String {
    match kind {
        AwaitKind::Single => "Single".to_owned(),
        AwaitKind::Any => "Any".to_owned(),
        AwaitKind::All => "All".to_owned(),
        AwaitKind::Signal(name) => format!("Signal({})", quote_text(name)),
    }
}

fn describe_result(result: &InvokeResult) -> String {
    match result {
        Ok(payload) => format!("Ok({})", describe_payload(payload)),
        Err(error) => format!("Err({})", describe_error(error)),
    }
}

fn describe_error(error: &ExecutionError) -> String {
    let text = truncate_value(&error.to_string());
    if error.retryable {
        text
    } else {
        format!("{text}, permanent")
    }
}

fn describe_payload(payload: &Payload) -> String {
    truncate_value(payload.as_str())
}

fn quote_text(text: &str) -> String {
    format!("{:?}", truncate_value(text))
}

fn truncate_value(text: &str) -> String {
    truncate_printable(text, VALUE_CHARS_MAX)
}
