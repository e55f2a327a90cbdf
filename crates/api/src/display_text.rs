//! Text forms of ids and timestamps: a serde wrapper for programs, and relative times for people.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;

use onward_base::Timestamp;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::{Serialize, Serializer};

/// Serializes a value as its [`Display`] text and parses it back with [`FromStr`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DisplayText<T>(pub T);

impl<T: Display> Serialize for DisplayText<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de, T: FromStr<Err: Display>> Deserialize<'de> for DisplayText<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

/// Formats a time relative to `now`: `3 s ago`, `in 2 h` or `now`; `never` for [`Timestamp::MAX`].
pub fn format_relative_time(at: Timestamp, now: Timestamp) -> String {
    if at == Timestamp::MAX {
        return "never".to_owned();
    }
    let us = now.as_micros().saturating_sub(at.as_micros());
    match us / 1_000_000 {
        0 => "now".to_owned(),
        past @ 1.. => format!("{} ago", format_seconds(past)),
        future => format!("in {}", format_seconds(-future)),
    }
}

/// Formats the time from `from` to `to`, such as `12 s`; `0 s` if `to` is earlier.
pub fn format_elapsed(from: Timestamp, to: Timestamp) -> String {
    format_seconds(to.as_micros().saturating_sub(from.as_micros()).max(0) / 1_000_000)
}

/// Uses the largest unit of which there are at least two.
fn format_seconds(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_times_use_the_largest_unit_with_a_count_of_two() {
        let now = Timestamp::EPOCH.plus_ms(1_000_000_000);
        let at =
            |seconds: i64| Timestamp::from_micros(now.as_micros() + seconds * 1_000_000).unwrap();
        for (seconds, text) in [
            (0, "now"),
            (-3, "3 s ago"),
            (12, "in 12 s"),
            (-119, "119 s ago"),
            (600, "in 10 min"),
            (7_200, "in 2 h"),
            (-172_800, "2 days ago"),
        ] {
            assert_eq!(format_relative_time(at(seconds), now), text);
        }
        assert_eq!(format_relative_time(Timestamp::MAX, now), "never");
        assert_eq!(
            (format_elapsed(at(-12), now), format_elapsed(now, at(-12))),
            ("12 s".to_owned(), "0 s".to_owned())
        );
    }
}
