//! The events of a run as producers write them and as the store returns them: contract 2.0.0, in
//! JSON and in memory.

use onward_base::{EnvironmentId, Payload, ProjectId, TenantId, Timestamp};

use crate::{
    AttemptNumber, EmittedAt, ExtraFields, IdempotencyKey, PlanId, PlanVersion, RunEventError,
    RunEventId, RunEventType, RunId, RunSeq, RunSignal, StepId, event_json, excerpt,
};

/// An event as a producer submits it, without the sequence number and the timestamp that the store
/// assigns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunEventWrite {
    /// Random id of the event, chosen by the producer.
    pub event_id: RunEventId,
    /// Type of the event, such as `StepStarted`.
    pub event_type: RunEventType,
    /// Time of the event by the producer's clock.
    pub emitted_at: EmittedAt,
    /// The run that the event belongs to.
    pub run_id: RunId,
    /// The tenant that owns the run.
    pub tenant_id: TenantId,
    /// The project of the tenant.
    pub project_id: ProjectId,
    /// The environment of the project.
    pub environment_id: EnvironmentId,
    /// The plan that the run executes.
    pub plan_id: PlanId,
    /// Version of the plan.
    pub plan_version: PlanVersion,
    /// Engine attempt: the platform's retry count. It is not part of the idempotency key.
    pub engine_attempt_id: AttemptNumber,
    /// Logical attempt: the business retry that a policy or an operator requested.
    pub logical_attempt_id: AttemptNumber,
    /// Idempotency key: a repeated append with the same key is the same append.
    pub idempotency_key: IdempotencyKey,
    /// The step that the event refers to; `None` for events of the whole run.
    pub step_id: Option<StepId>,
    /// Further details of the event: a JSON object.
    pub payload: Option<Payload>,
    /// Fields of the JSON object that this version does not know.
    pub extra: ExtraFields,
}

impl RunEventWrite {
    /// Parses and validates the text of one JSON object.
    pub fn from_json(text: &str) -> Result<Self, RunEventError> {
        event_json::read_event_write(text)
    }

    /// Returns the event as the text of one JSON object.
    pub fn to_json(&self) -> String {
        event_json::to_json_text(self)
    }

    /// Checks that the event is consistent in itself: `stepId` is present if the type requires it
    /// and absent if the type refers to the whole run, the payload is an object, and a signal is
    /// named completely or not at all.
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

/// An event as the store keeps it, with its sequence number and commit time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunEventRecord {
    /// The event as the producer submitted it.
    pub event: RunEventWrite,
    /// Sequence number of the event within its run.
    pub run_seq: RunSeq,
    /// Time of the commit by the store's clock.
    pub persisted_at: Timestamp,
}

impl RunEventRecord {
    /// Parses and validates the text of one JSON object.
    pub fn from_json(text: &str) -> Result<Self, RunEventError> {
        event_json::read_event_record(text)
    }

    /// Returns the record as the text of one JSON object.
    pub fn to_json(&self) -> String {
        event_json::to_json_text(self)
    }
}

/// The store's response to an append.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppendResult {
    /// The event that holds the idempotency key: the appended one, or the one that was stored
    /// first.
    pub event_id: RunEventId,
    /// Sequence number of that event within its run.
    pub run_seq: RunSeq,
    /// Commit time of that event.
    pub persisted_at: Timestamp,
    /// `true` if the key was already stored.
    pub idempotent: bool,
    /// `true` if the append added a row.
    pub persisted: bool,
}

impl AppendResult {
    /// Parses the text of one JSON object; unknown fields are ignored.
    pub fn from_json(text: &str) -> Result<Self, RunEventError> {
        event_json::read_append_result(text)
    }

    /// Returns the result as the text of one JSON object.
    pub fn to_json(&self) -> String {
        event_json::to_json_text(self)
    }
}
