//! Which signal an event was caused by. The payload says so, and the idempotency key depends on it.

use crate::json::{JsonField, JsonMembers};
use crate::{RunEventError, RunEventKind, RunEventWrite, SignalId, SignalType};

/// The signal of an operator that caused an event.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunSignal {
    /// What it asks for.
    pub signal_type: SignalType,
    /// Which one it is.
    pub signal_id: SignalId,
}

const SIGNAL_TYPE: &str = "signalType";
const SIGNAL_ID: &str = "signalId";

impl RunSignal {
    /// The signal that the payload names by its string members `signalType` and `signalId`, if it has them.
    ///
    /// One without the other is refused, and so are a decision about a signal that names none and names that cannot be
    /// part of a key.
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

/// Whether it is worth to take the payload apart. Where no escape can hide a name, looking for it is enough.
fn may_name_signal(payload: &str) -> bool {
    payload.contains(SIGNAL_TYPE) || payload.contains(SIGNAL_ID) || payload.contains('\\')
}
