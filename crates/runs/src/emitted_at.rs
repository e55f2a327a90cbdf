//! The producer's timestamp of an event. Its text is evidence, so it is kept unchanged.

use std::fmt;
use std::str::FromStr;

use onward_base::{ExpectedFormat, SharedText, Timestamp, ValueError, serde_as_text};

/// An instant of a producer's clock: its RFC 3339 text, verbatim, and the instant truncated to the
/// microsecond.
///
/// ```
/// use onward_runs::EmittedAt;
/// let emitted_at: EmittedAt = "2026-03-01T12:00:00.1234567+00:00".parse()?;
/// assert_eq!(emitted_at.as_str(), "2026-03-01T12:00:00.1234567+00:00");
/// assert_eq!(emitted_at.to_timestamp().to_string(), "2026-03-01T12:00:00.123456Z");
/// # Ok::<(), onward_base::ValueError>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EmittedAt {
    at: Timestamp,
    text: SharedText,
}

impl EmittedAt {
    /// Maximum length of the text in bytes; enough for the resolution of any clock.
    pub const BYTES_MAX: usize = 64;

    /// Returns the producer's text unchanged.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the instant, truncated to the microsecond.
    pub const fn to_timestamp(&self) -> Timestamp {
        self.at
    }
}

impl ExpectedFormat for EmittedAt {
    const EXPECTED: &'static str = "an RFC 3339 instant in UTC, such as \"2026-03-01T12:00:00Z\"";
}

impl FromStr for EmittedAt {
    type Err = ValueError;

    /// Parses RFC 3339 with the offset `Z` or `+00:00`.
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let is_utc = ["Z", "z", "+00:00"]
            .iter()
            .any(|offset| text.ends_with(offset));
        let at = if is_utc && text.len() <= Self::BYTES_MAX {
            text.parse().ok()
        } else {
            None
        };
        at.map(|at| Self {
            at,
            text: SharedText::from(text),
        })
        .ok_or_else(|| ValueError::new::<Self>(text))
    }
}

impl From<Timestamp> for EmittedAt {
    fn from(at: Timestamp) -> Self {
        Self {
            at,
            text: SharedText::from(at.to_string()),
        }
    }
}

impl fmt::Display for EmittedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for EmittedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

serde_as_text!(EmittedAt, |at| at.as_str());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_kept_unchanged() {
        for text in [
            "2026-03-01T12:00:00Z",
            "2026-03-01T12:00:00.000+00:00",
            "2026-03-01t12:00:00.10z",
        ] {
            let emitted_at: EmittedAt = text.parse().unwrap();
            assert_eq!(emitted_at.as_str(), text);
            assert_eq!(
                format!("{emitted_at} {emitted_at:?}"),
                format!("{text} {text}")
            );
        }
    }

    #[test]
    fn only_utc_is_accepted() {
        for text in [
            "",
            "Z",
            "yesterday",
            "2026-03-01T12:00:00",
            "2026-03-01T12:00:00+01:00",
            "2026-03-01T12:00:00-00:00",
            "2026-02-30T12:00:00Z",
            "2026-03-01 12:00:00Z\n",
            &format!("2026-03-01T12:00:00.{}Z", "1".repeat(60)),
        ] {
            assert!(text.parse::<EmittedAt>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn our_own_instants_are_written_in_utc() {
        let at = Timestamp::EPOCH.plus_ms(1_500);
        assert_eq!(EmittedAt::from(at).as_str(), "1970-01-01T00:00:01.5Z");
        assert_eq!(EmittedAt::from(at).to_timestamp(), at);
        assert_eq!(
            EmittedAt::from(Timestamp::MIN).as_str().parse(),
            Ok(EmittedAt::from(Timestamp::MIN))
        );
    }
}
