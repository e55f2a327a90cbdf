//! The size of an event in a commit: the bytes of its payloads, which are nearly all of it where
//! size matters.

use onward_journal::{Event, InvokeResult};

/// Returns the bytes of payload, random bytes and error messages in an event.
pub(crate) fn event_payload_bytes(event: &Event) -> usize {
    match event {
        Event::ExecutionStarted { input, .. } | Event::InvokeScheduled { input, .. } => {
            input.as_str().len()
        }
        Event::InvokeCompleted { result, .. } | Event::JoinSetAwaited { result, .. } => {
            result_payload_bytes(result)
        }
        Event::SignalDelivered { payload, .. } | Event::SignalReceived { payload, .. } => {
            payload.as_str().len()
        }
        Event::ExecutionCompleted { result, .. } => result.as_str().len(),
        Event::RandomGenerated { value, .. } => value.len(),
        Event::InvokeRetrying { error, .. } | Event::ExecutionFailed { error } => {
            error.message.len()
        }
        _ => 0,
    }
}

fn result_payload_bytes(result: &InvokeResult) -> usize {
    match result {
        Ok(payload) => payload.as_str().len(),
        Err(error) => error.message.len(),
    }
}
