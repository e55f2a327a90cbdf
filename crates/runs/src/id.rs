//! Identifiers used in run events. Every id is a type of its own, so that a plan id cannot be
//! passed as a run id, and no id can contain the `|` that separates the parts of an idempotency
//! key.

use std::fmt;
use std::str::FromStr;

use onward_base::{ExpectedFormat, ValueError, hex, serde_as_text, text_ids};

text_ids! {
    /// Identifies a run: one execution of a plan.
    RunId: 255 bytes, except &[], "a string of 1 to 255 bytes without control characters or `|`";
    /// Identifies the plan that a run executes.
    PlanId: 255 bytes, except &[], "a string of 1 to 255 bytes without control characters or `|`";
    /// Version of a plan; versions are compared for equality only.
    PlanVersion: 255 bytes, except &[], "a string of 1 to 255 bytes without control characters or `|`";
    /// Identifies a step of a plan. The reserved names are rejected because they would make two
    /// idempotency keys equal.
    StepId: 255 bytes, except &["RUN", "SignalAccepted", "SignalRejected"],
        "a string of 1 to 255 bytes without control characters or `|`, \
         and not RUN, SignalAccepted or SignalRejected";
    /// Type of an event, such as `StepStarted`. Any name is valid;
    /// [`RunEventKind`](crate::RunEventKind) lists the types with a defined meaning.
    RunEventType: 64 bytes, except &[], "a string of 1 to 64 bytes without control characters or `|`";
    /// Action that an operator's signal requests, such as `PAUSE`.
    SignalType: 64 bytes, except &[], "a string of 1 to 64 bytes without control characters or `|`";
    /// Identifies a signal: a repetition with the same id is the same signal.
    SignalId: 255 bytes, except &[], "a string of 1 to 255 bytes without control characters or `|`";
}

/// Event id chosen by the producer: a random UUID (version 4).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunEventId([u8; 16]);

impl RunEventId {
    /// Creates an id from its bytes. Fails if the version and variant bits are not those of a
    /// random UUID.
    pub fn from_bytes(bytes: [u8; 16]) -> Result<Self, ValueError> {
        let id = Self(bytes);
        let is_random = bytes[6] >> 4 == 4 && bytes[8] >> 6 == 0b10;
        if is_random {
            Ok(id)
        } else {
            Err(ValueError::new::<Self>(&id.to_string()))
        }
    }

    /// Returns the 16 bytes in the order of the text form.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl ExpectedFormat for RunEventId {
    const EXPECTED: &'static str =
        "a UUID of version 4, such as \"0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a\"";
}

impl FromStr for RunEventId {
    type Err = ValueError;

    /// Parses the 36-character form with hyphens, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let hyphened = text.len() == 36
            && [8, 13, 18, 23]
                .iter()
                .all(|&at| text.as_bytes()[at] == b'-');
        let digits = || text.split('-').collect::<String>();
        let bytes = if hyphened {
            hex::decode_hex_array(&digits())
        } else {
            None
        };
        bytes
            .and_then(|bytes| Self::from_bytes(bytes).ok())
            .ok_or_else(|| ValueError::new::<Self>(text))
    }
}

impl fmt::Display for RunEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, group) in [0..4, 4..6, 6..8, 8..10, 10..16].into_iter().enumerate() {
            if index > 0 {
                f.write_str("-")?;
            }
            hex::write_hex(f, &self.0[group])?;
        }
        Ok(())
    }
}

impl fmt::Debug for RunEventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// Idempotency key of an event: SHA-256 over the parts that identify it. Two appends with the same
/// key are the same append.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey([u8; 32]);

impl IdempotencyKey {
    /// Creates a key from the 32 bytes of its hash.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl ExpectedFormat for IdempotencyKey {
    const EXPECTED: &'static str = "64 lowercase hex digits";
}

impl FromStr for IdempotencyKey {
    type Err = ValueError;

    /// Parses exactly 64 lowercase hex digits: a second spelling of a key would be a second key in
    /// a foreign store.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let bytes = if text.bytes().any(|byte| byte.is_ascii_uppercase()) {
            None
        } else {
            hex::decode_hex_array(text)
        };
        bytes.map(Self).ok_or_else(|| ValueError::new::<Self>(text))
    }
}

impl fmt::Display for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write_hex(f, &self.0)
    }
}

impl fmt::Debug for IdempotencyKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

serde_as_text!(RunEventId, |id| &id.to_string());
serde_as_text!(IdempotencyKey, |key| &key.to_string());

#[cfg(test)]
mod tests {
    use onward_base::TenantId;

