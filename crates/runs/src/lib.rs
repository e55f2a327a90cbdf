//! Runs of plans: what happened to them, what makes an event the same event, and what events amount to.
//!
//! This crate is pure. It knows no clock, no disk and no network: it is handed events and says whether they are whole,
//! which key they must carry and which snapshot they reduce to.
//!
//! - [`RunEventWrite`]: an event as a producer hands it in. [`RunEventRecord`]: the same as the store keeps it. Both are JSON
//!   objects in which everything unknown survives.
//! - [`verify`]: whether an event carries the idempotency key that its parts make. [`KeyParts`]: how such a key is made.
//! - [`run_transition`], [`step_transition`]: the life of a run and of a step as tables. [`legal`]: the tables asked about an
//!   event.
//! - [`reduce()`]: a snapshot and an event to the next snapshot. [`detect_gaps`]: whether an event in between is missing.
//!
//! ```
//! use onward_base::Timestamp;
//! use onward_runs::{RunEventRecord, RunEventWrite, RunSeq, RunSnapshot, RunStatus, legal, reduce};
//!
//! let event = RunEventWrite::from_json(
//!     r#"{"eventId":"0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a","eventType":"RunStarted","emittedAt":"2026-03-01T12:00:00Z",
//!         "runId":"run-prod","tenantId":"acme","projectId":"shop","environmentId":"prod","planId":"plan-prod",
//!         "planVersion":"12","engineAttemptId":1,"logicalAttemptId":1,
//!         "idempotencyKey":"0dfccca97da03007b525cb80ace41d3dafd43a46e58655865690faf940ec87c3"}"#,
//! )?;
//! let snapshot = RunSnapshot::new(event.run_id.clone());
//! assert!(legal(&snapshot, &event).is_ok());
//!
//! let record = RunEventRecord { event, run_seq: RunSeq::ZERO.next(), persisted_at: Timestamp::EPOCH };
//! let snapshot = reduce(snapshot, &record);
//! assert_eq!(snapshot.status, RunStatus::Running);
//! assert!(legal(&snapshot, &record.event).is_err());
//! # Ok::<(), onward_runs::EventError>(())
//! ```

mod counter;
mod emitted_at;
mod error;
mod event;
mod event_json;
mod event_kind;
mod excerpt;
mod extra;
mod id;
mod json;
mod key;
mod payload_detail;
mod reduce;
mod signal;
mod snapshot;
mod status;
mod steps;
mod transition;
mod transition_check;

pub use counter::{AttemptNumber, RunSeq};
pub use emitted_at::EmittedAt;
pub use error::RunEventError;
pub use event::{AppendResult, RunEventRecord, RunEventWrite};
pub use event_kind::{RunAction, RunEventKind, SignalDecision, StepAction};
pub use extra::ExtraFields;
pub use id::{
    IdempotencyKey, PlanId, PlanVersion, RunEventId, RunEventType, RunId, SignalId, SignalType,
    StepId,
};
pub use key::{
    AcceptedKeyForms, IdempotencyKeyForm, IdempotencyKeyParts, KeyMismatch, KeyPreimage,
    verify_idempotency_key,
};
pub use reduce::{RunEventGap, detect_gap, project_from_snapshot, project_run, reduce_event};
pub use signal::RunSignal;
pub use snapshot::{
    ArtifactRef, AttemptSnapshot, InconsistencyCode, InconsistencySummary, RunFailure,
    RunInconsistency, RunSnapshot, StepSnapshot,
};
pub use status::{RunStatus, RunSubstatus, StepStatus};
pub use steps::RunSteps;
pub use transition::{
    AttemptRelation, RunTransitionState, run_allows_step, run_transition, step_transition,
};
pub use transition_check::{InvalidTransition, check_transition};
