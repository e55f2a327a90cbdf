//! Errors of parsing and validating run events. Every message names the field and the expected
//! value, because it is printed beside the line it refers to.

use onward_base::Payload;
use thiserror::Error;

use crate::RunEventType;

/// Reason why a JSON text is not an event, a record or an append result, or why an event is
/// inconsistent in itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum RunEventError {
    /// The text is not a single JSON object.
    #[error("not a JSON object: {0}")]
    Json(String),
    /// A required field is absent.
    #[error("field `{field}` is missing: expected {expected}")]
    Missing {
        /// JSON name of the missing field.
        field: &'static str,
        /// Description of the expected value.
        expected: &'static str,
    },
    /// A field holds a value of the wrong type or format.
    #[error("field `{field}` is {found}: expected {expected}")]
    Mismatch {
        /// JSON name of the field.
        field: &'static str,
        /// Excerpt of the value that was found.
        found: String,
        /// Description of the expected value.
        expected: &'static str,
    },
    /// A field occurs more than once in the object.
    #[error("duplicate field {0}: expected each field once")]
    Repeated(String),
    /// The producer supplied a field that only the store assigns.
    #[error("field `{0}` is assigned by the store: producers never supply it")]
    StoreAssigned(&'static str),
    /// The object of unknown fields contains the name of a known field.
    #[error("field {0} is a known field: expected only unknown fields")]
    KnownExtraField(String),
    /// The unknown fields are nested deeper than [`Payload::NESTING_MAX`].
    #[error("unknown fields are nested more than {max} deep", max = Payload::NESTING_MAX)]
    ExtraTooDeep,
    /// The event type refers to a step, but `stepId` is missing.
    #[error("field `stepId` is missing: {0} is about a step")]
    StepMissing(RunEventType),
    /// The event type refers to the whole run, but `stepId` is present.
    #[error("field `stepId` is present, but {0} is about the whole run")]
    StepUnexpected(RunEventType),
    /// The payload is not a JSON object.
    #[error("field `payload` is {0}: expected an object")]
    PayloadNotObject(String),
}