    use super::*;

    const UUID: &str = "0d3c6a9e-4f0c-4a8e-9d5d-3d4c0f7dbb8a";

    #[test]
    fn a_part_of_a_key_is_short_and_printable_and_holds_no_separator() {
        let longest = "x".repeat(255);
        assert_eq!(longest.parse::<RunId>().unwrap().to_string(), longest);
        assert_eq!(
            format!("{0:>4} {0:?}", "ab".parse::<RunId>().unwrap()),
            "  ab \"ab\""
        );
        assert_eq!(
            &*"model.orders é".parse::<StepId>().unwrap(),
            "model.orders é"
        );
        for text in [
            "",
            &format!("{longest}x"),
            &"é".repeat(128),
            "a|b",
            "a\nb",
            "\0",
            "\u{7f}",
            "\u{9b}",
        ] {
            assert!(text.parse::<RunId>().is_err(), "{text:?}");
            assert!(text.parse::<StepId>().is_err(), "{text:?}");
        }
        assert!("x".repeat(64).parse::<RunEventType>().is_ok());
        assert!("x".repeat(65).parse::<RunEventType>().is_err());
    }

    #[test]
    fn names_that_would_make_keys_ambiguous_are_refused_as_step_ids() {
        for text in ["RUN", "SignalAccepted", "SignalRejected"] {
            assert!(text.parse::<StepId>().is_err(), "{text}");
            assert!(text.parse::<PlanId>().is_ok(), "{text}");
        }
        assert!("run".parse::<StepId>().is_ok());
    }

    #[test]
    fn an_error_names_the_expected_form() {
        let error = "a|b".parse::<TenantId>().unwrap_err();
        assert_eq!(
            error.to_string(),
            r#""a|b" is not valid: expected a string of 1 to 255 bytes without control characters or `|`"#
        );
    }

    #[test]
    fn an_event_id_is_a_random_uuid_in_either_case() {
        let id: RunEventId = UUID.parse().unwrap();
        assert_eq!(UUID.to_uppercase().parse(), Ok(id));
        assert_eq!(format!("{id} {id:?}"), format!("{UUID} {UUID}"));
        assert_eq!(RunEventId::from_bytes(*id.as_bytes()), Ok(id));
    }

    #[test]
    fn any_other_uuid_is_refused() {
        let with = |at: usize, digit: &str| format!("{}{digit}{}", &UUID[..at], &UUID[at + 1..]);
        for variant in ["8", "9", "a", "b", "A", "B"] {
            assert!(with(19, variant).parse::<RunEventId>().is_ok());
        }
        for wrong in ["1", "3", "5", "7"] {
            assert!(
                with(14, wrong).parse::<RunEventId>().is_err(),
                "version {wrong}"
            );
            assert!(
                with(19, wrong).parse::<RunEventId>().is_err(),
                "variant {wrong}"
            );
        }
        assert!(with(19, "c").parse::<RunEventId>().is_err());
        let bare = UUID.replace('-', "");
        for text in [
            "",
            &bare,
            &format!("{{{UUID}}}"),
            &with(8, "0"),
            &with(7, "-"),
            &with(0, "g"),
            &with(13, " "),
        ] {
            assert!(text.parse::<RunEventId>().is_err(), "{text}");
        }
        assert!(RunEventId::from_bytes([0; 16]).is_err());
    }

    #[test]
    fn a_key_is_64_lowercase_hex_digits() {
        let text = "0f".repeat(32);
        let key: IdempotencyKey = text.parse().unwrap();
        assert_eq!(key, IdempotencyKey::from_bytes([0x0f; 32]));
        assert_eq!(format!("{key} {key:?}"), format!("{text} {text}"));
        for wrong in [
            &text.to_uppercase(),
            &text[1..],
            &format!("{text}0"),
            &"0g".repeat(32),
            "",
        ] {
            assert!(wrong.parse::<IdempotencyKey>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn ids_are_strings_in_json() {
        assert_eq!(
            serde_json::to_string(&"r-1".parse::<RunId>().unwrap()).unwrap(),
            r#""r-1""#
        );
        assert_eq!(
            &*serde_json::from_str::<RunId>(r#""r\u002d1""#).unwrap(),
            "r-1"
        );
        assert!(serde_json::from_str::<RunId>(r#""a|b""#).is_err());
        assert!(serde_json::from_str::<RunId>("1").is_err());
        assert_eq!(
            serde_json::from_str::<RunEventId>(&format!("\"{UUID}\""))
                .unwrap()
                .to_string(),
            UUID
        );
    }
}
