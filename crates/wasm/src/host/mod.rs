//! Host functions that guests can call. A workflow sends every request to the engine through its
//! mailbox; a task is served immediately; during `describe`, a component gets only constant
//! responses, so that the result is always the same.

mod convert;
mod host_interface;
mod task;
mod workflow;

use std::sync::Arc;

use onward_base::{Payload, SharedText};
use onward_execution::{GuestLogLevel, GuestRequest, GuestResponse};
use onward_journal::ExecutionError;
use wasmtime::Result;

use crate::bindings::types::{self, Failure};
use crate::guest_error::{GuestStop, host_defect_error, permanent_error, too_large_error};
use crate::limiter::InstanceLimiter;
use crate::mailbox::RequestMailbox;
use crate::slice_clock::SliceClock;
use crate::task::TaskEnvironment;
use crate::wasi::PartialLines;

pub(crate) use convert::{to_invoke_result, truncate_text};

/// The context of a call that the called function can read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallContext {
    /// Id of the execution; for a task, the execution that invoked it.
    pub execution: SharedText,
    /// Idempotency key: identifies the operation that the call performs, and is the same for every
    /// attempt. Empty for an execution that no other execution invoked.
    pub idempotency_key: SharedText,
    /// Number of the attempt, starting with 1.
    pub attempt: u32,
}

/// The host's state of one instance, kept in its wasmtime store.
pub(crate) struct GuestState {
    pub(crate) limiter: InstanceLimiter,
    pub(crate) role: InstanceRole,
    pub(crate) context: CallContext,
    pub(crate) payload_bytes_max: usize,
    /// Lines that the guest logged as errors since its last other request. A panic logs its message
    /// before it traps.
    panic_message: String,
    /// Output of the guest that does not yet form a complete line.
    pub(crate) partial_lines: PartialLines,
    /// Last value returned by the monotonic clock, in nanoseconds.
    instant_ns: u64,
    /// Number of HTTP requests that the task has sent in this call.
    request_count: u32,
    pub(crate) slice: SliceClock,
    /// Bytes that the host has copied for the guest since it last yielded for them.
    copied_bytes: usize,
}

/// What an instance runs: `describe`, a workflow or a task.
pub(crate) enum InstanceRole {
    /// `describe`, which is interrupted after this many ticks. Also the role of an instance between
    /// two calls.
    Describe {
        ticks_max: u64,
    },
    Workflow(RequestMailbox),
    Task(Arc<TaskEnvironment>),
}

/// Limit of the recorded panic message in bytes; a panic is a few lines.
const PANIC_MESSAGE_BYTES_MAX: usize = 1_024;

/// Bytes that the host copies for a guest before the guest yields: about a millisecond.
const SLICE_BYTES: usize = 1 << 20;
/// Weight of a host call by itself, in bytes.
const CALL_BYTES: usize = 1 << 10;

/// Response of the engine to a request; the outer error stops the guest.
type EngineResult<T> = Result<std::result::Result<T, ExecutionError>>;

/// Result of a host function as the guest receives it; the outer error stops the guest.
type HostResult<T> = Result<std::result::Result<T, Failure>>;

/// The interface `types` defines only types and has no functions.
impl types::Host for GuestState {}

impl GuestState {
    pub(crate) fn new(
        role: InstanceRole,
        context: CallContext,
        limiter: InstanceLimiter,
        payload_bytes_max: usize,
        slice: SliceClock,
    ) -> Self {
        Self {
            limiter,
            role,
            context,
            payload_bytes_max,
            panic_message: String::new(),
            partial_lines: PartialLines::default(),
            instant_ns: 0,
            request_count: 0,
            slice,
            copied_bytes: 0,
        }
    }

    /// Removes all data of the last call from an instance that is kept for reuse.
    pub(crate) fn clear_call(&mut self) {
        self.role = InstanceRole::Describe { ticks_max: 0 };
        self.context = CallContext {
            execution: SharedText::from(""),
            idempotency_key: SharedText::from(""),
            attempt: 0,
        };
        self.panic_message.clear();
        self.partial_lines = PartialLines::default();
        self.request_count = 0;
    }

