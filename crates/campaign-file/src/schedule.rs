//! The schedule of a campaign: its start time and its quiet hours.

use jiff::civil::DateTime;
use onward_base::Timestamp;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::quiet_hours::QuietHours;
use crate::time_zone::{self, UnknownTimeZone};

/// When the messages of a campaign are sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignSchedule {
    /// Earliest start: an RFC 3339 timestamp, or a local time in `time_zone`. default: at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// IANA name of the time zone of `at`. Required if `at` is a local time, not allowed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
    /// Local hours in which no message is sent. default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_hours: Option<QuietHours>,
}

/// Reasons why the start time of a schedule is invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ScheduleError {
    /// `time_zone` is set, and `at` is not.
    #[error("`time_zone` is the time zone of `at`, which is missing")]
    MissingStartTime,
    /// `at` is neither a timestamp nor a local time.
    #[error("invalid time `{0}`: use a form such as 2026-12-01T09:00:00+01:00")]
    InvalidTime(String),
    /// `at` is a local time without a time zone.
    #[error("`{0}` is a local time: set `schedule.time_zone`, or add an offset such as +01:00")]
    MissingTimeZone(String),
    /// `at` has an offset, and `time_zone` is set as well.
    #[error("`{0}` already has an offset: remove `schedule.time_zone`")]
    RedundantTimeZone(String),
    /// `at` is outside the supported range of years.
    #[error("`{0}` is outside the supported range of years")]
    OutOfRange(String),
    /// `time_zone` is not the name of a time zone.
    #[error(transparent)]
    UnknownTimeZone(#[from] UnknownTimeZone),
}

impl ScheduleError {
    /// Path of the invalid field in the campaign file.
    pub const fn field(&self) -> &'static str {
        match self {
            Self::MissingStartTime | Self::UnknownTimeZone(_) => "schedule.time_zone",
            Self::InvalidTime(_)
            | Self::MissingTimeZone(_)
            | Self::RedundantTimeZone(_)
            | Self::OutOfRange(_) => "schedule.at",
        }
    }
}

impl CampaignSchedule {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the start time, or `None` if the campaign starts at once. Fails if `at` or
    /// `time_zone` is invalid.
    ///
    /// At daylight-saving changes, an ambiguous local time is the earlier of the two instants, and
    /// a skipped local time moves forward by the length of the gap.
    pub fn start_time(&self) -> Result<Option<Timestamp>, ScheduleError> {
        match (&self.at, &self.time_zone) {
            (None, None) => Ok(None),
            (None, Some(_)) => Err(ScheduleError::MissingStartTime),
            (Some(at), time_zone) => parse_start_time(at, time_zone.as_deref()).map(Some),
        }
    }
}

fn parse_start_time(at: &str, time_zone: Option<&str>) -> Result<Timestamp, ScheduleError> {
    // Try timestamps with an offset first: parsed as a local time, the offset would be ignored.
    let with_offset = at.parse::<jiff::Timestamp>().ok();
    let instant = match (with_offset, time_zone) {
        (Some(instant), None) => instant,
        (Some(_), Some(_)) => return Err(ScheduleError::RedundantTimeZone(at.to_owned())),
        (None, Some(name)) => {
            let local = parse_local_time(at)?;
            time_zone::require_time_zone(name)?
                .to_ambiguous_timestamp(local)
                .compatible()
                .map_err(|_| ScheduleError::OutOfRange(at.to_owned()))?
        }
        (None, None) => {
            parse_local_time(at)?;
            let has_offset =
                at.ends_with(['Z', 'z']) || at.rfind(['+', '-']).is_some_and(|index| index > 10);
            return Err(if has_offset {
                ScheduleError::OutOfRange(at.to_owned())
            } else {
                ScheduleError::MissingTimeZone(at.to_owned())
            });
        }
    };
    Timestamp::from_micros(instant.as_microsecond())
        .ok_or_else(|| ScheduleError::OutOfRange(at.to_owned()))
}

fn parse_local_time(at: &str) -> Result<DateTime, ScheduleError> {
    // A date alone would parse as midnight, which is rarely intended.
    let parsed = if at.contains(':') {
        at.parse::<DateTime>().ok()
    } else {
        None
    };
    parsed.ok_or_else(|| ScheduleError::InvalidTime(at.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start_time(at: &str, time_zone: Option<&str>) -> Result<String, ScheduleError> {
        parse_start_time(at, time_zone).map(|start| start.to_string())
    }

    #[test]
    fn a_start_time_has_an_offset_or_a_time_zone() {
        assert_eq!(
            start_time("2026-12-01T09:00:00+01:00", None).unwrap(),
            "2026-12-01T08:00:00Z"
        );
        assert_eq!(
            start_time("2026-12-01T09:00:00Z", None).unwrap(),
            "2026-12-01T09:00:00Z"
        );
        for local in [
            "2026-07-01T09:00:00",
            "2026-07-01T09:00",
            "2026-07-01 09:00",
        ] {
            assert_eq!(
                start_time(local, Some("Europe/Berlin")).unwrap(),
                "2026-07-01T07:00:00Z"
            );
        }
    }

    #[test]
    fn an_offset_without_seconds_is_not_lost() {
        assert_eq!(
            start_time("2026-12-01T09:00+01:00", None).unwrap(),
            "2026-12-01T08:00:00Z"
        );
        assert!(start_time("2026-12-01T09:00+01:00", Some("Europe/Berlin")).is_err());
    }

    #[test]
    fn a_skipped_local_time_moves_forward_and_an_ambiguous_one_is_the_earlier() {
        assert_eq!(
            start_time("2026-03-29T02:30", Some("Europe/Berlin")).unwrap(),
            "2026-03-29T01:30:00Z"
        );
        assert_eq!(
            start_time("2026-10-25T02:30", Some("Europe/Berlin")).unwrap(),
            "2026-10-25T00:30:00Z"
        );
    }

    #[test]
    fn an_invalid_start_time_is_rejected() {
        for (text, time_zone) in [
            ("tomorrow", None),
            ("2026-12-01", Some("Europe/Berlin")),
            ("2026-12-01T09:00:00", None),
            ("2026-12-01T09:00:00", Some("Europe/Atlantis")),
            ("2026-13-01T09:00:00", Some("Europe/Berlin")),
            ("", Some("Europe/Berlin")),
        ] {
            assert!(start_time(text, time_zone).is_err(), "{text}");
        }
        let zone_only = CampaignSchedule {
            time_zone: Some("Europe/Berlin".into()),
            ..CampaignSchedule::default()
        };
        assert_eq!(zone_only.start_time(), Err(ScheduleError::MissingStartTime));
    }
}
