//! Fields of an event that this version does not know. A later version of the contract may define
//! them, so they are kept and written back unchanged.

use std::collections::BTreeSet;
use std::fmt;

use onward_base::Payload;
use serde_json::value::RawValue;

use crate::RunEventError;
use crate::event_json::Member;
use crate::excerpt;
use crate::json::JsonMembers;

/// The unknown fields of an event as one JSON object, or [`ExtraFields::NONE`] without them.
///
/// ```
/// use onward_runs::ExtraFields;
/// let extra = ExtraFields::parse(r#"{ "adapterVersion": "1.4", "cost": 1e400 }"#)?;
/// assert_eq!(extra.as_json(), Some(r#"{"adapterVersion":"1.4","cost":1e400}"#));
/// assert_eq!(ExtraFields::parse("{}")?, ExtraFields::NONE);
/// # Ok::<(), onward_runs::RunEventError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct ExtraFields(Option<Payload>);

impl ExtraFields {
    /// No unknown fields; allocates nothing.
    pub const NONE: Self = Self(None);

    /// Parses an object of unknown fields. Fails if it contains a field of the contract.
    pub fn parse(text: &str) -> Result<Self, RunEventError> {
        let members = JsonMembers::parse_object(text)?;
        if let Some((name, _)) = members
            .0
            .iter()
            .find(|(name, _)| Member::named(name).is_some())
        {
            return Err(RunEventError::KnownExtraField(excerpt::quote_excerpt(name)));
        }
        Self::from_members(&members)
    }

    /// Creates the object from `members`, none of which is a field of the contract.
    pub(crate) fn from_members(members: &JsonMembers<'_>) -> Result<Self, RunEventError> {
        if members.0.is_empty() {
            return Ok(Self::NONE);
        }
        let mut names = BTreeSet::new();
        let mut text = String::new();
        for (name, value) in &members.0 {
            if !names.insert(&**name) {
                return Err(RunEventError::Repeated(excerpt::quote_excerpt(name)));
            }
            text.push(if text.is_empty() { '{' } else { ',' });
            text += &serde_json::Value::from(&**name).to_string();
            text.push(':');
            text += value.get();
        }
        text.push('}');
        Payload::parse(&text)
            .map(|object| Self(Some(object)))
            .map_err(|_| RunEventError::ExtraTooDeep)
    }

    /// Returns the fields as the text of one object; `None` if there are none.
    pub fn as_json(&self) -> Option<&str> {
        self.0.as_ref().map(Payload::as_str)
    }

    /// Calls `each` with the name and value of every field.
    pub(crate) fn try_for_each_field<E: serde::ser::Error>(
        &self,
        mut each: impl FnMut(&str, &RawValue) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(text) = self.as_json() else {
            return Ok(());
        };
        let members = JsonMembers::parse_object(text).map_err(E::custom)?;
        members
            .0
            .iter()
            .try_for_each(|(name, value)| each(name, value))
    }
}

impl fmt::Debug for ExtraFields {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_json().unwrap_or("{}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_kept_in_their_order_and_spelling() {
        let text =
            r#"{"z":1.0,"a":123456789012345678901234567890,"é":{"b":[null,1e400]},"\"":"\u0000"}"#;
        let extra = ExtraFields::parse(text).unwrap();
        assert_eq!(extra.as_json(), Some(text));
        assert_eq!(
            format!("{extra:?} {:?}", ExtraFields::NONE),
            format!("{text} {{}}")
        );
    }

    #[test]
    fn no_field_costs_no_memory() {
        assert_eq!(ExtraFields::parse(" {\n} ").unwrap(), ExtraFields::NONE);
        assert_eq!(ExtraFields::NONE.as_json(), None);
        assert_eq!(size_of::<ExtraFields>(), size_of::<&str>());
    }

    #[test]
    fn fields_that_would_be_ambiguous_when_written_are_refused() {
        for (text, message) in [
            (
                r#"{"a":1,"b":2,"\u0061":3}"#,
                r#"duplicate field "a": expected each field once"#,
            ),
            (
                r#"{"runSeq":1}"#,
                r#"field "runSeq" is a known field: expected only unknown fields"#,
            ),
            (
                r#"{"a":1,"payload":{}}"#,
                r#"field "payload" is a known field: expected only unknown fields"#,
            ),
        ] {
            assert_eq!(ExtraFields::parse(text).unwrap_err().to_string(), message);
        }
        for text in ["", "null", "[]", "1", "{", r#"{"a":}"#, r#"{"a":1}{}"#] {
            assert!(
                matches!(ExtraFields::parse(text), Err(RunEventError::Json(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| {
            format!(
                r#"{{"a":{}{}}}"#,
                "[".repeat(depth - 1),
                "]".repeat(depth - 1)
            )
        };
        assert!(ExtraFields::parse(&nested(Payload::NESTING_MAX)).is_ok());
        for depth in [Payload::NESTING_MAX + 1, 1_000_000] {
            assert_eq!(
                ExtraFields::parse(&nested(depth)),
                Err(RunEventError::ExtraTooDeep)
            );
        }
    }
}
