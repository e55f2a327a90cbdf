//! Executions: how they are started, listed, shown and told things.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{RawJson, json};

/// A workflow to start.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartExecutionRequest {
    /// Its name.
    pub function: String,
    /// What it is called with; null unless told.
    #[serde(default)]
    pub input: RawJson,
    /// Starting again with the same key and input returns the same execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 500)]
    pub key: Option<String>,
    /// How many milliseconds to wait for the result; at most a minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 60_000)]
    pub wait_ms: Option<u64>,
}

/// What a start came to.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StartExecutionResponse {
    /// The execution.
    pub execution: String,
    /// Whether it was there already: the key has started it before.
    pub existed: bool,
    /// Its result, if it was waited for and has one.
    #[serde(
        default,
        deserialize_with = "json::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub result: Option<RawJson>,
    /// What it failed with, if it was waited for and has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureDetail>,
}

/// What an execution ended with. Nothing of it while it has not.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ExecutionResult {
    /// Its result.
    #[serde(
        default,
        deserialize_with = "json::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub result: Option<RawJson>,
    /// What it failed with, or why it was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureDetail>,
}

impl ExecutionResult {
    /// Whether it has ended.
    pub const fn has_ended(&self) -> bool {
        self.result.is_some() || self.error.is_some()
    }
}

/// An error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureDetail {
    /// What kind of error.
    pub kind: String,
    /// What happened.
    pub message: String,
}

/// Which executions to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListExecutionsQuery {
    /// Only those in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub state: Option<ExecutionStateName>,
    /// Only those of this workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// Which come first.
    #[serde(default)]
    #[param(inline)]
    pub order: ExecutionOrder,
    /// Where to go on: the `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(pattern = "^-?[0-9]{1,16}\\.[0-9a-f]{64}$")]
    pub after: Option<String>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// Which executions come first in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionOrder {
    /// Those that were started last.
    #[default]
    Newest,
    /// Those that were started first.
    Oldest,
}

/// The states that executions are in, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum ExecutionStateName {
    /// It has something to do.
    #[serde(alias = "running")]
    Running,
    /// It waits.
    #[serde(alias = "blocked")]
    Blocked,
    /// It is asked to stop, and cleans up.
    #[serde(alias = "cancelling")]
    Cancelling,
    /// It returned a result.
    #[serde(alias = "completed")]
    Completed,
    /// It returned an error.
    #[serde(alias = "failed")]
    Failed,
    /// It was stopped.
    #[serde(alias = "cancelled")]
    Cancelled,
}

impl ExecutionStateName {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Running,
        Self::Blocked,
        Self::Cancelling,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// As it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "Running",
            Self::Blocked => "Blocked",
            Self::Cancelling => "Cancelling",
            Self::Completed => "Completed",
            Self::Failed => "Failed",
            Self::Cancelled => "Cancelled",
        }
    }
}

/// An execution in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionSummary {
    /// Its id.
    pub execution: String,
    /// The workflow.
    pub function: String,
    /// Its state.
    pub state: String,
    /// The key that it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When it was started.
    pub created_at: String,
}

/// A part of a list of executions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecutionPage {
    /// The executions.
    pub executions: Vec<ExecutionSummary>,
    /// What to pass as `after` for those that follow; absent when these were the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An execution.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionView {
    /// Its id.
    pub execution: String,
    /// The workflow.
    pub function: String,
    /// The component that it runs.
    pub component: String,
    /// Its state.
    pub state: String,
    /// The key that it was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When it was started.
    pub created_at: String,
    /// How many events its journal has.
    pub events: u64,
    /// Executions that perform operations of this one, in the order in which they were started.
    pub children: Vec<ChildExecution>,
    /// Who took its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_as: Option<String>,
    /// The result of it, or of whoever took its place in the end.
    #[serde(
        default,
        deserialize_with = "json::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub result: Option<RawJson>,
    /// What it failed with, or why it was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureDetail>,
}

/// Another execution that performs an operation of this one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChildExecution {
    /// The operation.
    pub promise: String,
    /// The execution.
    pub execution: String,
    /// The workflow.
    pub function: String,
    /// Its state; absent when it is not there.
    pub state: Option<String>,
}

/// A signal to an execution.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalExecutionRequest {
    /// Its name.
    pub name: String,
    /// What it says; null unless told.
    #[serde(default)]
    pub payload: RawJson,
    /// Sending it again with the same key does nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 500)]
    pub key: Option<String>,
}

/// A request to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelExecutionRequest {
    /// Why, for whoever asks later.
    #[schema(max_length = 1024)]
    pub reason: String,
}

/// Something that is on its way to an execution.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AcceptedMessage {
    /// The execution.
    pub execution: String,
    /// What: `signal` or `cancel`.
    pub sent: String,
}
