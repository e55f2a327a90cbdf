//! Tables of executions and their inbox messages.

use std::sync::Arc;

use onward_base::{EnvironmentId, ProjectId, SharedText, TenantId, Timestamp, text_enum};
use onward_journal::{ComponentDigest, ExecutionId, ExecutionState};

use crate::{SerialId, ShardId, define_table};

define_table! {
    /// An execution: its owner, its shard and its next wake-up. Everything else about it is in its
    /// journal.
    "executions", key 1,
    unique ["tenant_id", "project_id", "environment_id", "function", "start_key"],
    index
        BY_WAKE ["shard", "wake_at"]
        BY_AGE ["tenant_id", "project_id", "environment_id", "created_at"]
        BY_STATE ["tenant_id", "project_id", "environment_id", "state", "created_at"]
        BY_FUNCTION ["tenant_id", "project_id", "environment_id", "function", "state", "created_at"];
    pub struct ExecutionRow {
        /// Id of the execution.
        pub execution_id: ExecutionId = "execution_id",
        /// The tenant that owns the execution.
        pub tenant_id: TenantId = "tenant_id",
        /// The project of the execution.
        pub project_id: ProjectId = "project_id",
        /// The environment of the execution.
        pub environment_id: EnvironmentId = "environment_id",
        /// The shard that the execution belongs to.
        pub shard: ShardId = "shard",
        /// Name of the function that the execution runs.
        pub function: SharedText = "function",
        /// The component that the execution is pinned to.
        pub component_digest: ComponentDigest = "component_digest",
        /// Idempotency key of the start request; `None` if the caller gave none.
        pub start_key: Option<SharedText> = "start_key",
        /// State of the execution, for display and filters; the journal is authoritative.
        pub state: ExecutionState = "state",
        /// When the shard owner next processes the execution: immediately while it is active, never
        /// after it has ended.
        pub wake_at: Timestamp = "wake_at",
        /// When the execution was started.
        pub created_at: Timestamp = "created_at",
        /// Additional data of the engine, in its own encoding.
        pub body: Arc<[u8]> = "body",
    }
}

text_enum! {
    /// What an inbox message asks for or reports.
    InboxMessageKind {
        /// A signal for the execution.
        Signal = "signal",
        /// A request to cancel the execution.
        Cancel = "cancel",
        /// The result of a child or of a worker task.
        Result = "result",
    }
}

define_table! {
    /// A message to an execution from a sender that does not own its shard: a signal, a
    /// cancellation request or a result. The shard owner deletes it in the commit that records it,
    /// so each message is processed exactly once.
    "inbox", key 1,
    unique ["execution_id", "dedup_key"],
    index
        BY_SHARD ["shard", "message_id"]
        BY_EXECUTION ["execution_id", "shard"];
    pub struct InboxMessageRow {
        /// Position in the inbox, assigned by the store.
        pub message_id: SerialId = "message_id",
        /// The execution that receives the message.
        pub execution_id: ExecutionId = "execution_id",
        /// The shard that the execution belongs to.
        pub shard: ShardId = "shard",
        /// Idempotency key of the message, unique per execution; `None` disables deduplication.
        pub dedup_key: Option<SharedText> = "dedup_key",
        /// The kind of message.
        pub kind: InboxMessageKind = "kind",
        /// Content of the message, encoded by the engine.
        pub body: Arc<[u8]> = "body",
        /// When the message was sent.
        pub sent_at: Timestamp = "sent_at",
    }
}
