//! Executions, what wakes them, and what is sent to them.

use std::sync::Arc;

use onward_base::{EnvironmentId, ProjectId, SharedText, TenantId, Timestamp};
use onward_journal::{ComponentDigest, ExecutionId};

use crate::{SerialId, ShardId, define_table};

define_table! {
    /// An execution: whose it is, where it runs and what wakes it. All else about it is in its journal.
    "executions", key 1,
    unique ["tenant_id", "project_id", "environment_id", "function", "start_key"],
    index
        BY_WAKE ["shard", "wake_at"]
        BY_AGE ["tenant_id", "project_id", "environment_id", "created_at"];
    pub struct ExecutionRow {
        /// The execution.
        pub execution_id: ExecutionId = "execution_id",
        /// Whose it is.
        pub tenant_id: TenantId = "tenant_id",
        /// In which project.
        pub project_id: ProjectId = "project_id",
        /// In which environment.
        pub environment_id: EnvironmentId = "environment_id",
        /// The slice it belongs to.
        pub shard: ShardId = "shard",
        /// The function it runs.
        pub function: SharedText = "function",
        /// The code it is pinned to.
        pub component_digest: ComponentDigest = "component_digest",
        /// The key that makes starting it idempotent.
        pub start_key: Option<SharedText> = "start_key",
        /// Its state, for people and filters; the journal decides.
        pub state: SharedText = "state",
        /// When its shard looks at it next: at once while it is active, never when it has ended.
        pub wake_at: Timestamp = "wake_at",
        /// When it was started.
        pub created_at: Timestamp = "created_at",
        /// What the engine keeps besides, encoded by it.
        pub body: Arc<[u8]> = "body",
    }
}

define_table! {
    /// A timer that has not fired.
    "timers", key 2,
    index BY_DUE ["shard", "fire_at"];
    pub struct TimerRow {
        /// The execution that waits.
        pub execution_id: ExecutionId = "execution_id",
        /// The number of the promise it waits for.
        pub promise: u32 = "promise",
        /// The slice the execution belongs to.
        pub shard: ShardId = "shard",
        /// When it fires.
        pub fire_at: Timestamp = "fire_at",
    }
}

define_table! {
    /// Something sent to an execution by whoever does not own its shard: a signal, a request to cancel, a result. Its
    /// owner takes it out in the commit that records it, so it is taken once.
    "inbox", key 1,
    unique ["execution_id", "dedup_key"],
    index BY_SHARD ["shard", "message_id"];
    pub struct InboxMessageRow {
        /// Its place in line.
        pub message_id: SerialId = "message_id",
        /// To whom.
        pub execution_id: ExecutionId = "execution_id",
        /// The slice that one belongs to.
        pub shard: ShardId = "shard",
        /// What makes sending it again a repetition.
        pub dedup_key: Option<SharedText> = "dedup_key",
        /// What it is.
        pub kind: SharedText = "kind",
        /// What it says, encoded by the engine.
        pub body: Arc<[u8]> = "body",
        /// When it was sent.
        pub sent_at: Timestamp = "sent_at",
    }
}
