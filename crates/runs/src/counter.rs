//! Counters of run events: attempt numbers and sequence numbers. Both fit the signed integers of
//! databases and guests.

use std::fmt;
use std::num::NonZeroU32;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use onward_base::{ExpectedFormat, ValueError};

/// Number of an attempt: 1, 2, 3 …
///
/// An *engine attempt* counts the platform's retries, a *logical attempt* the retries that a policy
/// or an operator requested.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AttemptNumber(NonZeroU32);

impl AttemptNumber {
    /// The first attempt: 1.
    pub const FIRST: Self = Self(NonZeroU32::MIN);
    /// The largest attempt number: 2147483647.
    pub const MAX: Self = Self(NonZeroU32::new(i32::MAX.cast_unsigned()).expect("not zero"));

    /// Returns the attempt with this number; `None` if it is not in the range from 1 to
    /// [`AttemptNumber::MAX`].
    pub const fn new(number: u32) -> Option<Self> {
        match NonZeroU32::new(number) {
            Some(nonzero) if number <= Self::MAX.as_u32() => Some(Self(nonzero)),
            _ => None,
        }
    }

    /// Returns the attempt number as an integer.
    pub const fn as_u32(self) -> u32 {
        self.0.get()
    }

    /// Returns the next attempt; `None` after [`AttemptNumber::MAX`].
    pub const fn next_attempt(self) -> Option<Self> {
        Self::new(self.as_u32() + 1)
    }
}

impl ExpectedFormat for AttemptNumber {
    const EXPECTED: &'static str = "an integer from 1 to 2147483647";
}

impl fmt::Display for AttemptNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for AttemptNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for AttemptNumber {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u32(self.as_u32())
    }
}

impl<'de> Deserialize<'de> for AttemptNumber {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u32::deserialize(deserializer)?;
        Self::new(number)
            .ok_or_else(|| de::Error::custom(ValueError::new::<Self>(&number.to_string())))
    }
}

/// Sequence number of an event in its run, assigned by the store: 1, 2, 3 …
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RunSeq(u64);

impl RunSeq {
    /// The position before the first event.
    pub const ZERO: Self = Self(0);
    /// The largest sequence number: 9223372036854775807.
    pub const MAX: Self = Self(i64::MAX.cast_unsigned());

    /// Returns this sequence number; `None` if it is larger than [`RunSeq::MAX`].
    pub const fn new(number: u64) -> Option<Self> {
        if number <= Self::MAX.0 {
            Some(Self(number))
        } else {
            None
        }
    }

    /// Returns the sequence number as an integer.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// Returns the next sequence number. [`RunSeq::MAX`] has no successor and returns itself; the
    /// store's unique key then rejects the event.
    #[must_use]
    pub const fn next_seq(self) -> Self {
        if self.0 < Self::MAX.0 {
            Self(self.0 + 1)
        } else {
            Self::MAX
        }
    }
}

impl ExpectedFormat for RunSeq {
    const EXPECTED: &'static str = "an integer from 0 to 9223372036854775807";
}

impl fmt::Display for RunSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for RunSeq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for RunSeq {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(self.0)
    }
}

impl<'de> Deserialize<'de> for RunSeq {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let number = u64::deserialize(deserializer)?;
        Self::new(number)
            .ok_or_else(|| de::Error::custom(ValueError::new::<Self>(&number.to_string())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_count_from_1() {
        assert_eq!(AttemptNumber::new(0), None);
        assert_eq!(AttemptNumber::new(1), Some(AttemptNumber::FIRST));
        assert_eq!(
            AttemptNumber::FIRST
                .next_attempt()
                .map(AttemptNumber::as_u32),
            Some(2)
        );
        assert_eq!(
            AttemptNumber::new(i32::MAX as u32),
            Some(AttemptNumber::MAX)
        );
        assert_eq!(AttemptNumber::new(i32::MAX as u32 + 1), None);
        assert_eq!(AttemptNumber::MAX.next_attempt(), None);
        assert_eq!(
            format!("{0} {0:?}", AttemptNumber::MAX),
            "2147483647 2147483647"
        );
    }

    #[test]
    fn places_count_from_1_and_end_where_databases_do() {
        assert_eq!(RunSeq::ZERO.next_seq(), RunSeq(1));
        assert_eq!(RunSeq::new(i64::MAX as u64), Some(RunSeq::MAX));
        assert_eq!(RunSeq::new(i64::MAX as u64 + 1), None);
        assert_eq!(RunSeq::MAX.next_seq(), RunSeq::MAX);
        assert_eq!(
            format!("{0} {0:?}", RunSeq::MAX),
            "9223372036854775807 9223372036854775807"
        );
    }

    #[test]
    fn a_counter_is_a_json_integer() {
        assert_eq!(
            serde_json::from_str::<AttemptNumber>("7")
                .unwrap()
                .to_string(),
            "7"
        );
        assert_eq!(serde_json::from_str::<RunSeq>("0").unwrap(), RunSeq::ZERO);
        for text in ["0", "-1", "1.0", "1e0", "2147483648", "\"1\"", "null"] {
            assert!(
                serde_json::from_str::<AttemptNumber>(text).is_err(),
                "{text}"
            );
        }
        for text in ["-1", "1.0", "9223372036854775808", "\"1\"", "null"] {
            assert!(serde_json::from_str::<RunSeq>(text).is_err(), "{text}");
        }
    }
}
