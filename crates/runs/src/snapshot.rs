//! What the events of a run amount to. A snapshot is a value: it is read, kept and sent, and only the reducer makes the next.

use onward_base::{Payload, SharedText};
use serde::{Deserialize, Serialize};

use crate::json::{raw, text, text_option};
use crate::{
    AttemptNumber, EmittedAt, RunId, RunSeq, RunStatus, RunSteps, RunSubstatus, RunTransitionState,
    StepId, StepStatus,
};

/// A run as its events up to [`last_event_seq`](Self::last_event_seq) leave it.
///
/// A clone copies a list of counters: the steps are shared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSnapshot {
    /// Which run it is.
    pub run_id: RunId,
    /// Where it is in its life.
    pub status: RunStatus,
    /// What it is at, within its status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substatus: Option<RunSubstatus>,
    /// What the latest run event said it is at; `substatus` says so too unless the steps say something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced_substatus: Option<RunSubstatus>,
    /// The last event that was taken in.
    pub last_event_seq: RunSeq,
    /// Its steps, in the order in which they first appeared.
    pub steps: RunSteps,
    /// What its steps made, once it is completed.
    pub artifacts: Vec<ArtifactRef>,
    /// When it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<EmittedAt>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<EmittedAt>,
    /// How long it took, from start to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_duration_ms: Option<u64>,
    /// How the platform calls it, in the platform's own words.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "raw")]
    pub engine_run_ref: Option<Payload>,
    /// How many steps are failed now.
    pub failed_steps: usize,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunFailure>,
    /// The events that should not be in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inconsistencies: Option<InconsistencySummary>,
}

impl RunSnapshot {
    /// A run that nothing happened to yet.
    pub fn new(run_id: RunId) -> Self {
        Self {
            run_id,
            status: RunStatus::Pending,
            substatus: None,
            announced_substatus: None,
            last_event_seq: RunSeq::ZERO,
            steps: RunSteps::default(),
            artifacts: Vec::new(),
            started_at: None,
            completed_at: None,
            total_duration_ms: None,
            engine_run_ref: None,
            failed_steps: 0,
            error: None,
            inconsistencies: None,
        }
    }

    /// What decides what may happen to it next.
    pub fn transition_state(&self) -> RunTransitionState {
        let cancelling = self.substatus == Some(RunSubstatus::Cancelling);
        RunTransitionState {
            status: self.status,
            is_cancelling: cancelling,
            has_running_step: self.steps.running_count() > 0,
        }
    }
}

/// One step of a run: its latest logical attempt, and those before.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepSnapshot {
    /// Which step it is.
    pub step_id: StepId,
    /// Its latest logical attempt. In JSON these are members of the step itself.
    #[serde(flatten)]
    pub latest: AttemptSnapshot,
    /// The logical attempts before, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptSnapshot>,
}

/// One logical attempt of a step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptSnapshot {
    /// Where it is in its life.
    pub status: StepStatus,
    /// Which logical attempt it is.
    pub logical_attempt_id: AttemptNumber,
    /// The platform's attempt that the latest event came from.
    pub engine_attempt_id: AttemptNumber,
    /// When it first started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<EmittedAt>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<EmittedAt>,
    /// What it made.
    pub artifacts: Vec<ArtifactRef>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunFailure>,
    /// Why it was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text_option")]
    pub reason: Option<SharedText>,
}

/// Where something lies that a step made. Events carry such pointers, never the thing itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactRef {
    /// Where it lies.
    #[serde(with = "text")]
    pub uri: SharedText,
    /// What it is, such as `log-bundle`.
    #[serde(with = "text")]
    pub kind: SharedText,
    /// The hash of its bytes.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text_option")]
    pub sha256: Option<SharedText>,
    /// How large it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// How long it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text_option")]
    pub expires_at: Option<SharedText>,
}

/// Why a step or a run failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunFailure {
    /// What kind of failure it is.
    #[serde(with = "text")]
    pub code: SharedText,
    /// What happened, for people.
    #[serde(with = "text")]
    pub message: SharedText,
    /// Whether trying again could help.
    pub retryable: bool,
}

/// The events of a log that no table allows. They changed nothing else.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InconsistencySummary {
    /// How many there are.
    pub count: u64,
    /// The first of them.
    pub first: RunInconsistency,
}

/// An event that should not be in the log.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunInconsistency {
    /// Where it stands.
    pub run_seq: RunSeq,
    /// What it is called in alerts.
    pub code: InconsistencyCode,
    /// What it is, for people.
    #[serde(with = "text")]
    pub message: SharedText,
}

/// What kind of inconsistency it is; the name is stable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InconsistencyCode {
    /// The transition tables do not allow the event.
    #[serde(rename = "INVALID_TRANSITION")]
    InvalidTransition,
}
