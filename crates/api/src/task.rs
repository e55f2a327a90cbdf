//! Tasks for workers: what a worker asks for, is given, and answers.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::RawJson;

/// How long a worker may go without a sign of life, in milliseconds, unless it asks for another time.
pub const DEFAULT_LEASE_MS: u32 = 30_000;

/// What a worker asks for.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimTasksRequest {
    /// Its name, for people.
    #[schema(min_length = 1, max_length = 200)]
    pub worker: String,
    /// Tasks of these functions.
    #[schema(min_items = 1, max_items = 100)]
    pub functions: Vec<String>,
    /// At most so many; one unless told.
    #[serde(default = "default_max_tasks")]
    #[schema(minimum = 1, maximum = 100, default = 1)]
    pub max: u32,
    /// How many milliseconds it may go without a sign of life; half a minute unless told.
    #[serde(default = "default_lease_ms")]
    #[schema(minimum = 100, maximum = 3_600_000, default = 30_000)]
    pub lease_ms: u32,
    /// How many milliseconds to wait for a task where there is none; at most a minute.
    #[serde(default)]
    #[schema(maximum = 60_000)]
    pub wait_ms: u64,
}

const fn default_max_tasks() -> u32 {
    1
}

const fn default_lease_ms() -> u32 {
    DEFAULT_LEASE_MS
}

/// What a worker is given.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClaimTasksResponse {
    /// Its tasks; none when there was none in time.
    pub tasks: Vec<TaskClaim>,
}

/// A task that a worker holds.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskClaim {
    /// Which task.
    pub task: String,
    /// What shows that the worker holds it. Nobody else knows it.
    pub token: String,
    /// The execution that wants it.
    pub execution: String,
    /// The operation: the same for every attempt, and for nothing else. Perform effects under this key.
    pub promise: String,
    /// The function.
    pub function: String,
    /// Which attempt.
    pub attempt: u32,
    /// What it is called with.
    pub input: RawJson,
    /// Whether it may be repeated.
    pub delivery: TaskDelivery,
    /// When it is taken back, unless the worker shows that it is alive.
    pub leased_until: String,
    /// How many milliseconds that is.
    pub lease_ms: u32,
    /// How many milliseconds it may take from the start of the attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// Whether a task may be repeated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskDelivery {
    /// It is, until its end is known.
    AtLeastOnce,
    /// Never: if its worker is lost, it is in doubt.
    AtMostOnce,
}

/// A sign of life.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatTaskRequest {
    /// What shows that the worker holds the task.
    pub token: String,
}

/// A task that its worker has not begun, and will not.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseTaskRequest {
    /// What shows that the worker holds the task.
    pub token: String,
}

/// The worker goes on.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatTaskResponse {
    /// When the task is taken back, unless there is another sign of life.
    pub leased_until: String,
}

/// What a worker that is done with a task would perform next.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NextTaskRequest {
    /// Its name, for people.
    #[schema(min_length = 1, max_length = 200)]
    pub worker: String,
    /// A task of one of these functions.
    #[schema(min_items = 1, max_items = 100)]
    pub functions: Vec<String>,
    /// How many milliseconds it may go without a sign of life; half a minute unless told.
    #[serde(default = "default_lease_ms")]
    #[schema(minimum = 100, maximum = 3_600_000, default = 30_000)]
    pub lease_ms: u32,
}

/// A task was performed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteTaskRequest {
    /// What shows that the worker holds the task.
    pub token: String,
    /// What came of it; null unless told.
    #[serde(default)]
    pub result: RawJson,
    /// Claims the task that follows from this one with the same request, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextTaskRequest>,
}

/// A task could not be performed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailTaskRequest {
    /// What shows that the worker holds the task.
    pub token: String,
    /// Why.
    pub error: TaskError,
    /// Claims the task that follows from this one with the same request, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextTaskRequest>,
}

/// Why a task could not be performed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskError {
    /// What happened, for people.
    #[schema(max_length = 65_536)]
    pub message: String,
    /// What kind of failure, for the workflow that wants the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub code: Option<String>,
    /// Whether another attempt may go better; so unless told.
    #[serde(default = "default_retryable")]
    #[schema(default = true)]
    pub retryable: bool,
}

const fn default_retryable() -> bool {
    true
}

/// It is recorded that the worker is done with the task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TaskEndResponse {
    /// Which task.
    pub task: String,
    /// The task that follows, and that the worker holds now, if it has asked for one and there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskClaim>,
}

/// Which tasks to list.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListTasksQuery {
    /// Where to go on: the `next` of the page before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(
        pattern = "^-?[0-9]{1,16}:(queued|claimed):[0-9a-f]{64}\\.[0-9]{1,9}\\.[0-9]{1,9}:.+$"
    )]
    pub after: Option<String>,
    /// At most so many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// A page of tasks: by function, those of a state together, oldest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TaskPage {
    /// The tasks.
    pub tasks: Vec<TaskSummary>,
    /// Where to go on; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A task that a worker holds, or that waits for one.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSummary {
    /// Which task.
    pub task: String,
    /// The function.
    pub function: String,
    /// The execution that wants it.
    pub execution: String,
    /// Which attempt.
    pub attempt: u32,
    /// `queued` or `claimed`.
    pub state: String,
    /// Since when it is there.
    pub queued_at: String,
    /// The worker that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// When it is taken from that worker, unless it is heard of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_until: Option<String>,
}
