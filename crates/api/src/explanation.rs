//! Why an execution does not go on, as told.

use onward_base::Timestamp;
use onward_journal::ExecutionId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::waits::ExecutionWaits;
use crate::{DisplayText, RawJson};

/// What an execution waits for, and what happens next.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExecutionExplanation {
    /// The execution.
    #[schema(value_type = String)]
    pub execution: DisplayText<ExecutionId>,
    /// What it runs.
    pub function: String,
    /// Its state.
    pub state: String,
    /// When something was recorded last.
    #[schema(value_type = String)]
    pub since: DisplayText<Timestamp>,
    /// What it waits for.
    #[serde(flatten)]
    pub waits: ExecutionWaits,
    /// What it ended with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<ExecutionEndView>,
    /// Who works on it.
    pub owner: ExecutionOwner,
    /// What is on its way to it.
    pub on_its_way: Vec<PendingMessage>,
    /// What people should know about it.
    pub alerts: Vec<RaisedAlert>,
    /// The execution that called it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<RelatedExecution>,
    /// What happens next, in words.
    pub next: Vec<String>,
    /// The time of the store.
    #[schema(value_type = String)]
    pub now: DisplayText<Timestamp>,
}

/// What an execution ended with.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum ExecutionEndView {
    /// A result.
    Result(RawJson),
    /// An error.
    Error(String),
    /// Cancellation, and why.
    Cancelled(String),
    /// Another took its place.
    ContinuedAs(RelatedExecution),
}

/// Another execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelatedExecution {
    /// Which.
    #[schema(value_type = String)]
    pub execution: DisplayText<ExecutionId>,
    /// Its state; absent when it is not there.
    pub state: Option<String>,
}

/// Who works on an execution.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "is", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ExecutionOwner {
    /// A process.
    Process {
        /// Its name.
        name: String,
        /// When others may take over, unless it goes on.
        #[schema(value_type = String)]
        until: DisplayText<Timestamp>,
    },
    /// Nobody any more: the lease of this process has run out.
    Gone {
        /// Its name.
        name: String,
        /// When its lease ran out.
        #[schema(value_type = String)]
        since: DisplayText<Timestamp>,
    },
    /// Nobody.
    Nobody,
}

/// A message that its execution has not taken yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingMessage {
    /// What it is, in words.
    pub what: String,
    /// When it was sent.
    #[schema(value_type = String)]
    pub sent_at: DisplayText<Timestamp>,
}

/// An alert.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RaisedAlert {
    /// What kind of thing.
    pub code: String,
    /// What happened.
    pub message: String,
    /// When.
    #[schema(value_type = String)]
    pub raised_at: DisplayText<Timestamp>,
}