    /// Prepares a reused instance for another call of a task.
    pub(crate) fn reuse_for_call(
        &mut self,
        role: InstanceRole,
        context: CallContext,
        memory_bytes_max: usize,
        payload_bytes_max: usize,
    ) {
        self.role = role;
        self.context = context;
        self.payload_bytes_max = payload_bytes_max;
        self.limiter.reset_for_call(memory_bytes_max);
    }

    pub(crate) fn panic_message(&self) -> Option<&str> {
        Some(self.panic_message.as_str()).filter(|words| !words.is_empty())
    }

    fn record_panic_line(&mut self, level: GuestLogLevel, message: &str) {
        if level != GuestLogLevel::Error {
            self.panic_message.clear();
        } else if self.panic_message.len() < PANIC_MESSAGE_BYTES_MAX {
            let pause = if self.panic_message.is_empty() {
                ""
            } else {
                " "
            };
            self.panic_message.push_str(pause);
            self.panic_message
                .push_str(&truncate_text(message.to_owned(), PANIC_MESSAGE_BYTES_MAX));
        }
    }

    /// Lets other guests run once the host has copied many bytes for this one: copying costs the
    /// guest no instructions. Every call counts as some bytes, whatever it passes.
    pub(crate) async fn yield_after_copy(&mut self, bytes: usize) {
        self.copied_bytes = self.copied_bytes.saturating_add(bytes + CALL_BYTES);
        if self.copied_bytes < SLICE_BYTES || matches!(self.role, InstanceRole::Describe { .. }) {
            return;
        }
        self.copied_bytes = 0;
        tokio::task::yield_now().await;
    }

    /// Returns `instant_ns`, or the last returned instant if that is later, so that the clock never
    /// goes back.
    pub(crate) fn monotonic_ns(&mut self, instant_ns: u64) -> u64 {
        self.instant_ns = self.instant_ns.max(instant_ns);
        self.instant_ns
    }

    /// Sends a request to the engine and waits for the response. `fit` extracts the value from the
    /// expected kind of response. Fails with `not_in_task` unless the guest is a workflow.
    async fn request_engine<T>(
        &mut self,
        name: &str,
        request: GuestRequest,
        fit: fn(GuestResponse) -> Option<T>,
    ) -> EngineResult<T> {
        let InstanceRole::Workflow(mailbox) = &self.role else {
            self.yield_after_copy(SLICE_BYTES / 16).await;
            return Ok(Err(permanent_error(
                "not_in_task",
                format!("`{name}` is for workflows"),
            )));
        };
        if !matches!(request, GuestRequest::Log { .. }) {
            self.panic_message.clear();
        }
        match mailbox.send_request(request).await {
            GuestResponse::Refused(error) => Ok(Err(error)),
            answer => match fit(answer) {
                Some(value) => Ok(Ok(value)),
                None => Err(GuestStop(host_defect_error(format_args!(
                    "unexpected response to `{name}`"
                )))
                .into()),
            },
        }
    }

    /// Like [`Self::request_engine`], for host functions that cannot return an error: a refusal
    /// stops the guest.
    async fn request_or_stop<T>(
        &mut self,
        name: &str,
        request: GuestRequest,
        fit: fn(GuestResponse) -> Option<T>,
    ) -> Result<T> {
        self.request_engine(name, request, fit)
            .await?
            .map_err(|error| GuestStop(error).into())
    }

    /// Parses a payload from the guest, within the size limit of this call.
    fn parse_guest_payload(
        &self,
        what: &str,
        text: &str,
    ) -> std::result::Result<Payload, ExecutionError> {
        accept_payload(what, text, self.payload_bytes_max)
    }
}

/// Parses a payload from a guest. Fails with a permanent error if it is too large or not a valid
/// payload.
pub(crate) fn accept_payload(
    what: &str,
    text: &str,
    bytes_max: usize,
) -> std::result::Result<Payload, ExecutionError> {
    if text.len() > bytes_max {
        return Err(too_large_error(what, text.len(), bytes_max));
    }
    Payload::parse(text)
        .map_err(|error| permanent_error("invalid_payload", format!("{what} is {error}")))
}
