//! Snapshots: the state of a run that its events reduce to. A snapshot is a plain value that can be
//! read, stored and sent; only the reducer computes the next one.

use onward_base::{Payload, SharedText};
use serde::{Deserialize, Serialize};

use crate::json::{raw, text, text_option};
use crate::{
    AttemptNumber, EmittedAt, RunId, RunSeq, RunStatus, RunSteps, RunSubstatus, RunTransitionState,
    StepId, StepStatus,
};

/// State of a run after its events up to [`last_event_seq`](Self::last_event_seq).
///
/// Cloning copies only a list of reference-counted pointers: the steps are shared.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunSnapshot {
    /// The run that the snapshot describes.
    pub run_id: RunId,
    /// Status of the run.
    pub status: RunStatus,
    /// Detail of the status; `None` if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub substatus: Option<RunSubstatus>,
    /// Substatus that the latest run event announced; `substatus` equals it unless the state of the
    /// run or of its steps overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced_substatus: Option<RunSubstatus>,
    /// Sequence number of the last event that was reduced: the watermark.
    pub last_event_seq: RunSeq,
    /// Steps of the run, in the order of their first appearance.
    pub steps: RunSteps,
    /// Artifacts of all steps, filled in when the run completes.
    pub artifacts: Vec<ArtifactRef>,
    /// Time of the event that started the run; `None` before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<EmittedAt>,
    /// Time of the event that ended the run; `None` before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<EmittedAt>,
    /// Duration from start to end in milliseconds; `None` before the end, or if the run never
    /// started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_duration_ms: Option<u64>,
    /// The platform's own reference to the run, as the platform wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "raw")]
    pub engine_run_ref: Option<Payload>,
    /// Number of steps that are failed at this point.
    pub failed_steps: usize,
    /// Error of a failed run, if the event carried one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunFailure>,
    /// Summary of the events that the transition tables do not allow; `None` if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inconsistencies: Option<InconsistencySummary>,
}

impl RunSnapshot {
    /// Creates the snapshot of a run without events.
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

    /// Returns the part of the state that decides which events are legal next.
    pub fn transition_state(&self) -> RunTransitionState {
        let cancelling = self.substatus == Some(RunSubstatus::Cancelling);
        RunTransitionState {
            status: self.status,
            is_cancelling: cancelling,
            has_running_step: self.steps.running_count() > 0,
        }
    }
}

/// State of one step of a run: its latest logical attempt and the earlier ones.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepSnapshot {
    /// The step that this state describes.
    pub step_id: StepId,
    /// The latest logical attempt. In JSON its fields are members of the step itself.
    #[serde(flatten)]
    pub latest: AttemptSnapshot,
    /// The earlier logical attempts, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptSnapshot>,
}

/// State of one logical attempt of a step.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AttemptSnapshot {
    /// Status of the attempt.
    pub status: StepStatus,
    /// Number of the logical attempt.
    pub logical_attempt_id: AttemptNumber,
    /// Number of the engine attempt that the latest event came from.
    pub engine_attempt_id: AttemptNumber,
    /// Time of the first start of the attempt; `None` if it did not start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<EmittedAt>,
    /// Time of the end of the attempt; `None` before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<EmittedAt>,
    /// Artifacts that the attempt produced.
    pub artifacts: Vec<ArtifactRef>,
    /// Error of a failed attempt, if the event carried one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<RunFailure>,
    /// Reason why the step was skipped, if the event carried one.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text_option")]
    pub reason: Option<SharedText>,
}

/// Reference to an artifact that a step produced. Events carry such references, never the artifact
/// itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ArtifactRef {
    /// URI of the artifact.
    #[serde(with = "text")]
    pub uri: SharedText,
    /// Kind of the artifact, such as `log-bundle`.
    #[serde(with = "text")]
    pub kind: SharedText,
    /// SHA-256 of the artifact's bytes, as the producer wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text_option")]
    pub sha256: Option<SharedText>,
    /// Size of the artifact in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    /// Expiry time of the artifact, as the producer wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "text_option")]
    pub expires_at: Option<SharedText>,
}

/// Error of a failed step or run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RunFailure {
    /// Code of the error; default: `UNKNOWN`.
    #[serde(with = "text")]
    pub code: SharedText,
    /// Human-readable message.
    #[serde(with = "text")]
    pub message: SharedText,
    /// Whether a retry can succeed.
    pub retryable: bool,
}

/// Summary of the events in a log that the transition tables do not allow. Such events changed
/// nothing else in the snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InconsistencySummary {
    /// Number of such events.
    pub count: u64,
    /// The first such event.
    pub first: RunInconsistency,
}

/// An event that the transition tables do not allow.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunInconsistency {
    /// Sequence number of the event.
    pub run_seq: RunSeq,
    /// Stable code for alerts.
    pub code: InconsistencyCode,
    /// Human-readable description.
    #[serde(with = "text")]
    pub message: SharedText,
}

/// Kind of inconsistency; the names are stable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum InconsistencyCode {
    /// The transition tables do not allow the event.
    #[serde(rename = "INVALID_TRANSITION")]
    InvalidTransition,
}
