//! Inputs, results and signal bodies: JSON text that the journal stores and compares but never
//! interprets.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::RawValue;
use thiserror::Error;

/// A JSON value as compact text. Two payloads are equal if their texts are equal: key order and
/// number spelling matter, white space does not (parsing removes it).
///
/// ```
/// use onward_base::Payload;
/// let payload = Payload::parse(r#"{ "id": 42 }"#)?;
/// assert_eq!(payload.as_str(), r#"{"id":42}"#);
/// # Ok::<(), onward_base::PayloadError>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Payload(Arc<str>);

impl Payload {
    /// Maximum nesting depth of lists and objects, so that later readers of a payload may use
    /// recursion.
    pub const NESTING_MAX: usize = 128;

    /// Returns the payload `null`.
    pub fn null() -> Self {
        Self(Arc::from("null"))
    }

    /// Parses JSON text and removes insignificant white space. Fails if the text is not one JSON
    /// value or is nested deeper than [`Payload::NESTING_MAX`].
    pub fn parse(text: &str) -> Result<Self, PayloadError> {
        let raw: &RawValue =
            serde_json::from_str(text).map_err(|error| PayloadError(error.to_string()))?;
        Self::from_raw(raw)
    }

    /// Serialises `value` to a payload. Fails if the value cannot be serialised or is nested deeper
    /// than [`Payload::NESTING_MAX`].
    pub fn from_value(value: &impl Serialize) -> Result<Self, PayloadError> {
        let raw = serde_json::value::to_raw_value(value)
            .map_err(|error| PayloadError(error.to_string()))?;
        Self::from_raw(&raw)
    }

    /// Creates a payload from text that a JSON parser has already accepted. Fails if it is nested
    /// deeper than [`Payload::NESTING_MAX`].
    pub fn from_raw(raw: &RawValue) -> Result<Self, PayloadError> {
        let text = raw.get();
        if nesting_depth(text) > Self::NESTING_MAX {
            return Err(PayloadError(format!(
                "nested more than {} deep",
                Self::NESTING_MAX
            )));
        }
        Ok(if text.bytes().any(is_json_whitespace) {
            Self(Arc::from(strip_whitespace(text)))
        } else {
            Self(Arc::from(text))
        })
    }

    /// Returns the compact JSON text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const fn is_json_whitespace(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

/// Removes the white space outside of strings; `text` must be valid JSON.
fn strip_whitespace(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let (mut in_string, mut escaped) = (false, false);
    for char in text.chars() {
        if in_string {
            in_string = escaped || char != '"';
            escaped = !escaped && char == '\\';
        } else if char.is_ascii() && is_json_whitespace(char as u8) {
            continue;
        } else {
            in_string = char == '"';
        }
        kept.push(char);
    }
    kept
}

/// Returns the nesting depth of lists and objects; `text` must be valid JSON.
fn nesting_depth(text: &str) -> usize {
    let (mut depth, mut deepest) = (0, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = in_string,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' if !in_string => depth -= 1,
            _ => {}
        }
    }
    deepest
}

impl fmt::Debug for Payload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error for a text that is not valid JSON or is nested too deep.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("not JSON: {0}")]
pub struct PayloadError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_outside_of_strings_is_dropped() {
        for (text, compact) in [
            ("null", "null"),
            (" [ 1 ,\t2\r\n] ", "[1,2]"),
            (
                r#"{ "a b" : " \" c \\" , "d" : 1 }"#,
                r#"{"a b":" \" c \\","d":1}"#,
            ),
            (r#""é ü""#, r#""é ü""#),
            ("1e10", "1e10"),
            (
                "123456789012345678901234567890",
                "123456789012345678901234567890",
            ),
        ] {
            assert_eq!(Payload::parse(text).unwrap().as_str(), compact);
        }
    }

    #[test]
    fn what_is_not_one_json_value_is_refused() {
        for text in ["", "{", "1 2", "nul", "{'a':1}", "\u{1}", "[1,]"] {
            assert!(Payload::parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| {
            format!(
                "{}{}",
                "[{\"[\\\"[\":".repeat(depth / 2) + "0",
                "}]".repeat(depth / 2)
            )
        };
        assert_eq!(
            Payload::parse(&nested(Payload::NESTING_MAX))
                .map(|payload| nesting_depth(payload.as_str())),
            Ok(128)
        );
        assert!(Payload::parse(&nested(Payload::NESTING_MAX + 2)).is_err());
        assert!(Payload::parse(&nested(1_000_000)).is_err());
    }

    #[test]
    fn a_value_serialises_to_its_compact_text() {
        assert_eq!(
            Payload::from_value(&vec![Some(1), None]).unwrap().as_str(),
            "[1,null]"
        );
        assert_eq!(Payload::null().as_str(), "null");
        let raw: &RawValue = serde_json::from_str("[1,\n 2]").unwrap();
        assert_eq!(Payload::from_value(&raw).unwrap().as_str(), "[1,2]");
    }
}
