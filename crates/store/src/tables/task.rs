//! Tables of the task queue: tasks for workers, and the functions that workers have polled for.

use onward_base::{EnvironmentId, ProjectId, SharedText, TenantId, Timestamp, text_enum};
use onward_journal::{DeliveryGuarantee, ExecutionId};

use crate::{ShardId, define_table};

text_enum! {
    /// Whether a worker holds a task.
    WorkerTaskState {
        /// The task waits for a worker.
        Queued = "queued",
        /// A worker has claimed the task.
        Claimed = "claimed",
    }
}

define_table! {
    /// A task attempt for a worker. The row exists from the commit that starts the attempt until
    /// the commit that reports its result or abandons it.
    "tasks", key 3,
    index
        BY_FUNCTION ["tenant_id", "project_id", "environment_id", "function", "state", "queued_at"]
        BY_LEASE ["leased_until"];
    pub struct TaskRow {
        /// The execution that called the task.
        pub execution_id: ExecutionId = "execution_id",
        /// Number of the promise that the task resolves.
        pub promise: u32 = "promise",
        /// Number of the engine attempt.
        pub attempt: u32 = "attempt",
        /// The shard that the execution belongs to.
        pub shard: ShardId = "shard",
        /// The tenant that owns the execution.
        pub tenant_id: TenantId = "tenant_id",
        /// The project of the execution.
        pub project_id: ProjectId = "project_id",
        /// The environment of the execution.
        pub environment_id: EnvironmentId = "environment_id",
        /// Name of the task function.
        pub function: SharedText = "function",
        /// Whether a worker holds the task.
        pub state: WorkerTaskState = "state",
        /// When the task was queued for a worker.
        pub queued_at: Timestamp = "queued_at",
        /// When the worker's lease expires unless a heartbeat extends it; never expires while no
        /// worker holds the task.
        pub leased_until: Timestamp = "leased_until",
        /// Duration of the lease, and of each extension, in milliseconds.
        pub lease_ms: u32 = "lease_ms",
        /// Display name of the worker; `None` while no worker holds the task.
        pub worker: Option<SharedText> = "worker",
        /// Claim token of the current worker. A worker that held the task before does not know it.
        pub claim: Option<SharedText> = "claim",
        /// Input of the task, as JSON.
        pub input: SharedText = "input",
        /// Whether the task may be performed again if a crash leaves its outcome unknown.
        pub delivery: DeliveryGuarantee = "delivery",
        /// Timeout of the attempt in milliseconds, from the claim on; `None` means no timeout.
        pub timeout_ms: Option<i64> = "timeout_ms",
        /// Whether this is the last attempt: no retry follows if it fails.
        pub is_last: bool = "is_last",
        /// When the attempt of the current worker times out; never while no worker holds the task
        /// or if it has no timeout. The lease never extends beyond it.
        pub timeout_at: Timestamp = "timeout_at",
    }
}

define_table! {
    /// A function that workers have polled for tasks of.
    "worker_functions", key 4;
    pub struct WorkerFunctionRow {
        /// The tenant that the worker belongs to.
        pub tenant_id: TenantId = "tenant_id",
        /// The project that the worker polls for.
        pub project_id: ProjectId = "project_id",
        /// The environment that the worker polls for.
        pub environment_id: EnvironmentId = "environment_id",
        /// Name of the function.
        pub name: SharedText = "name",
        /// Display name of the worker that polled last.
        pub worker: SharedText = "worker",
        /// When that worker polled, to about a minute.
        pub asked_at: Timestamp = "asked_at",
    }
}
