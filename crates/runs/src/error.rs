//! Why a text is not an event. Every message names the field and says what was expected: it is printed beside the line
//! that it is about.

use onward_base::Payload;
use thiserror::Error;

use crate::RunEventType;

/// Why a JSON text is not an event, a record or an append result, or why an event contradicts itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunEventError {
    /// The text is not one JSON object.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// A required field is absent.
    #[error("field `{field}` is missing: expected {expected}")]
    Missing {
        /// Its name.
        field: &'static str,
        /// What should stand there.
        expected: &'static str,
    },
    /// A field holds something else.
    #[error("field `{field}` is {found}: expected {expected}")]
    Mismatch {
        /// Its name.
        field: &'static str,
        /// What stands there.
        found: String,
        /// What should stand there.
        expected: &'static str,
    },
    /// A field stands in the object more than once.
    #[error("field {0} is there twice: expected each field once")]
    Repeated(String),
    /// A producer supplied what the store assigns.
    #[error("field `{0}` is assigned by the store: producers never supply it")]
    StoreAssigned(&'static str),
    /// Unknown fields were given under the name of a known one.
    #[error("field {0} has a place of its own: expected only unknown fields")]
    KnownExtraField(String),
    /// The unknown fields are nested too deep.
    #[error("unknown fields are nested more than {max} deep", max = Payload::NESTING_MAX)]
    ExtraTooDeep,
    /// The event is about a step, and does not say which.
    #[error("field `stepId` is missing: {0} is about a step")]
    StepMissing(RunEventType),
    /// The event is about the whole run, and names a step.
    #[error("field `stepId` is there, but {0} is about the whole run")]
    StepUnexpected(RunEventType),
    /// The payload is not an object.
    #[error("field `payload` is {0}: expected an object")]
    PayloadNotObject(String),
}
