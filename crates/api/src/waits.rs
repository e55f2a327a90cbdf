//! What an execution waits for, and since when.

use std::borrow::Cow;

use onward_base::Timestamp;
use onward_journal::ExecutionId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DisplayText, format_elapsed, format_relative_time};

/// What an execution waits for. Nothing when it is over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionWaits {
    /// For how many of them: `single`, `any`, `all` or `signal`; absent when it does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Cow<'static, str>>,
    /// What it waits for.
    pub waits_for: Vec<ExecutionWait>,
    /// What is under way besides, and not waited for now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub besides: Vec<ExecutionWait>,
}

/// One thing that has not happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionWait {
    /// What it is.
    #[serde(flatten)]
    pub target: WaitTarget,
    /// The operation, such as `root.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promise: Option<String>,
    /// The join set that the operation is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_set: Option<String>,
    /// Since when it is as it is.
    #[schema(value_type = String)]
    pub since: DisplayText<Timestamp>,
}

/// What has not happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "for", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum WaitTarget {
    /// Its own code: it has something to do.
    Code,
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// When it goes on without one.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        deadline: Option<DisplayText<Timestamp>>,
    },
    /// A timer.
    Timer {
        /// When it fires.
        #[schema(value_type = String)]
        until: DisplayText<Timestamp>,
    },
    /// The first attempt of an invocation: it is wanted, and was not begun.
    Start {
        /// The function.
        function: String,
    },
    /// A task or a request that is under way.
    Task {
        /// The function.
        function: String,
        /// Which attempt.
        attempt: u32,
        /// Of how many; absent when there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
    },
    /// A task that a worker performs, or will when one asks for it.
    Worker {
        /// The function.
        function: String,
        /// Which attempt.
        attempt: u32,
        /// Of how many; absent when there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
        /// The worker that has it, if one does and somebody has looked.
        #[serde(skip_serializing_if = "Option::is_none")]
        worker: Option<String>,
        /// When it is taken from that worker, unless it is heard of.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        until: Option<DisplayText<Timestamp>>,
    },
    /// The next attempt of an invocation whose last one failed.
    Retry {
        /// The function.
        function: String,
        /// The attempt that is next.
        attempt: u32,
        /// Of how many; absent when there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
        /// What the last one failed with.
        error: String,
        /// When it is tried again.
        #[schema(value_type = String)]
        at: DisplayText<Timestamp>,
    },
    /// Another workflow.
    Child {
        /// The function.
        function: String,
        /// Which attempt.
        attempt: u32,
        /// Of how many; absent when there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        attempts: Option<u32>,
        /// The execution that performs it.
        #[schema(value_type = String)]
        execution: DisplayText<ExecutionId>,
        /// Its state, where somebody has looked.
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<String>,
    },
}

/// The beginning of an id, enough to find it by.
pub fn short_execution_id(id: ExecutionId) -> String {
    id.to_string().chars().take(12).collect()
}

/// `attempt 2 of 5`.
fn format_attempt(attempt: u32, attempts: Option<u32>) -> String {
    attempts.map_or_else(
        || format!("attempt {attempt}"),
        |all| format!("attempt {attempt} of {all}"),
    )
}

impl ExecutionWait {
    /// What it is, without when.
    pub fn target_name(&self) -> String {
        match &self.target {
            WaitTarget::Code => "its own code".to_owned(),
            WaitTarget::Signal { name, .. } => format!("signal {name}"),
            WaitTarget::Timer { .. } => "timer".to_owned(),
            WaitTarget::Start { function } => format!("the first attempt of {function}"),
            WaitTarget::Task {
                function,
                attempt,
                attempts,
            } => format!("{function}, {}", format_attempt(*attempt, *attempts)),
            WaitTarget::Retry {
                function,
                attempt,
                attempts,
                ..
            } => {
                format!("{function}, {}", format_attempt(*attempt, *attempts))
            }
            WaitTarget::Worker {
                function,
                attempt,
                attempts,
                worker,
                ..
            } => {
                let who = worker.as_ref().map_or("a worker", String::as_str);
                format!(
                    "{function} by {who}, {}",
                    format_attempt(*attempt, *attempts)
                )
            }
            WaitTarget::Child {
                function,
                execution,
                state,
                ..
            } => {
                let state = state
                    .as_ref()
                    .map(|state| format!(" ({state})"))
                    .unwrap_or_default();
                format!(
                    "child {function} {}{state}",
                    short_execution_id(execution.0)
                )
            }
        }
    }

    /// When it ends by itself, if it does.
    pub const fn due_at(&self) -> Option<Timestamp> {
        match &self.target {
            WaitTarget::Timer {
                until: DisplayText(at),
            }
            | WaitTarget::Retry {
                at: DisplayText(at),
                ..
            } => Some(*at),
            WaitTarget::Signal {
                deadline: Some(DisplayText(at)),
                ..
            } => Some(*at),
            _ => None,
        }
    }

    /// One short line: `signal approval, 12 s`.
    pub fn summary_line(&self, now: Timestamp) -> String {
        let name = self.target_name();
        let since = format_elapsed(self.since.0, now);
        match (&self.target, self.due_at()) {
            (WaitTarget::Signal { .. }, Some(at)) => format!(
                "{name}, {since}, at most until {}",
                format_relative_time(at, now)
            ),
            (WaitTarget::Timer { .. }, Some(at)) => {
                format!("{name}, due {}", format_relative_time(at, now))
            }
            (WaitTarget::Retry { error, .. }, Some(at)) => {
                format!("{name}, due {}: {error}", format_relative_time(at, now))
            }
            _ => format!("{name}, {since}"),
        }
    }
}

impl ExecutionWaits {
    /// One short line for people: `waits for signal approval, 12 s`.
    pub fn summary_line(&self, now: Timestamp) -> String {
        let Some(first) = self.waits_for.first() else {
            return "waits for nothing".to_owned();
        };
        let more = match self.waits_for.len() {
            1 => String::new(),
            all => format!(" and {} more", all - 1),
        };
        match &first.target {
            WaitTarget::Code => {
                format!("its code is to run, {}", format_elapsed(first.since.0, now))
            }
            _ => format!("waits for {}{more}", first.summary_line(now)),
        }
    }
}
