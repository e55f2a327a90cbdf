//! What guests can call. A workflow asks the engine for everything through its mailbox; a task is served at once; while it
//! describes itself, a component gets nothing that differs from one time to the next.

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
use crate::task::TaskEnvironment;
use crate::wasi::PartialLines;

pub(crate) use convert::{to_invoke_result, truncate_text};

/// What a function is told about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallContext {
    /// The execution; for a task, the one that wants it done.
    pub execution: SharedText,
    /// The operation that the call performs, the same for every attempt. Empty for an execution that nobody called.
    pub idempotency_key: SharedText,
    /// 1 is the first.
    pub attempt: u32,
}

/// What the store of an instance holds.
pub(crate) struct GuestState {
    pub(crate) limiter: InstanceLimiter,
    pub(crate) role: InstanceRole,
    pub(crate) context: CallContext,
    pub(crate) payload_bytes_max: usize,
    /// What the guest logged as errors since it last called for anything else: what a panic says before it traps.
    panic_message: String,
    /// What it wrote, as far as it is no whole line yet.
    pub(crate) partial_lines: PartialLines,
    /// The last instant of a clock that never goes back.
    instant_ns: u64,
    /// How many requests the task has sent.
    request_count: u32,
}

/// As what an instance runs.
pub(crate) enum InstanceRole {
    Describe,
    Workflow(RequestMailbox),
    Task(Arc<TaskEnvironment>),
}

/// A panic is a few lines.
const PANIC_MESSAGE_BYTES_MAX: usize = 1_024;

/// What a request came to, or why the guest has to stop.
type EngineResult<T> = Result<std::result::Result<T, ExecutionError>>;

/// What a guest gets to see of it.
type HostResult<T> = Result<std::result::Result<T, Failure>>;

/// Types only.
impl types::Host for GuestState {}

impl GuestState {
    pub(crate) fn new(
        role: InstanceRole,
        context: CallContext,
        limiter: InstanceLimiter,
        payload_bytes_max: usize,
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
        }
    }

    /// Lets go of what the last call was about.
    pub(crate) fn clear_call(&mut self) {
        self.role = InstanceRole::Describe;
        self.context = CallContext {
            execution: SharedText::from(""),
            idempotency_key: SharedText::from(""),
            attempt: 0,
        };
        self.panic_message.clear();
        self.partial_lines = PartialLines::default();
        self.request_count = 0;
    }

    /// The same instance, for another call of a task.
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

    /// An instant that is not before the last one.
    pub(crate) fn monotonic_ns(&mut self, instant_ns: u64) -> u64 {
        self.instant_ns = self.instant_ns.max(instant_ns);
        self.instant_ns
    }

    /// Asks the engine. `fit` picks the value out of the right kind of answer.
    async fn request_engine<T>(
        &mut self,
        name: &str,
        request: GuestRequest,
        fit: fn(GuestResponse) -> Option<T>,
    ) -> EngineResult<T> {
        let InstanceRole::Workflow(mailbox) = &self.role else {
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
                    "the answer does not fit `{name}`"
                )))
                .into()),
            },
        }
    }

    /// As [`Data::ask`], for functions that cannot fail: a refusal stops the guest.
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

    /// Reads a payload that the guest hands out.
    fn parse_guest_payload(
        &self,
        what: &str,
        text: &str,
    ) -> std::result::Result<Payload, ExecutionError> {
        accept_payload(what, text, self.payload_bytes_max)
    }
}

/// A payload from a guest, if it is one and not too large.
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
