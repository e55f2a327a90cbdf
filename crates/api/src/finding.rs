//! What a doctor finds in a store.

use std::fmt;

use onward_journal::ExecutionId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::DisplayText;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum FindingClass {
    /// It cannot have come about by itself, or does not go on by itself.
    Wrong,
    /// A person was told of it, and nothing has happened since; or only a person knows.
    Attention,
    /// It goes on by itself as soon as somebody works on it.
    Warning,
}

/// What is the matter; stable, for programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FindingCode {
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
    /// Jobs of a campaign run, or those whom they are to reach, are not there.
    CampaignIncomplete,
    /// Rows of a campaign run say different things of the same.
    CampaignDiffers,
    /// Something of a campaign run is open, and nothing brings it to its end.
    CampaignForgotten,
    /// Only somebody can say what became of some items of a campaign run.
    CampaignInDoubt,
    /// A campaign run is due, and nobody works on it.
    CampaignLate,
    /// A person was told of it, and nothing has happened since.
    Alert,
    /// Work is late because no process is there.
    NobodyWorks,
    /// Work is late although its shard has an owner.
    Late,
}

impl FindingCode {
    /// How bad that is.
    pub const fn class(self) -> FindingClass {
        match self {
            Self::Alert | Self::CampaignInDoubt => FindingClass::Attention,
            Self::NobodyWorks | Self::Late | Self::CampaignLate => FindingClass::Warning,
            _ => FindingClass::Wrong,
        }
    }
}

/// Something that is the matter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DoctorFinding {
    /// The execution; absent when it is about many, or about none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub execution: Option<DisplayText<ExecutionId>>,
    /// The campaign run, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign_run: Option<String>,
    /// What.
    pub code: FindingCode,
    /// How bad it is.
    pub class: FindingClass,
    /// The particulars, for people.
    pub message: String,
}

impl DoctorFinding {
    /// Of the class that its code has.
    pub fn new(execution: Option<ExecutionId>, code: FindingCode, message: String) -> Self {
        Self {
            execution: execution.map(DisplayText),
            campaign_run: None,
            code,
            class: code.class(),
            message,
        }
    }

    /// About a campaign run.
    pub fn for_campaign_run(run: String, code: FindingCode, message: String) -> Self {
        Self {
            campaign_run: Some(run),
            ..Self::new(None, code, message)
        }
    }
}

impl fmt::Display for DoctorFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.execution, &self.campaign_run) {
            (Some(DisplayText(execution)), _) => write!(f, "execution {execution}: ")?,
            (None, Some(run)) => write!(f, "campaign run {run}: ")?,
            (None, None) => write!(f, "store: ")?,
        }
        // The code as programs see it.
        let code = serde_json::to_string(&self.code).unwrap_or_default();
        write!(f, "{}: {}", code.trim_matches('"'), self.message)
    }
}

/// What a doctor says meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DoctorProgress {
    /// Something is the matter.
    Finding(DoctorFinding),
    /// So much was looked at.
    Examined {
        /// Executions.
        executions: u64,
        /// Events of their journals.
        events: u64,
    },
}

/// What a doctor says in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorReport {
    /// Whether nothing is stuck.
    pub ok: bool,
    /// Executions that were looked at.
    pub executions: u64,
    /// Events of their journals.
    pub events: u64,
    /// Messages on their way.
    pub messages: u64,
    /// Campaign runs that were looked at.
    #[serde(default, rename = "campaignRuns")]
    pub campaign_runs: u64,
    /// Items in their outboxes.
    #[serde(default)]
    pub items: u64,
    /// What is wrong.
    pub findings: u64,
    /// What is late.
    pub warnings: u64,
}
