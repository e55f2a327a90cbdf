//! Idempotency keys: the parts of an event that make a repeated append the same append.
//!
//! A key is the SHA-256 of these parts, joined by `|`. No part can contain a `|`, so two different
//! lists of parts never join to the same text. The forms differ in the number of parts; the names
//! that would make two lists of one form ambiguous are rejected as step ids.

use std::fmt::{self, Display, Write};

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::{
    AttemptNumber, IdempotencyKey, PlanId, PlanVersion, RunEventError, RunEventKind, RunEventType,
    RunEventWrite, RunId, RunSignal, StepId,
};

/// Layout of the parts that a key is computed from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IdempotencyKeyForm {
    /// `runId|stepId or RUN|logicalAttemptId|eventType|planId|planVersion`.
    V2,
    /// `runId|SIGNAL|signalType|signalId|logicalAttemptId|planId|planVersion`, followed by the step
    /// id if there is one, and by the event type if the event is the decision about the signal.
    /// Without the signal, the second pause of a run would have the key of the first; without the
    /// type, a decision would have the key of its effect.
    Signal,
    /// `runId|stepId or RUN|logicalAttemptId|eventType|planVersion`: used only by logs of version
    /// 1.
    V1,
}

impl Display for IdempotencyKeyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::V2 => "v2",
            Self::Signal => "signal",
            Self::V1 => "v1",
        })
    }
}

/// The parts of an event that a key is computed from. All are ids, so none can contain the
/// separator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdempotencyKeyParts<'a> {
    /// The run that the event belongs to.
    pub run_id: &'a RunId,
    /// The step that the event refers to; `None` for events of the whole run.
    pub step_id: Option<&'a StepId>,
    /// Logical attempt: the business retry that a policy or an operator requested.
    pub logical_attempt_id: AttemptNumber,
    /// Type of the event.
    pub event_type: &'a RunEventType,
    /// The plan that the run executes.
    pub plan_id: &'a PlanId,
    /// Version of the plan.
    pub plan_version: &'a PlanVersion,
    /// The signal that caused the event; `None` if no signal did.
    pub signal: Option<&'a RunSignal>,
}

impl<'a> IdempotencyKeyParts<'a> {
    /// Takes the parts from `event`; `signal` is the signal that caused it.
    pub const fn from_event(event: &'a RunEventWrite, signal: Option<&'a RunSignal>) -> Self {
        Self {
            run_id: &event.run_id,
            step_id: event.step_id.as_ref(),
            logical_attempt_id: event.logical_attempt_id,
            event_type: &event.event_type,
            plan_id: &event.plan_id,
            plan_version: &event.plan_version,
            signal,
        }
    }

    /// Returns the preimage in the current form, the one that producers write.
    pub const fn current_preimage(self) -> KeyPreimage<'a> {
        let form = if self.signal.is_some() {
            IdempotencyKeyForm::Signal
        } else {
            IdempotencyKeyForm::V2
        };
        KeyPreimage { form, parts: self }
    }

    /// Returns the preimage in version 1, which had no signals.
    pub const fn preimage_v1(self) -> KeyPreimage<'a> {
        KeyPreimage {
            form: IdempotencyKeyForm::V1,
            parts: self,
        }
    }
}

/// The text whose hash is the key; [`Display`] prints it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyPreimage<'a> {
    form: IdempotencyKeyForm,
    parts: IdempotencyKeyParts<'a>,
}

