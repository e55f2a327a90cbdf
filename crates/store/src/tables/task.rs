//! Tasks that workers perform, and the names that workers have asked for.

use onward_base::{EnvironmentId, ProjectId, SharedText, TenantId, Timestamp};
use onward_journal::ExecutionId;

use crate::{ShardId, define_table};

define_table! {
    /// An attempt that a worker performs. It is there from the commit that starts the attempt to the one that sends its end, or
    /// that gives it up.
    "tasks", key 3,
    index
        BY_FUNCTION ["tenant_id", "project_id", "environment_id", "function", "state", "queued_at"]
        BY_LEASE ["leased_until"];
    pub struct TaskRow {
        /// The execution that wants it.
        pub execution_id: ExecutionId = "execution_id",
        /// The number of the promise it is for.
        pub promise: u32 = "promise",
        /// Which attempt.
        pub attempt: u32 = "attempt",
        /// The slice the execution belongs to.
        pub shard: ShardId = "shard",
        /// Whose it is.
        pub tenant_id: TenantId = "tenant_id",
        /// In which project.
        pub project_id: ProjectId = "project_id",
        /// In which environment.
        pub environment_id: EnvironmentId = "environment_id",
        /// The function.
        pub function: SharedText = "function",
        /// `queued` or `claimed`.
        pub state: SharedText = "state",
        /// Since when it waits for a worker, or waited.
        pub queued_at: Timestamp = "queued_at",
        /// When it is taken from its worker, unless that one asks for more time; never while it has none.
        pub leased_until: Timestamp = "leased_until",
        /// How much time its worker has each time, in milliseconds.
        pub lease_ms: u32 = "lease_ms",
        /// Its worker, for people.
        pub worker: Option<SharedText> = "worker",
        /// What its worker names it by: whoever had it before does not know that.
        pub claim: Option<SharedText> = "claim",
        /// What it is called with, as JSON.
        pub input: SharedText = "input",
        /// `at_least_once` or `at_most_once`.
        pub delivery: SharedText = "delivery",
        /// How long it may take, in milliseconds.
        pub timeout_ms: Option<i64> = "timeout_ms",
        /// Whether no other attempt follows if this one fails.
        pub is_last: bool = "is_last",
    }
}

define_table! {
    /// A name that workers have asked for tasks of.
    "worker_functions", key 4;
    pub struct WorkerFunctionRow {
        /// Whose it is.
        pub tenant_id: TenantId = "tenant_id",
        /// In which project.
        pub project_id: ProjectId = "project_id",
        /// In which environment.
        pub environment_id: EnvironmentId = "environment_id",
        /// The name.
        pub name: SharedText = "name",
        /// Who asked last, for people.
        pub worker: SharedText = "worker",
        /// When that was, to the minute or so.
        pub asked_at: Timestamp = "asked_at",
    }
}
