//! Instants as the journal stores them: microseconds since 1970, within the range of years that RFC
//! 3339 can express.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::excerpt::excerpt_text;

/// An instant in microseconds since the Unix epoch. Nothing in this crate reads a clock; the caller
/// passes the current time.
///
/// ```
/// use onward_base::Timestamp;
/// let at: Timestamp = "2026-03-01T12:00:00.25+01:00".parse()?;
/// assert_eq!(at.to_string(), "2026-03-01T11:00:00.25Z");
/// assert_eq!(at.plus_ms(750).to_string(), "2026-03-01T11:00:01Z");
/// # Ok::<(), onward_base::TimestampError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The Unix epoch, 1970-01-01T00:00:00Z.
    pub const EPOCH: Self = Self(0);
    /// The earliest instant that RFC 3339 can express, 0000-01-01T00:00:00Z.
    pub const MIN: Self = Self(-62_167_219_200_000_000);
    /// The latest instant that RFC 3339 can express, 9999-12-31T23:59:59.999999Z.
    pub const MAX: Self = Self(253_402_300_799_999_999);

    /// Returns the instant `us` microseconds after the epoch; `None` if it is not between
    /// [`Timestamp::MIN`] and [`Timestamp::MAX`].
    pub fn from_micros(us: i64) -> Option<Self> {
        (Self::MIN.0..=Self::MAX.0)
            .contains(&us)
            .then_some(Self(us))
    }

    /// Returns the microseconds since the Unix epoch; negative before 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Returns the instant `ms` milliseconds later, at most [`Timestamp::MAX`], which means "never"
    /// for a timer.
    pub fn plus_ms(self, ms: u64) -> Self {
        let us = i64::try_from(ms).ok().and_then(|ms| ms.checked_mul(1_000));
        let later = us.and_then(|us| self.0.checked_add(us)).unwrap_or(i64::MAX);
        Self(later.min(Self::MAX.0))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let instant = OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.0) * 1_000)
            .map_err(|_| fmt::Error)?;
        f.write_str(&instant.format(&Rfc3339).map_err(|_| fmt::Error)?)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Timestamp {
    type Err = TimestampError;

    /// Parses RFC 3339; digits finer than a microsecond are truncated.
    fn from_str(text: &str) -> Result<Self, TimestampError> {
        let refuse = || TimestampError(excerpt_text(text));
        let instant = OffsetDateTime::parse(text, &Rfc3339).map_err(|_| refuse())?;
        let us = instant.unix_timestamp_nanos().div_euclid(1_000);
        i64::try_from(us)
            .ok()
            .and_then(Self::from_micros)
            .ok_or_else(refuse)
    }
}

/// The error for a text that is not an RFC 3339 instant.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is not an instant: expected RFC 3339 such as 2026-03-01T12:00:00Z")]
pub struct TimestampError(String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_range_can_be_written_and_read_back() {
        for at in [
            Timestamp::MIN,
            Timestamp::EPOCH,
            Timestamp(-1),
            Timestamp(1_700_000_000_123_456),
            Timestamp::MAX,
        ] {
            assert_eq!(at.to_string().parse(), Ok(at));
        }
        assert_eq!(Timestamp::from_micros(Timestamp::MAX.0 + 1), None);
        assert_eq!(Timestamp::from_micros(Timestamp::MIN.0 - 1), None);
        assert_eq!(Timestamp::from_micros(5).map(Timestamp::as_micros), Some(5));
    }

    #[test]
    fn finer_than_a_microsecond_is_cut_off() {
        assert_eq!("1970-01-01T00:00:00.0000019Z".parse(), Ok(Timestamp(1)));
        assert_eq!("1969-12-31T23:59:59.9999989Z".parse(), Ok(Timestamp(-2)));
    }

    #[test]
    fn a_timer_in_the_far_future_saturates() {
        assert_eq!(Timestamp::EPOCH.plus_ms(2).as_micros(), 2_000);
        for ms in [u64::MAX, i64::MAX as u64, 253_402_300_800_000] {
            assert_eq!(Timestamp::EPOCH.plus_ms(ms), Timestamp::MAX);
        }
    }

    #[test]
    fn what_is_not_rfc_3339_is_refused() {
        for text in [
            "",
            "yesterday",
            "2026-03-01",
            "2026-03-01T12:00:00",
            "2026-13-01T12:00:00Z",
            "2026-03-01T12Z",
        ] {
            assert!(text.parse::<Timestamp>().is_err(), "{text:?}");
        }
        assert!("20260301T120000Z".parse::<Timestamp>().is_err());
        assert_eq!(
            "9999-12-31T23:59:59Z"
                .parse::<Timestamp>()
                .map(|at| at.to_string()),
            Ok("9999-12-31T23:59:59Z".to_owned())
        );
        assert_eq!(
            "1970-01-01T00:00:00.000001999999Z".parse(),
            Ok(Timestamp(1))
        );
    }
}
