//! Idempotency keys: which parts of an event make a repeated append the same append.
//!
//! A key is the SHA-256 of those parts, joined by `|`. No part can hold a `|`, so two different lists of parts never join
//! to the same text. The forms differ in the number of parts; where two lists of one form could be confused, the names
//! that would do it are no step ids.

use std::fmt::{self, Display, Write};

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use crate::{
    Attempt, EventError, EventKind, EventType, IdempotencyKey, PlanId, PlanVersion, RunEventWrite, RunId, Signal,
    StepId,
};

/// Which parts a key is made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum KeyForm {
    /// `runId|stepId or RUN|logicalAttemptId|eventType|planId|planVersion`.
    V2,
    /// `runId|SIGNAL|signalType|signalId|logicalAttemptId|planId|planVersion`, then the step if there is one, then the
    /// event type if it is the decision about the signal. Without the signal the second pause of a run would be taken for
    /// the first; without the type a decision would be taken for its effect.
    Signal,
    /// `runId|stepId or RUN|logicalAttemptId|eventType|planVersion`: logs of version 1 only.
    V1,
}

impl Display for KeyForm {
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
pub struct KeyParts<'a> {
    /// The run.
    pub run_id: &'a RunId,
    /// The step, if the event is about one.
    pub step_id: Option<&'a StepId>,
    /// Which try of the business's it is.
    pub logical_attempt_id: Attempt,
    /// What happened.
    pub event_type: &'a EventType,
    /// The plan.
    pub plan_id: &'a PlanId,
    /// The plan's version.
    pub plan_version: &'a PlanVersion,
    /// The signal that caused the event, if one did.
    pub signal: Option<&'a Signal>,
}

impl<'a> KeyParts<'a> {
    /// The parts of `event`, which `signal` caused.
    pub const fn of(event: &'a RunEventWrite, signal: Option<&'a Signal>) -> Self {
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
    pub const fn preimage(self) -> Preimage<'a> {
        let form = if self.signal.is_some() { KeyForm::Signal } else { KeyForm::V2 };
        Preimage { form, parts: self }
    }

    /// The key's text in version 1, which knew no signals.
    pub const fn preimage_v1(self) -> Preimage<'a> {
        Preimage { form: KeyForm::V1, parts: self }
    }
}

/// The text that a key is the hash of; [`Display`] shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Preimage<'a> {
    form: KeyForm,
    parts: KeyParts<'a>,
}

impl Preimage<'_> {
    /// The form it has.
    pub const fn form(&self) -> KeyForm {
        self.form
    }

    /// The hash of it. Nothing is allocated.
    pub fn key(&self) -> IdempotencyKey {
        let mut hash = Hash(Sha256::new());
        self.write(&mut hash).expect("a hash takes in any text");
        IdempotencyKey::from_bytes(hash.0.finalize().into())
    }

    fn write(&self, out: &mut impl Write) -> fmt::Result {
        let KeyParts { run_id, step_id, logical_attempt_id, event_type, plan_id, plan_version, signal } = &self.parts;
        let step = step_id.as_ref().map_or(&"RUN" as &dyn Display, |id| id);
        match (self.form, signal) {
            (KeyForm::V1, _) => join(out, &[run_id, step, logical_attempt_id, event_type, plan_version]),
            (_, None) => join(out, &[run_id, step, logical_attempt_id, event_type, plan_id, plan_version]),
            (_, Some(Signal { signal_type, signal_id })) => {
                let attempt = logical_attempt_id;
                join(out, &[run_id, &"SIGNAL", signal_type, signal_id, attempt, plan_id, plan_version])?;
                if let Some(step_id) = step_id {
                    write!(out, "|{step_id}")?;
                }
                let decides = matches!(event_type.kind(), EventKind::Signal(_));
                if decides { write!(out, "|{event_type}") } else { Ok(()) }
            }
        }
    }
}

fn join(out: &mut impl Write, parts: &[&dyn Display]) -> fmt::Result {
    for (index, part) in parts.iter().enumerate() {
        let separator = if index > 0 { "|" } else { "" };
        write!(out, "{separator}{part}")?;
    }
    Ok(())
}

impl Display for Preimage<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f)
    }
}

/// Text goes into the hash piece by piece.
struct Hash(Sha256);

impl Write for Hash {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.update(text);
        Ok(())
    }
}

impl IdempotencyKey {
    /// The key that `event` should carry, in the form that suits it.
    pub fn of(event: &RunEventWrite) -> Result<Self, EventError> {
        let signal = Signal::of(event)?;
        Ok(KeyParts::of(event, signal.as_ref()).preimage().key())
    }

    /// The key of version 2 of `event`.
    pub fn v2(event: &RunEventWrite) -> Self {
        KeyParts::of(event, None).preimage().key()
    }

    /// The key of `event`, which `signal` caused.
    pub fn signal(event: &RunEventWrite, signal: &Signal) -> Self {
        KeyParts::of(event, Some(signal)).preimage().key()
    }

    /// The key of version 1 of `event`.
    pub fn v1(event: &RunEventWrite) -> Self {
        KeyParts::of(event, None).preimage_v1().key()
    }
}

/// Which forms [`verify`] lets pass.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Accept {
    /// The one that producers write.
    V2Only,
    /// Also that of version 1: a log that is imported.
    V2OrV1,
}

/// Which form the key of `event` has, or the key that it should have.
///
/// A signal that is not named in full counts as none here: [`RunEventWrite::check_shape`] refuses such an event.
pub fn verify(event: &RunEventWrite, accept: Accept) -> Result<KeyForm, KeyMismatch> {
    let signal = Signal::of(event).unwrap_or_default();
    let parts = KeyParts::of(event, signal.as_ref());
    let (found, preimage) = (event.idempotency_key, parts.preimage());
    let expected = preimage.key();
    if found == expected {
        Ok(preimage.form())
    } else if accept == Accept::V2OrV1 && found == parts.preimage_v1().key() {
        Ok(KeyForm::V1)
    } else {
        Err(KeyMismatch { expected, found, preimage: preimage.to_string() })
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
