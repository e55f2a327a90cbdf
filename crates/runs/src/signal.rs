//! The signal that caused an event. The event's payload names it, and the idempotency key depends
//! on it.

use crate::json::{JsonField, JsonMembers};
use crate::{RunEventError, RunEventKind, RunEventWrite, SignalId, SignalType};

/// An operator's signal that caused an event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunSignal {
    /// Action that the signal requests.
    pub signal_type: SignalType,
    /// Identifies the signal; equal on every repetition.
    pub signal_id: SignalId,
}

const SIGNAL_TYPE: &str = "signalType";
const SIGNAL_ID: &str = "signalId";

impl RunSignal {
    /// Returns the signal that the payload names in its string members `signalType` and `signalId`;
    /// `None` if it has neither.
    ///
    /// Fails if only one of the two is present, if a decision about a signal names no signal, or if
    /// a name cannot be part of a key.
    pub fn from_event(event: &RunEventWrite) -> Result<Option<Self>, RunEventError> {
        let decides = matches!(event.event_type.event_kind(), RunEventKind::Signal(_));
        let text = event
            .payload
            .as_ref()
            .map_or("{}", |payload| payload.as_str());
        if !decides && !may_name_signal(text) {
            return Ok(None);
        }
        let members = JsonMembers::parse_object(text)?;
        let signal_type = members.unique_member(SIGNAL_TYPE, "payload.signalType")?;
        let signal_id = members.unique_member(SIGNAL_ID, "payload.signalId")?;
        if !decides && !is_string(signal_type) && !is_string(signal_id) {
            return Ok(None);
        }
        Ok(Some(Self {
            signal_type: signal_type.parse_text()?,
            signal_id: signal_id.parse_text()?,
        }))
    }
}

fn is_string(field: JsonField<'_>) -> bool {
    field.raw.is_some_and(|raw| raw.get().starts_with('"'))
}

/// Returns `false` if the payload certainly names no signal, so that parsing it can be skipped.
/// Without escapes in the text, a substring search for the names is sufficient.
fn may_name_signal(payload: &str) -> bool {
    payload.contains(SIGNAL_TYPE) || payload.contains(SIGNAL_ID) || payload.contains('\\')
}
