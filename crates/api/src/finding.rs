//! Wire types of `onward doctor`: the findings of a check of the store for stuck or damaged work.

use std::fmt;

use onward_journal::ExecutionId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::DisplayText;

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub enum FindingClass {
    /// An error: correct operation cannot have caused this, or the work does not continue without
    /// intervention.
    Error,
    /// An operator must act: an alert was raised and nothing has happened since, or only an
    /// operator can know the outcome.
    Attention,
    /// The work continues without intervention as soon as a process works on it.
    Warning,
}

/// The kind of a finding; stable, so that programs can match on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FindingCode {
    /// The execution has no wake-up at the time at which it is due.
    WakeMissing,
    /// The execution has a wake-up before anything is due.
    WakeEarly,
    /// The execution has ended and still has a wake-up.
    WakeAfterEnd,
    /// The execution's row has another state than its journal.
    StateDiffers,
    /// The journal violates an invariant.
    JournalInvalid,
    /// The journal cannot be decoded.
    JournalUnreadable,
    /// The component of the execution is not in the store.
    ComponentMissing,
    /// The execution's row names another component than its journal.
    ComponentDiffers,
    /// The execution waits for a signal that was already delivered.
    SignalNotConsumed,
    /// A child that the execution waits for does not exist.
    ChildMissing,
    /// A child that the execution waits for has ended, and its result is neither recorded nor sent.
    ChildResultLost,
    /// A worker is to perform a task, and neither the task nor its result exists.
    TaskMissing,
    /// A task exists that no execution waits for.
    TaskOrphan,
    /// The execution that this one continued as does not exist.
    SuccessorMissing,
    /// The execution is in a shard that it does not belong to.
    ShardWrong,
    /// A message is addressed to an execution that does not exist.
    MessageOrphan,
    /// A message cannot be decoded.
    MessageUnreadable,
    /// A message is in another shard than its execution.
    MessageShard,
    /// Work is overdue because no process owns its shard, although processes are running.
    ShardUnowned,
    /// Jobs of a campaign run, or the recipients of its jobs, are missing.
    CampaignIncomplete,
    /// Rows of a campaign run contradict each other.
    CampaignInconsistent,
    /// Work of a campaign run is unfinished, and nothing is scheduled to finish it.
    CampaignStuck,
    /// Items of a campaign run are in doubt, and only an operator can settle them.
    CampaignInDoubt,
    /// A campaign run is due, and no dispatcher works on it.
    CampaignOverdue,
    /// An alert was raised about the execution, and nothing has happened since.
    Alert,
    /// Work is overdue because no process works on the store.
    NoLiveNode,
    /// Work is overdue although a process owns its shard.
    Overdue,
}

impl FindingCode {
    /// The severity of findings of this kind.
    pub const fn class(self) -> FindingClass {
        match self {
            Self::Alert | Self::CampaignInDoubt => FindingClass::Attention,
            Self::NoLiveNode | Self::Overdue | Self::CampaignOverdue => FindingClass::Warning,
            _ => FindingClass::Error,
        }
    }
}

/// One finding of a check of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct DoctorFinding {
    /// The execution with the problem; absent if the finding is about many executions or about
    /// none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub execution: Option<DisplayText<ExecutionId>>,
    /// The campaign run with the problem; absent if the finding is not about a campaign run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub campaign_run: Option<String>,
    /// The kind of the finding.
    pub code: FindingCode,
    /// The severity of the finding.
    pub class: FindingClass,
    /// Details of the finding, for people.
    pub message: String,
}

impl DoctorFinding {
    /// Creates a finding with the severity of its code.
    pub fn new(execution: Option<ExecutionId>, code: FindingCode, message: String) -> Self {
        Self {
            execution: execution.map(DisplayText),
            campaign_run: None,
            code,
            class: code.class(),
            message,
        }
    }

    /// Creates a finding about a campaign run.
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
        // The code is printed as it appears in JSON.
        let code = serde_json::to_string(&self.code).unwrap_or_default();
        write!(f, "{}: {}", code.trim_matches('"'), self.message)
    }
}

/// Progress of a check of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DoctorProgress {
    /// A problem was found.
    Finding(DoctorFinding),
    /// What was examined so far.
    Examined {
        /// Number of executions examined so far.
        executions: u64,
        /// Number of events in the journals of these executions.
        events: u64,
    },
}

/// The final result of a check of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DoctorReport {
    /// Whether no work is stuck.
    pub ok: bool,
    /// Number of executions that were examined.
    pub executions: u64,
    /// Number of events in the journals of these executions.
    pub events: u64,
    /// Number of messages that their executions have not received yet.
    pub messages: u64,
    /// Number of campaign runs that were examined.
    #[serde(default, rename = "campaignRuns")]
    pub campaign_runs: u64,
    /// Number of items in the outboxes of these campaign runs.
    #[serde(default)]
    pub items: u64,
    /// Number of findings that need intervention.
    pub findings: u64,
    /// Number of findings of class `warning`: work that is overdue.
    pub warnings: u64,
}
