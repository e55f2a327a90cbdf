//! What guests can call. A workflow asks the engine for everything through its mailbox; a task is served at once; while it
//! describes itself, a component gets nothing that differs from one time to the next.

mod convert;
mod every;
mod task;
mod workflow;

use std::sync::Arc;

use onward_execution::{Answer, Level, Request};
use onward_journal::{ExecutionError, Payload, Text};
use wasmtime::Result;

use crate::bindings::types::{self, Failure};
use crate::limiter::Limiter;
use crate::mailbox::Mailbox;
use crate::stop::{Stop, defect, named, too_large};
use crate::task::Served;
use crate::wasi::Lines;

pub(crate) use convert::{cut, outcome_of};

/// What a function is told about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnContext {
    /// The execution; for a task, the one that wants it done.
    pub execution: Text,
    /// The operation that the call performs, the same for every attempt. Empty for an execution that nobody called.
    pub idempotency_key: Text,
    /// 1 is the first.
    pub attempt: u32,
}

/// What the store of an instance holds.
pub(crate) struct Data {
    pub(crate) limiter: Limiter,
    pub(crate) role: Role,
    pub(crate) context: OwnContext,
    pub(crate) payload_bytes_max: usize,
    /// What the guest logged as errors since it last called for anything else: what a panic says before it traps.
    last_words: String,
    /// What it wrote, as far as it is no whole line yet.
    pub(crate) lines: Lines,
    /// The last instant of a clock that never goes back.
    instant_ns: u64,
    /// How many requests the task has sent.
    requests: u32,
}

/// As what an instance runs.
pub(crate) enum Role {
    Describe,
    Workflow(Mailbox),
    Task(Arc<Served>),
}

/// A panic is a few lines.
const LAST_WORDS_BYTES_MAX: usize = 1_024;

/// What a request came to, or why the guest has to stop.
type Asked<T> = Result<std::result::Result<T, ExecutionError>>;

/// What a guest gets to see of it.
type Told<T> = Result<std::result::Result<T, Failure>>;

/// Types only.
impl types::Host for Data {}

impl Data {
    pub(crate) fn new(role: Role, context: OwnContext, limiter: Limiter, payload_bytes_max: usize) -> Self {
        Self {
            limiter,
            role,
            context,
            payload_bytes_max,
            last_words: String::new(),
            lines: Lines::default(),
            instant_ns: 0,
            requests: 0,
        }
    }

    /// Lets go of what the last call was about.
    pub(crate) fn forget(&mut self) {
        self.role = Role::Describe;
        self.context = OwnContext { execution: Text::from(""), idempotency_key: Text::from(""), attempt: 0 };
        self.last_words.clear();
        self.lines = Lines::default();
        self.requests = 0;
    }

    /// The same instance, for another call of a task.
    pub(crate) fn renew(&mut self, role: Role, context: OwnContext, memory_bytes_max: usize, payload_bytes_max: usize) {
        self.role = role;
        self.context = context;
        self.payload_bytes_max = payload_bytes_max;
        self.limiter.renew(memory_bytes_max);
    }

    pub(crate) fn last_words(&self) -> Option<&str> {
        Some(self.last_words.as_str()).filter(|words| !words.is_empty())
    }

    fn note(&mut self, level: Level, message: &str) {
        if level != Level::Error {
            self.last_words.clear();
        } else if self.last_words.len() < LAST_WORDS_BYTES_MAX {
            let pause = if self.last_words.is_empty() { "" } else { " " };
            self.last_words.push_str(pause);
            self.last_words.push_str(&cut(message.to_owned(), LAST_WORDS_BYTES_MAX));
        }
    }

    /// An instant that is not before the last one.
    pub(crate) fn never_back(&mut self, instant_ns: u64) -> u64 {
        self.instant_ns = self.instant_ns.max(instant_ns);
        self.instant_ns
    }

    /// Asks the engine. `fit` picks the value out of the right kind of answer.
    async fn ask<T>(&mut self, name: &str, request: Request, fit: fn(Answer) -> Option<T>) -> Asked<T> {
        let Role::Workflow(mailbox) = &self.role else {
            return Ok(Err(named("not_in_task", format!("`{name}` is for workflows"))));
        };
        if !matches!(request, Request::Log { .. }) {
            self.last_words.clear();
        }
        match mailbox.ask(request).await {
            Answer::Refused(error) => Ok(Err(error)),
            answer => match fit(answer) {
                Some(value) => Ok(Ok(value)),
                None => Err(Stop(defect(format_args!("the answer does not fit `{name}`"))).into()),
            },
        }
    }

    /// As [`Data::ask`], for functions that cannot fail: a refusal stops the guest.
    async fn demand<T>(&mut self, name: &str, request: Request, fit: fn(Answer) -> Option<T>) -> Result<T> {
        self.ask(name, request, fit).await?.map_err(|error| Stop(error).into())
    }

    /// Reads a payload that the guest hands out.
    fn payload(&self, what: &str, text: &str) -> std::result::Result<Payload, ExecutionError> {
        accept(what, text, self.payload_bytes_max)
    }
}

/// A payload from a guest, if it is one and not too large.
pub(crate) fn accept(what: &str, text: &str, bytes_max: usize) -> std::result::Result<Payload, ExecutionError> {
    if text.len() > bytes_max {
        return Err(too_large(what, text.len(), bytes_max));
    }
    Payload::parse(text).map_err(|error| named("invalid_payload", format!("{what} is {error}")))
}
