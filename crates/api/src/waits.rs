//! Wire types that describe what an execution waits for, and since when.

use std::borrow::Cow;

use onward_base::Timestamp;
use onward_journal::ExecutionId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{DisplayText, format_elapsed, format_relative_time};

/// What an execution waits for; empty if it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionWaits {
    /// Which of the waits must be satisfied: `single`, `any`, `all` or `signal`; absent if the
    /// execution is not blocked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Cow<'static, str>>,
    /// The operations that the execution is blocked on.
    pub waits_for: Vec<ExecutionWait>,
    /// Operations that are in progress but that the execution is not blocked on now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also_waits_for: Vec<ExecutionWait>,
}

/// One operation that has not finished.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionWait {
    /// What has to happen before the operation finishes.
    #[serde(flatten)]
    pub target: WaitTarget,
    /// The promise id of the operation, such as `root.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promise: Option<String>,
    /// The join set that the operation is part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_set: Option<String>,
    /// Since when the operation is in this state (RFC 3339).
    #[schema(value_type = String)]
    pub since: DisplayText<Timestamp>,
}

/// What has to happen before an operation finishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum WaitTarget {
    /// The execution's own code: it is ready to run.
    Code,
    /// A signal must arrive.
    #[serde(rename_all = "camelCase")]
    Signal {
        /// The name of the signal.
        name: String,
        /// When the execution continues without the signal (RFC 3339); absent if there is no
        /// timeout.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        deadline: Option<DisplayText<Timestamp>>,
    },
    /// A timer must fire.
    #[serde(rename_all = "camelCase")]
    Timer {
        /// When the timer fires (RFC 3339).
        #[schema(value_type = String)]
        fires_at: DisplayText<Timestamp>,
    },
    /// The first attempt of an invocation must start: it is scheduled but has not started.
    #[serde(rename_all = "camelCase")]
    Start {
        /// The name of the function to invoke.
        function: String,
    },
    /// A task or an HTTP request that is in progress must finish.
    #[serde(rename_all = "camelCase")]
    Task {
        /// The name of the function.
        function: String,
        /// The number of the current attempt; 1 is the first.
        attempt: u32,
        /// Maximum number of attempts; absent if there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_attempts: Option<u32>,
    },
    /// A task for a remote worker must finish: a worker performs it, or will when it claims it.
    #[serde(rename_all = "camelCase")]
    Worker {
        /// The name of the function.
        function: String,
        /// The number of the current attempt; 1 is the first.
        attempt: u32,
        /// Maximum number of attempts; absent if there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_attempts: Option<u32>,
        /// The worker that has claimed the task; absent if none has, or if the claim was not looked
        /// up.
        #[serde(skip_serializing_if = "Option::is_none")]
        worker: Option<String>,
        /// When the lease of that worker expires unless it sends a heartbeat (RFC 3339).
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        leased_until: Option<DisplayText<Timestamp>>,
    },
    /// The next attempt of an invocation must start, after the last attempt failed.
    #[serde(rename_all = "camelCase")]
    Retry {
        /// The name of the function.
        function: String,
        /// The number of the next attempt.
        attempt: u32,
        /// Maximum number of attempts; absent if there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_attempts: Option<u32>,
        /// The error of the last attempt.
        error: String,
        /// When the next attempt starts (RFC 3339).
        #[schema(value_type = String)]
        retry_at: DisplayText<Timestamp>,
    },
    /// A child execution must end.
    #[serde(rename_all = "camelCase")]
    Child {
        /// The name of the workflow function that the child runs.
        function: String,
        /// The number of the current attempt; 1 is the first.
        attempt: u32,
        /// Maximum number of attempts; absent if there is no limit.
        #[serde(skip_serializing_if = "Option::is_none")]
        max_attempts: Option<u32>,
        /// The id of the child execution.
        #[schema(value_type = String)]
        execution: DisplayText<ExecutionId>,
        /// The state of the child; absent if it was not looked up.
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<String>,
    },
}

/// The first 12 characters of an execution id, which the API accepts as a prefix.
pub fn short_execution_id(id: ExecutionId) -> String {
    id.to_string().chars().take(12).collect()
}

/// Formats as `attempt 2 of 5`, or `attempt 2` if there is no limit.
fn format_attempt(attempt: u32, max_attempts: Option<u32>) -> String {
    max_attempts.map_or_else(
        || format!("attempt {attempt}"),
        |max| format!("attempt {attempt} of {max}"),
    )
}

impl ExecutionWait {
    /// Describes the target in a few words, without times.
    pub fn target_name(&self) -> String {
        match &self.target {
            WaitTarget::Code => "its own code".to_owned(),
            WaitTarget::Signal { name, .. } => format!("signal {name}"),
            WaitTarget::Timer { .. } => "timer".to_owned(),
            WaitTarget::Start { function } => format!("the first attempt of {function}"),
            WaitTarget::Task {
                function,
                attempt,
                max_attempts,
            } => format!("{function}, {}", format_attempt(*attempt, *max_attempts)),
            WaitTarget::Retry {
                function,
                attempt,
                max_attempts,
                ..
            } => {
                format!("{function}, {}", format_attempt(*attempt, *max_attempts))
            }
            WaitTarget::Worker {
                function,
                attempt,
                max_attempts,
                worker,
                ..
            } => {
                let worker = worker.as_ref().map_or("a worker", String::as_str);
                format!(
                    "{function} by {worker}, {}",
                    format_attempt(*attempt, *max_attempts)
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

    /// When the wait ends without further input: the time of a timer, a retry or a signal deadline.
    /// `None` if it has no such time.
    pub const fn due_at(&self) -> Option<Timestamp> {
        match &self.target {
            WaitTarget::Timer {
                fires_at: DisplayText(at),
            }
            | WaitTarget::Retry {
                retry_at: DisplayText(at),
                ..
            } => Some(*at),
            WaitTarget::Signal {
                deadline: Some(DisplayText(at)),
                ..
            } => Some(*at),
            _ => None,
        }
    }

    /// Formats the wait as one short line: `signal approval, 12 s`.
    pub fn summary_line(&self, now: Timestamp) -> String {
        let name = self.target_name();
        let since = format_elapsed(self.since.0, now);
        match (&self.target, self.due_at()) {
            (WaitTarget::Signal { .. }, Some(at)) => format!(
                "{name}, {since}, times out {}",
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
    /// Formats the waits as one short line for people: `waits for signal approval, 12 s`.
    pub fn summary_line(&self, now: Timestamp) -> String {
        let Some(first) = self.waits_for.first() else {
            return "waits for nothing".to_owned();
        };
        let more = match self.waits_for.len() {
            1 => String::new(),
            count => format!(" and {} more", count - 1),
        };
        match &first.target {
            WaitTarget::Code => {
                format!("ready to run, {}", format_elapsed(first.since.0, now))
            }
            _ => format!("waits for {}{more}", first.summary_line(now)),
        }
    }
}
