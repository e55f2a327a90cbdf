//! Wire types of `onward why`: the explanation why an execution makes no progress.

use onward_base::Timestamp;
use onward_journal::ExecutionId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::waits::ExecutionWaits;
use crate::{DisplayText, RawJson};

/// What an execution waits for, which process owns it, and what happens next.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionExplanation {
    /// The id of the execution.
    #[schema(value_type = String)]
    pub execution: DisplayText<ExecutionId>,
    /// The name of the workflow function that it runs.
    pub function: String,
    /// The state of the execution, such as `Running` or `Blocked`.
    pub state: String,
    /// When the last event was recorded in its journal (RFC 3339).
    #[schema(value_type = String)]
    pub since: DisplayText<Timestamp>,
    /// The operations that the execution waits for.
    #[serde(flatten)]
    pub waits: ExecutionWaits,
    /// How the execution ended; absent while it has not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<ExecutionOutcomeView>,
    /// The process that owns the execution's shard, if any.
    pub owner: ExecutionOwner,
    /// Messages that were sent to the execution and that it has not received yet.
    pub pending_messages: Vec<PendingMessage>,
    /// Alerts that were raised about the execution.
    pub alerts: Vec<RaisedAlert>,
    /// The parent execution; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<RelatedExecution>,
    /// What happens next, as sentences for people.
    pub next: Vec<String>,
    /// The current time of the store (RFC 3339).
    #[schema(value_type = String)]
    pub now: DisplayText<Timestamp>,
}

/// How an execution ended.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExecutionOutcomeView {
    /// It completed with this result.
    Result(RawJson),
    /// It failed with this error.
    Error(String),
    /// It was cancelled for this reason.
    Cancelled(String),
    /// It continued as this execution.
    ContinuedAs(RelatedExecution),
}

/// Another execution that is related to this one: its parent or its successor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelatedExecution {
    /// The id of the related execution.
    #[schema(value_type = String)]
    pub execution: DisplayText<ExecutionId>,
    /// The state of the related execution; absent if it does not exist in the store.
    pub state: Option<String>,
}

/// Which process owns the shard of an execution, and so works on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "state", rename_all = "camelCase")]
pub enum ExecutionOwner {
    /// A process holds the lease.
    #[serde(rename_all = "camelCase")]
    Live {
        /// The name of the process.
        name: String,
        /// When the lease expires and another process may take over, unless the owner renews it
        /// (RFC 3339).
        #[schema(value_type = String)]
        leased_until: DisplayText<Timestamp>,
    },
    /// No process holds the lease any more: the lease of this process has expired.
    #[serde(rename_all = "camelCase")]
    Expired {
        /// The name of the process that held the lease last.
        name: String,
        /// When its lease expired (RFC 3339).
        #[schema(value_type = String)]
        expired_at: DisplayText<Timestamp>,
    },
    /// No process holds the lease: there was none, or the last owner released it.
    Unowned,
}

/// A message that the execution has not received yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingMessage {
    /// A description of the message, for people.
    pub description: String,
    /// When the message was sent (RFC 3339).
    #[schema(value_type = String)]
    pub sent_at: DisplayText<Timestamp>,
}

/// An alert that was raised about an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RaisedAlert {
    /// The code of the alert; stable, so that programs can match on it.
    pub code: String,
    /// What happened, for people.
    pub message: String,
    /// When the alert was raised (RFC 3339).
    #[schema(value_type = String)]
    pub raised_at: DisplayText<Timestamp>,
}
