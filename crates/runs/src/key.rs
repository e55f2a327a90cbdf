//! Idempotency keys: which parts of an event make a repeated append the same append.
//!
//! A key is the SHA-256 of those parts, joined by `|`. No part can hold a `|`, so two different lists of parts never join
//! to the same text. The forms differ in the number of parts; where two lists of one form could be confused, the names
//! that would do it are no step ids.

use std::fmt::{self, Display, Write};

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::{
    AttemptNumber, IdempotencyKey, PlanId, PlanVersion, RunEventError, RunEventKind, RunEventType,
    RunEventWrite, RunId, RunSignal, StepId,
};

/// Which parts a key is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum IdempotencyKeyForm {
    /// `runId|stepId or RUN|logicalAttemptId|eventType|planId|planVersion`.
    V2,
    /// `runId|SIGNAL|signalType|signalId|logicalAttemptId|planId|planVersion`, then the step if there is one, then the
    /// event type if it is the decision about the signal. Without the signal the second pause of a run would be taken for
    /// the first; without the type a decision would be taken for its effect.
    Signal,
    /// `runId|stepId or RUN|logicalAttemptId|eventType|planVersion`: logs of version 1 only.
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

/// The parts of an event that keys are made of. They are ids, so none can hold the separator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdempotencyKeyParts<'a> {
    /// The run.
    pub run_id: &'a RunId,
    /// The step, if the event is about one.
    pub step_id: Option<&'a StepId>,
    /// Which try of the business's it is.
    pub logical_attempt_id: AttemptNumber,
    /// What happened.
    pub event_type: &'a RunEventType,
    /// The plan.
    pub plan_id: &'a PlanId,
    /// The plan's version.
    pub plan_version: &'a PlanVersion,
    /// The signal that caused the event, if one did.
    pub signal: Option<&'a RunSignal>,
}

impl<'a> IdempotencyKeyParts<'a> {
    /// The parts of `event`, which `signal` caused.
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

    /// The key's text in the form that producers write.
    pub const fn current_preimage(self) -> KeyPreimage<'a> {
        let form = if self.signal.is_some() {
            IdempotencyKeyForm::Signal
        } else {
            IdempotencyKeyForm::V2
        };
        KeyPreimage { form, parts: self }
    }

    /// The key's text in version 1, which knew no signals.
    pub const fn preimage_v1(self) -> KeyPreimage<'a> {
        KeyPreimage {
            form: IdempotencyKeyForm::V1,
            parts: self,
        }
    }
}

/// The text that a key is the hash of; [`Display`] shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyPreimage<'a> {
    form: IdempotencyKeyForm,
    parts: IdempotencyKeyParts<'a>,
}

impl KeyPreimage<'_> {
    /// The form it has.
    pub const fn key_form(&self) -> IdempotencyKeyForm {
        self.form
    }

    /// The hash of it. Nothing is allocated.
    pub fn compute_key(&self) -> IdempotencyKey {
        let mut hash = KeyHasher(Sha256::new());
        self.write_preimage(&mut hash)
            .expect("a hash takes in any text");
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

/// Text goes into the hash piece by piece.
struct KeyHasher(Sha256);

impl Write for KeyHasher {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text);
        Ok(())
    }
}

impl IdempotencyKey {
    /// The key that `event` should carry, in the form that suits it.
    pub fn for_event(event: &RunEventWrite) -> Result<Self, RunEventError> {
        let signal = RunSignal::from_event(event)?;
        Ok(IdempotencyKeyParts::from_event(event, signal.as_ref())
            .current_preimage()
            .compute_key())
    }

    /// The key of version 2 of `event`.
    pub fn for_event_v2(event: &RunEventWrite) -> Self {
        IdempotencyKeyParts::from_event(event, None)
            .current_preimage()
            .compute_key()
    }

    /// The key of `event`, which `signal` caused.
    pub fn for_signal_event(event: &RunEventWrite, signal: &RunSignal) -> Self {
        IdempotencyKeyParts::from_event(event, Some(signal))
            .current_preimage()
            .compute_key()
    }

    /// The key of version 1 of `event`.
    pub fn for_event_v1(event: &RunEventWrite) -> Self {
        IdempotencyKeyParts::from_event(event, None)
            .preimage_v1()
            .compute_key()
    }
}

/// Which forms [`verify`] lets pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcceptedKeyForms {
    /// The one that producers write.
    V2Only,
    /// Also that of version 1: a log that is imported.
    V2OrV1,
}

/// Which form the key of `event` has, or the key that it should have.
///
/// A signal that is not named in full counts as none here: [`RunEventWrite::check_shape`] refuses such an event.
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

/// An event carries another key than its parts make.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("field `idempotencyKey` is {found}: expected {expected}, the SHA-256 of {preimage:?}")]
pub struct KeyMismatch {
    /// What its parts make.
    pub expected: IdempotencyKey,
    /// What it carries.
    pub found: IdempotencyKey,
    /// The text that `expected` is the hash of.
    pub preimage: String,
}
