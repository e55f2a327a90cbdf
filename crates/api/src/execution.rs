//! Wire types for executions: start, list, show, signal and cancel them.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::{RawJson, json};

/// Request to start a workflow.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct StartExecutionRequest {
    /// The name of the workflow function.
    pub function: String,
    /// The input of the workflow; default: null.
    #[serde(default)]
    pub input: RawJson,
    /// Idempotency key: starting again with the same key and input returns the same execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 500)]
    pub key: Option<String>,
    /// How many milliseconds to wait for the result; at most 60000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(maximum = 60_000)]
    pub wait_ms: Option<u64>,
}

/// The result of starting a workflow.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct StartExecutionResponse {
    /// The id of the execution.
    pub execution: String,
    /// Whether the execution existed before this request, because the key had already started it.
    pub existed: bool,
    /// The result of the execution, if it completed within `waitMs`.
    #[serde(
        default,
        deserialize_with = "json::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub result: Option<RawJson>,
    /// The error of the execution, if it failed within `waitMs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureDetail>,
}

/// The outcome of an execution. Both fields are absent while it has not ended.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct ExecutionResult {
    /// The value that the workflow returned; it may be null.
    #[serde(
        default,
        deserialize_with = "json::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub result: Option<RawJson>,
    /// Why the execution failed or was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureDetail>,
}

impl ExecutionResult {
    /// Whether the execution has ended, with a result or an error.
    pub const fn has_ended(&self) -> bool {
        self.result.is_some() || self.error.is_some()
    }
}

/// The error that an execution ended with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FailureDetail {
    /// The kind of error.
    pub kind: String,
    /// The error message, for people.
    pub message: String,
}

/// Filter, order and page of a list of executions.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListExecutionsQuery {
    /// Returns only executions in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub state: Option<ExecutionStateName>,
    /// Returns only executions of this workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The order of the list; default: `newest`.
    #[serde(default)]
    #[param(inline)]
    pub order: ExecutionOrder,
    /// Cursor: the `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(pattern = "^-?[0-9]{1,16}\\.[0-9a-f]{64}$")]
    pub after: Option<String>,
    /// Maximum number of executions to return; default: 100. With a filter, a page may have fewer
    /// or none and still not be the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// The order of a list of executions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionOrder {
    /// Executions that were started last come first.
    #[default]
    Newest,
    /// Executions that were started first come first.
    Oldest,
}

/// The state of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum ExecutionStateName {
    /// The execution has code to run.
    #[serde(alias = "running")]
    Running,
    /// The execution waits for a task, a timer, a signal or a child.
    #[serde(alias = "blocked")]
    Blocked,
    /// Cancellation was requested, and the execution is cleaning up.
    #[serde(alias = "cancelling")]
    Cancelling,
    /// The execution ended with a result.
    #[serde(alias = "completed")]
    Completed,
    /// The execution ended with an error.
    #[serde(alias = "failed")]
    Failed,
    /// The execution ended because it was cancelled.
    #[serde(alias = "cancelled")]
    Cancelled,
}

impl ExecutionStateName {
    /// All states.
    pub const ALL: [Self; 6] = [
        Self::Running,
        Self::Blocked,
        Self::Cancelling,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The state as it is stored.
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

/// An execution as it appears in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionSummary {
    /// The id of the execution.
    pub execution: String,
    /// The name of the workflow function.
    pub function: String,
    /// The state of the execution, such as `Running` or `Completed`.
    pub state: String,
    /// The idempotency key that the execution was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When the execution was started (RFC 3339).
    pub created_at: String,
}

/// One page of a list of executions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ExecutionPage {
    /// The executions of this page.
    pub executions: Vec<ExecutionSummary>,
    /// Cursor of the next page, to pass as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An execution with its children and its outcome.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionView {
    /// The id of the execution.
    pub execution: String,
    /// The name of the workflow function.
    pub function: String,
    /// The digest of the component that the execution runs.
    pub component: String,
    /// The state of the execution, such as `Running` or `Completed`.
    pub state: String,
    /// The idempotency key that the execution was started with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// When the execution was started (RFC 3339).
    pub created_at: String,
    /// The number of events in its journal.
    pub events: u64,
    /// The first child executions, in the order in which they were started; at most 1000.
    pub children: Vec<ChildExecution>,
    /// The execution that this one continued as; absent if it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub continued_as: Option<String>,
    /// The result of the execution, or of the last execution that it continued as.
    #[serde(
        default,
        deserialize_with = "json::deserialize_present",
        skip_serializing_if = "Option::is_none"
    )]
    pub result: Option<RawJson>,
    /// Why the execution failed or was cancelled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureDetail>,
}

/// A child execution, which performs an operation of its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChildExecution {
    /// The promise id of the operation in the parent, such as `root.3`.
    pub promise: String,
    /// The id of the child execution.
    pub execution: String,
    /// The name of the workflow function that the child runs.
    pub function: String,
    /// The state of the child; absent if it does not exist in the store.
    pub state: Option<String>,
}

/// Request to send a signal to an execution.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalExecutionRequest {
    /// The name of the signal.
    pub name: String,
    /// The payload of the signal; default: null.
    #[serde(default)]
    pub payload: RawJson,
    /// Idempotency key: sending the signal again with the same key has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 500)]
    pub key: Option<String>,
}

/// Request to cancel an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CancelExecutionRequest {
    /// Why the execution is cancelled; recorded in its journal.
    #[schema(max_length = 1024)]
    pub reason: String,
}

/// Confirms that a message to an execution was accepted and will be delivered.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AcceptedMessage {
    /// The id of the execution.
    pub execution: String,
    /// The kind of message: `signal` or `cancel`.
    pub kind: String,
}
