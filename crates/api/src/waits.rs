//! What an execution waits for, and since when.

use std::borrow::Cow;

use onward_journal::{ExecutionId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{Shown, ago, span};

/// What an execution waits for. Nothing when it is over.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Waits {
    /// For how many of them: `single`, `any`, `all` or `signal`; absent when it does not wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Cow<'static, str>>,
    /// What it waits for.
    pub waits_for: Vec<Waiting>,
    /// What is under way besides, and not waited for now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub besides: Vec<Waiting>,
}

/// One thing that has not happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Waiting {
    /// What it is.
    #[serde(flatten)]
    pub what: What,
    /// The operation, such as `root.3`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promise: Option<String>,
    /// The join set that the operation is in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub join_set: Option<String>,
    /// Since when it is as it is.
    #[schema(value_type = String)]
    pub since: Shown<Timestamp>,
}

/// What has not happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "for", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum What {
    /// Its own code: it has something to do.
    Code,
    /// A signal.
    Signal {
        /// Its name.
        name: String,
        /// When it goes on without one.
        #[serde(skip_serializing_if = "Option::is_none")]
        #[schema(value_type = Option<String>)]
        deadline: Option<Shown<Timestamp>>,
    },
    /// A timer.
    Timer {
        /// When it fires.
        #[schema(value_type = String)]
        until: Shown<Timestamp>,
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
        until: Option<Shown<Timestamp>>,
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
        at: Shown<Timestamp>,
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
        execution: Shown<ExecutionId>,
        /// Its state, where somebody has looked.
        #[serde(skip_serializing_if = "Option::is_none")]
        state: Option<String>,
    },
}

/// The beginning of an id, enough to find it by.
pub fn short(id: ExecutionId) -> String {
    id.to_string().chars().take(12).collect()
}

/// `attempt 2 of 5`.
fn counted(attempt: u32, attempts: Option<u32>) -> String {
    attempts.map_or_else(|| format!("attempt {attempt}"), |all| format!("attempt {attempt} of {all}"))
}

impl Waiting {
    /// What it is, without when.
    pub fn name(&self) -> String {
        match &self.what {
            What::Code => "its own code".to_owned(),
            What::Signal { name, .. } => format!("signal {name}"),
            What::Timer { .. } => "timer".to_owned(),
            What::Start { function } => format!("the first attempt of {function}"),
            What::Task { function, attempt, attempts } => format!("{function}, {}", counted(*attempt, *attempts)),
            What::Retry { function, attempt, attempts, .. } => {
                format!("{function}, {}", counted(*attempt, *attempts))
            }
            What::Worker { function, attempt, attempts, worker, .. } => {
                let who = worker.as_ref().map_or("a worker", String::as_str);
                format!("{function} by {who}, {}", counted(*attempt, *attempts))
            }
            What::Child { function, execution, state, .. } => {
                let state = state.as_ref().map(|state| format!(" ({state})")).unwrap_or_default();
                format!("child {function} {}{state}", short(execution.0))
            }
        }
    }

    /// When it ends by itself, if it does.
    pub const fn due(&self) -> Option<Timestamp> {
        match &self.what {
            What::Timer { until: Shown(at) } | What::Retry { at: Shown(at), .. } => Some(*at),
            What::Signal { deadline: Some(Shown(at)), .. } => Some(*at),
            _ => None,
        }
    }

    /// One short line: `signal approval, 12 s`.
    pub fn in_short(&self, now: Timestamp) -> String {
        let name = self.name();
        let since = span(self.since.0, now);
        match (&self.what, self.due()) {
            (What::Signal { .. }, Some(at)) => format!("{name}, {since}, at most until {}", ago(at, now)),
            (What::Timer { .. }, Some(at)) => format!("{name}, due {}", ago(at, now)),
            (What::Retry { error, .. }, Some(at)) => format!("{name}, due {}: {error}", ago(at, now)),
            _ => format!("{name}, {since}"),
        }
    }
}

impl Waits {
    /// One short line for people: `waits for signal approval, 12 s`.
    pub fn in_short(&self, now: Timestamp) -> String {
        let Some(first) = self.waits_for.first() else { return "waits for nothing".to_owned() };
        let more = match self.waits_for.len() {
            1 => String::new(),
            all => format!(" and {} more", all - 1),
        };
        match &first.what {
            What::Code => format!("its code is to run, {}", span(first.since.0, now)),
            _ => format!("waits for {}{more}", first.in_short(now)),
        }
    }
}
