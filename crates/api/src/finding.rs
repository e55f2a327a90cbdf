//! What a doctor finds in a store.

use std::fmt;

use onward_journal::ExecutionId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::Shown;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum Class {
    /// It cannot have come about by itself, or does not go on by itself.
    Wrong,
    /// A person was told of it, and nothing has happened since.
    Attention,
    /// It goes on by itself as soon as somebody works on it.
    Warning,
}

/// What is the matter; stable, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Code {
    /// Nothing wakes the execution when it is due.
    WakeMissing,
    /// It is woken before anything is due.
    WakeEarly,
    /// It is over, and is woken all the same.
    WakeAfterEnd,
    /// The row shows another state than the journal has.
    StateDiffers,
    /// The journal breaks a rule.
    JournalInvalid,
    /// The journal cannot be read.
    JournalUnreadable,
    /// The code is not in the store.
    ComponentMissing,
    /// The row names other code than the journal.
    ComponentDiffers,
    /// It waits for a signal that is there.
    SignalNotTaken,
    /// A child that it waits for is not there.
    ChildMissing,
    /// A child that it waits for is over, and its result is nowhere.
    ChildResultLost,
    /// A task that a worker is to perform is not there, and its result is nowhere.
    TaskMissing,
    /// A task that nobody waits for.
    TaskOrphan,
    /// The execution that should have taken its place is not there.
    SuccessorMissing,
    /// It is in a slice that it does not belong to.
    ShardWrong,
    /// A message to an execution that is not there.
    MessageOrphan,
    /// A message that cannot be read.
    MessageUnreadable,
    /// A message in a slice that its execution is not in.
    MessageShard,
    /// Work is late because nobody takes its shard, although processes are there.
    ShardUnattended,
    /// A person was told of it, and nothing has happened since.
    Alert,
    /// Work is late because no process is there.
    NobodyWorks,
    /// Work is late although its shard has an owner.
    Late,
}

impl Code {
    /// How bad that is.
    pub const fn class(self) -> Class {
        match self {
            Self::Alert => Class::Attention,
            Self::NobodyWorks | Self::Late => Class::Warning,
            _ => Class::Wrong,
        }
    }
}

/// Something that is the matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The execution; absent when it is about many.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub execution: Option<Shown<ExecutionId>>,
    /// What.
    pub code: Code,
    /// How bad it is.
    pub class: Class,
    /// The particulars, for people.
    pub message: String,
}

impl Finding {
    /// Of the class that its code has.
    pub fn new(execution: Option<ExecutionId>, code: Code, message: String) -> Self {
        Self { execution: execution.map(Shown), code, class: code.class(), message }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.execution {
            Some(Shown(execution)) => write!(f, "execution {execution}: ")?,
            None => write!(f, "store: ")?,
        }
        // The code as programs see it.
        let code = serde_json::to_string(&self.code).unwrap_or_default();
        write!(f, "{}: {}", code.trim_matches('"'), self.message)
    }
}

/// What a doctor says meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// Something is the matter.
    Found(Finding),
    /// So much was looked at.
    Looked {
        /// Executions.
        executions: u64,
        /// Events of their journals.
        events: u64,
    },
}

/// What a doctor says in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Verdict {
    /// Whether nothing is stuck.
    pub ok: bool,
    /// Executions that were looked at.
    pub executions: u64,
    /// Events of their journals.
    pub events: u64,
    /// Messages on their way.
    pub messages: u64,
    /// What is wrong.
    pub findings: u64,
    /// What is late.
    pub warnings: u64,
}
