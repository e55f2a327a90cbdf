//! Run events of plans: their format, their idempotency keys, the legal transitions and the
//! projection of events into snapshots.
//!
//! This crate is pure: it uses no clock, no disk and no network. It validates events, computes
//! their idempotency keys and reduces them to snapshots.
//!
//! - [`RunEventWrite`]: an event as a producer submits it. [`RunEventRecord`]: the same event as
//!   the store keeps it. Both are JSON objects that preserve unknown fields.
//! - [`verify_idempotency_key`]: checks that an event carries the idempotency key computed from its
//!   parts. [`IdempotencyKeyParts`]: computes such a key.
//! - [`run_transition`], [`step_transition`]: the state machines of a run and of a step as tables.
//!   [`check_transition`]: checks an event against the tables.
//! - [`reduce_event`]: applies an event to a snapshot and returns the next snapshot.
//!   [`detect_gap`]: detects missing events between two sequence numbers.
//!
//! ```
//! use onward_base::Timestamp;
//! use onward_runs::{
//!     RunEventRecord, RunEventWrite, RunSeq, RunSnapshot, RunStatus, check_transition,
//!     reduce_event,
//! };
//!
//! let event = RunEventWrite::from_json(
//!     r#"{"eventId":"0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a","eventType":"RunStarted",
//!         "emittedAt":"2026-03-01T12:00:00Z",
//!         "runId":"run-prod","tenantId":"acme","projectId":"shop","environmentId":"prod",
//!         "planId":"plan-prod","planVersion":"12","engineAttemptId":1,"logicalAttemptId":1,
//!         "idempotencyKey":"0dfccca97da03007b525cb80ace41d3dafd43a46e58655865690faf940ec87c3"}"#,
//! )?;
//! let snapshot = RunSnapshot::new(event.run_id.clone());
//! assert!(check_transition(&snapshot, &event).is_ok());
//!
//! let record = RunEventRecord {
//!     event,
//!     run_seq: RunSeq::ZERO.next_seq(),
//!     persisted_at: Timestamp::EPOCH,
//! };
//! let snapshot = reduce_event(snapshot, &record);
//! assert_eq!(snapshot.status, RunStatus::Running);
//! assert!(check_transition(&snapshot, &record.event).is_err());
//! # Ok::<(), onward_runs::RunEventError>(())
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
