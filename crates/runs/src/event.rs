//! The events of a run as producers write them and as the store hands them back: contract 2.0.0, in JSON and in memory.

use onward_base::{EnvironmentId, Payload, ProjectId, TenantId, Timestamp};

use crate::{
    AttemptNumber, EmittedAt, ExtraFields, IdempotencyKey, PlanId, PlanVersion, RunEventError,
    RunEventId, RunEventType, RunId, RunSeq, RunSignal, StepId, event_json, excerpt,
};

/// An event as a producer hands it in: without a place in the run and without the store's time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunEventWrite {
    /// The event itself; random, chosen by the producer.
    pub event_id: RunEventId,
    /// What happened.
    pub event_type: RunEventType,
    /// When, by the producer's clock.
    pub emitted_at: EmittedAt,
    /// To which run.
    pub run_id: RunId,
    /// Whose run it is.
    pub tenant_id: TenantId,
    /// The tenant's project.
    pub project_id: ProjectId,
    /// The project's environment.
    pub environment_id: EnvironmentId,
    /// The plan that the run executes.
    pub plan_id: PlanId,
    /// The plan's version.
    pub plan_version: PlanVersion,
    /// Which try of the platform's it is; no part of the idempotency key.
    pub engine_attempt_id: AttemptNumber,
    /// Which try of the business's it is.
    pub logical_attempt_id: AttemptNumber,
    /// What makes a repeated append the same append.
    pub idempotency_key: IdempotencyKey,
    /// The step that it is about, if it is about one.
    pub step_id: Option<StepId>,
    /// What else there is to say: a JSON object.
    pub payload: Option<Payload>,
    /// Fields that are not known here.
    pub extra: ExtraFields,
}

impl RunEventWrite {
    /// Reads and checks the text of one JSON object.
    pub fn from_json(text: &str) -> Result<Self, RunEventError> {
        event_json::read_event_write(text)
    }

    /// The event as the text of one JSON object.
    pub fn to_json(&self) -> String {
        event_json::to_json_text(self)
    }

    /// Whether the event agrees with itself: a step where its type needs one and none where it is about the whole run,
    /// an object for a payload, and a signal that is named in full or not at all.
    pub fn check_shape(&self) -> Result<(), RunEventError> {
        match &self.step_id {
            None if self.event_type.starts_with("Step") => {
                return Err(RunEventError::StepMissing(self.event_type.clone()));
            }
            Some(_) if self.event_type.starts_with("Run") => {
                return Err(RunEventError::StepUnexpected(self.event_type.clone()));
            }
            _ => {}
        }
        if let Some(payload) = self
            .payload
            .as_ref()
            .filter(|payload| !payload.as_str().starts_with('{'))
        {
            return Err(RunEventError::PayloadNotObject(excerpt::quote_excerpt(
                payload.as_str(),
            )));
        }
        RunSignal::from_event(self).map(|_| ())
    }
}

/// An event as the store keeps it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunEventRecord {
    /// What the producer handed in.
    pub event: RunEventWrite,
    /// Its place in the run.
    pub run_seq: RunSeq,
    /// When it was committed, by the store's clock.
    pub persisted_at: Timestamp,
}

impl RunEventRecord {
    /// Reads and checks the text of one JSON object.
    pub fn from_json(text: &str) -> Result<Self, RunEventError> {
        event_json::read_event_record(text)
    }

    /// The record as the text of one JSON object.
    pub fn to_json(&self) -> String {
        event_json::to_json_text(self)
    }
}

/// What the store answers to an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendResult {
    /// The event that holds the idempotency key: this one, or the one that came first.
    pub event_id: RunEventId,
    /// Its place in the run.
    pub run_seq: RunSeq,
    /// When it was committed.
    pub persisted_at: Timestamp,
    /// Whether the key was there already.
    pub idempotent: bool,
    /// Whether a row was added.
    pub persisted: bool,
}

impl AppendResult {
    /// Reads the text of one JSON object; unknown fields are passed over.
    pub fn from_json(text: &str) -> Result<Self, RunEventError> {
        event_json::read_append_result(text)
    }

    /// The result as the text of one JSON object.
    pub fn to_json(&self) -> String {
        event_json::to_json_text(self)
    }
}