impl KeyPreimage<'_> {
    /// Returns the layout of this preimage.
    pub const fn key_form(&self) -> IdempotencyKeyForm {
        self.form
    }

    /// Computes the SHA-256 of the preimage without allocating.
    pub fn compute_key(&self) -> IdempotencyKey {
        let mut hash = KeyHasher(Sha256::new());
        self.write_preimage(&mut hash)
            .expect("writing to a hash cannot fail");
        IdempotencyKey::from_bytes(hash.0.finalize().into())
    }

    fn write_preimage(&self, out: &mut impl Write) -> fmt::Result {
        let IdempotencyKeyParts {
            run_id,
            step_id,
            logical_attempt_id,
            event_type,
            plan_id,
            plan_version,
            signal,
        } = &self.parts;
        let step = step_id.as_ref().map_or(&"RUN" as &dyn Display, |id| id);
        match (self.form, signal) {
            (IdempotencyKeyForm::V1, _) => join_parts(
                out,
                &[run_id, step, logical_attempt_id, event_type, plan_version],
            ),
            (_, None) => join_parts(
                out,
                &[
                    run_id,
                    step,
                    logical_attempt_id,
                    event_type,
                    plan_id,
                    plan_version,
                ],
            ),
            (
                _,
                Some(RunSignal {
                    signal_type,
                    signal_id,
                }),
            ) => {
                let attempt = logical_attempt_id;
                join_parts(
                    out,
                    &[
                        run_id,
                        &"SIGNAL",
                        signal_type,
                        signal_id,
                        attempt,
                        plan_id,
                        plan_version,
                    ],
                )?;
                if let Some(step_id) = step_id {
                    write!(out, "|{step_id}")?;
                }
                let decides = matches!(event_type.event_kind(), RunEventKind::Signal(_));
                if decides {
                    write!(out, "|{event_type}")
                } else {
                    Ok(())
                }
            }
        }
    }
}

fn join_parts(out: &mut impl Write, parts: &[&dyn Display]) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        let separator = if index > 0 { "|" } else { "" };
        write!(out, "{separator}{part}")?;
    }
    Ok(())
}

impl Display for KeyPreimage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_preimage(f)
    }
}

/// Feeds formatted text into the hash piece by piece.
struct KeyHasher(Sha256);

impl Write for KeyHasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text);
        Ok(())
    }
}

impl IdempotencyKey {
    /// Computes the key that `event` must carry, in the current form. Fails if
    /// [`RunSignal::from_event`] rejects the payload.
    pub fn for_event(event: &RunEventWrite) -> Result<Self, RunEventError> {
        let signal = RunSignal::from_event(event)?;
        Ok(IdempotencyKeyParts::from_event(event, signal.as_ref())
            .current_preimage()
            .compute_key())
    }

    /// Computes the key of `event` in form [`IdempotencyKeyForm::V2`], ignoring any signal.
    pub fn for_event_v2(event: &RunEventWrite) -> Self {
        IdempotencyKeyParts::from_event(event, None)
            .current_preimage()
            .compute_key()
    }

    /// Computes the key of `event` as caused by `signal`.
    pub fn for_signal_event(event: &RunEventWrite, signal: &RunSignal) -> Self {
        IdempotencyKeyParts::from_event(event, Some(signal))
            .current_preimage()
            .compute_key()
    }

    /// Computes the key of `event` in form [`IdempotencyKeyForm::V1`].
    pub fn for_event_v1(event: &RunEventWrite) -> Self {
        IdempotencyKeyParts::from_event(event, None)
            .preimage_v1()
            .compute_key()
    }
}

/// Key forms that [`verify_idempotency_key`] accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcceptedKeyForms {
    /// Only the current form, the one that producers write.
    V2Only,
    /// Also the form of version 1, for imported logs.
    V2OrV1,
}

/// Returns the form of the key that `event` carries, or the key that it should carry.
///
/// A signal that is named incompletely is treated as no signal here: [`RunEventWrite::check_shape`]
/// rejects such an event.
pub fn verify_idempotency_key(
    event: &RunEventWrite,
    accept: AcceptedKeyForms,
) -> Result<IdempotencyKeyForm, KeyMismatch> {
    let signal = RunSignal::from_event(event).unwrap_or_default();
    let parts = IdempotencyKeyParts::from_event(event, signal.as_ref());
    let (found, preimage) = (event.idempotency_key, parts.current_preimage());
    let expected = preimage.compute_key();
    if found == expected {
        Ok(preimage.key_form())
    } else if accept == AcceptedKeyForms::V2OrV1 && found == parts.preimage_v1().compute_key() {
        Ok(IdempotencyKeyForm::V1)
    } else {
        Err(KeyMismatch {
            expected,
            found,
            preimage: preimage.to_string(),
        })
    }
}

/// The event carries a key other than the one computed from its parts.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("field `idempotencyKey` is {found}: expected {expected}, the SHA-256 of {preimage:?}")]
pub struct KeyMismatch {
    /// The key computed from the event's parts.
    pub expected: IdempotencyKey,
    /// The key that the event carries.
    pub found: IdempotencyKey,
    /// The text that `expected` is the hash of.
    pub preimage: String,
}
