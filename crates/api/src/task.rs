//! Wire types of the worker protocol: claim, heartbeat, complete, fail and release tasks.

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::RawJson;

/// Lease duration in milliseconds if the worker asks for no other: the maximum time between two
/// heartbeats.
pub const DEFAULT_LEASE_MS: u32 = 30_000;

/// Request of a worker to claim tasks.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ClaimTasksRequest {
    /// The name of the worker, shown to people.
    #[schema(min_length = 1, max_length = 200)]
    pub worker: String,
    /// The functions whose tasks the worker performs.
    #[schema(min_items = 1, max_items = 100)]
    pub functions: Vec<String>,
    /// Maximum number of tasks to claim; default: 1.
    #[serde(default = "default_max_tasks")]
    #[schema(minimum = 1, maximum = 100, default = 1)]
    pub max: u32,
    /// Lease duration in milliseconds, the maximum time between two heartbeats; default: 30000.
    #[serde(default = "default_lease_ms")]
    #[schema(minimum = 100, maximum = 3_600_000, default = 30_000)]
    pub lease_ms: u32,
    /// How many milliseconds to wait if no task is queued; default: 0, at most 60000.
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

/// The tasks that the worker has claimed.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ClaimTasksResponse {
    /// The claimed tasks; empty if there was none within `waitMs`.
    pub tasks: Vec<TaskClaim>,
}

/// A task that a worker holds under a lease.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskClaim {
    /// The id of the task, for the requests about it.
    pub task: String,
    /// Claim token: proves that the worker holds the lease. Only the worker that claimed the task
    /// has it.
    pub token: String,
    /// The execution that the task belongs to.
    pub execution: String,
    /// The promise id of the operation: equal for every attempt, different for every other
    /// operation. Use it as the idempotency key of side effects.
    pub promise: String,
    /// The name of the function to perform.
    pub function: String,
    /// The number of this attempt; 1 is the first.
    pub attempt: u32,
    /// The input of the function.
    pub input: RawJson,
    /// Whether the task may be repeated if its outcome is unknown.
    pub delivery: TaskDelivery,
    /// When the lease expires unless the worker sends a heartbeat (RFC 3339).
    pub leased_until: String,
    /// The lease duration in milliseconds; each heartbeat renews the lease by it.
    pub lease_ms: u32,
    /// Timeout of the attempt in milliseconds, from its start; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
}

/// The delivery guarantee of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TaskDelivery {
    /// The task is repeated until its outcome is known.
    AtLeastOnce,
    /// The task is never repeated: if its worker is lost, it is in doubt.
    AtMostOnce,
}

/// Heartbeat: request to renew the lease of a task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatTaskRequest {
    /// The claim token of the task.
    pub token: String,
}

/// Request to release a task that the worker has not started and will not start.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReleaseTaskRequest {
    /// The claim token of the task.
    pub token: String,
}

/// The renewed lease of a task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatTaskResponse {
    /// When the lease expires unless the worker sends another heartbeat (RFC 3339).
    pub leased_until: String,
}

/// Which task a worker claims together with the end of the previous one.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NextTaskRequest {
    /// The name of the worker, shown to people.
    #[schema(min_length = 1, max_length = 200)]
    pub worker: String,
    /// The functions whose tasks the worker performs.
    #[schema(min_items = 1, max_items = 100)]
    pub functions: Vec<String>,
    /// Lease duration in milliseconds, the maximum time between two heartbeats; default: 30000.
    #[serde(default = "default_lease_ms")]
    #[schema(minimum = 100, maximum = 3_600_000, default = 30_000)]
    pub lease_ms: u32,
}

/// Request to complete a task with a result.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteTaskRequest {
    /// The claim token of the task.
    pub token: String,
    /// The result of the task; default: null.
    #[serde(default)]
    pub result: RawJson,
    /// If set, also claims the task that follows from this one, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextTaskRequest>,
}

/// Request to fail a task with an error.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailTaskRequest {
    /// The claim token of the task.
    pub token: String,
    /// Why the task failed.
    pub error: TaskError,
    /// If set, also claims the task that follows from this one, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextTaskRequest>,
}

/// The error of a failed task.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskError {
    /// The error message, for people.
    #[schema(max_length = 65_536)]
    pub message: String,
    /// The kind of failure, which the calling workflow can match on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 200)]
    pub code: Option<String>,
    /// Whether another attempt may succeed; default: true.
    #[serde(default = "default_retryable")]
    #[schema(default = true)]
    pub retryable: bool,
}

const fn default_retryable() -> bool {
    true
}

/// Confirms that the end or release of a task is recorded.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TaskEndResponse {
    /// The id of the task.
    pub task: String,
    /// The next task, which the worker now holds; absent if the worker asked for none or there was
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TaskClaim>,
}

/// Page of a list of tasks.
#[derive(Debug, Clone, Default, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ListTasksQuery {
    /// Cursor: the `next` of the previous page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(
        pattern = "^-?[0-9]{1,16}:(queued|claimed):[0-9a-f]{64}\\.[0-9]{1,9}\\.[0-9]{1,9}:.+$"
    )]
    pub after: Option<String>,
    /// Maximum number of tasks to return; default: 100. A page never has more than 100 tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
}

/// One page of a list of tasks, ordered by function, then by state, then oldest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TaskPage {
    /// The tasks of this page.
    pub tasks: Vec<TaskSummary>,
    /// Cursor of the next page, to pass as `after`; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A task that a worker has claimed or that is queued for a worker.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TaskSummary {
    /// The id of the task.
    pub task: String,
    /// The name of the function to perform.
    pub function: String,
    /// The execution that the task belongs to.
    pub execution: String,
    /// The number of the attempt; 1 is the first.
    pub attempt: u32,
    /// The state of the task: `queued` or `claimed`.
    pub state: String,
    /// When the task was queued (RFC 3339).
    pub queued_at: String,
    /// The worker that has claimed the task; absent while it is queued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// When the lease of that worker expires unless it sends a heartbeat (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased_until: Option<String>,
}
