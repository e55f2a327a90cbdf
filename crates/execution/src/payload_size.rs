//! The size of an event in a commit: the bytes of its payloads and names, and an allowance for the
//! rest of it.

use onward_journal::{Event, InvokeResult};

/// Bytes that the record of an event has besides its payloads: its number, time and identifiers.
const EVENT_BYTES: usize = 32;

/// Bytes of a promise in a list of promises.
const PROMISE_BYTES: usize = 8;

/// Returns the approximate size of the record of an event, never much less than its real size.
pub(crate) fn event_record_bytes(event: &Event) -> usize {
    EVENT_BYTES
        + match event {
            Event::ExecutionStarted { input, .. } => input.as_str().len(),
            Event::InvokeScheduled {
                function_name,
                input,
                retry_policy,
                ..
            } => {
                let kinds = retry_policy.iter().flat_map(|policy| &policy.non_retryable);
                let kind_bytes: usize = kinds.map(|kind| kind.as_str().len() + 4).sum();
                function_name.len() + input.as_str().len() + kind_bytes
            }
            Event::InvokeCompleted { result, .. } | Event::JoinSetAwaited { result, .. } => {
                result_bytes(result)
            }
            Event::SignalDelivered {
                signal_name,
                payload,
                ..
            }
            | Event::SignalReceived {
                signal_name,
                payload,
                ..
            } => signal_name.len() + payload.as_str().len(),
            Event::ExecutionCompleted { result, .. } => result.as_str().len(),
            Event::RandomGenerated { value, .. } => value.len(),
            Event::InvokeRetrying { error, .. } | Event::ExecutionFailed { error } => {
                error.message.len()
            }
            Event::CancelRequested { reason } | Event::ExecutionCancelled { reason } => {
                reason.len()
            }
            Event::ExecutionAwaiting { waiting_on, .. } => waiting_on.len() * PROMISE_BYTES,
            _ => 0,
        }
}

fn result_bytes(result: &InvokeResult) -> usize {
    match result {
        Ok(payload) => payload.as_str().len(),
        Err(error) => error.message.len(),
    }
}
