//! The schedule of a campaign: its start time and its quiet hours.

use jiff::civil::DateTime;
use onward_base::Timestamp;
use serde::{Deserialize, Serialize};

use crate::quiet_hours::QuietHours;
use crate::time_zone;

/// When the messages of a campaign are sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CampaignSchedule {
    /// Earliest start: an RFC 3339 timestamp, or a local time in `zone`. default: at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
    /// IANA name of the time zone of `at`. Required if `at` is a local time, not allowed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Local hours in which no message is sent. default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet: Option<QuietHours>,
}

impl CampaignSchedule {
    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the start time, or `None` if the campaign starts at once. Fails if `at` or `zone` is
    /// invalid.
    ///
    /// At daylight-saving changes, an ambiguous local time is the earlier of the two instants, and
    /// a skipped local time moves forward by the length of the gap.
    pub fn start_time(&self) -> Result<Option<Timestamp>, String> {
        match (&self.at, &self.zone) {
            (None, None) => Ok(None),
            (None, Some(_)) => {
                Err("`zone` says in which time zone `at` is, and there is no `at`".to_owned())
            }
            (Some(at), zone) => parse_start_time(at, zone.as_deref()).map(Some),
        }
    }
}

fn parse_start_time(at: &str, zone: Option<&str>) -> Result<Timestamp, String> {
    // Try timestamps with an offset first: parsed as a local time, the offset would be ignored.
    let with_offset = at.parse::<jiff::Timestamp>().ok();
    let instant = match (with_offset, zone) {
        (Some(instant), None) => instant,
        (Some(_), Some(_)) => {
            return Err(format!(
                "`{at}` says itself how it is meant: leave out `zone`"
            ));
        }
        (None, Some(zone)) => {
            let local = parse_local_time(at)?;
            let instant = time_zone::require_time_zone(zone)?
                .to_ambiguous_timestamp(local)
                .compatible();
            instant.map_err(|error| format!("`{at}` is no time in {zone}: {error}"))?
        }
        (None, None) => {
            parse_local_time(at)?;
            let has_offset =
                at.ends_with(['Z', 'z']) || at.rfind(['+', '-']).is_some_and(|place| place > 10);
            if has_offset {
                return Err(format!("`{at}` is too far away"));
            }
            return Err(format!(
                "`{at}` is a local time: say in which `zone`, or write an offset such as +01:00"
            ));
        }
    };
    Timestamp::from_micros(instant.as_microsecond())
        .ok_or_else(|| format!("`{at}` is too far away"))
}

fn parse_local_time(at: &str) -> Result<DateTime, String> {
    // A date alone would parse as midnight, which is rarely intended.
    let parsed = if at.contains(':') {
        at.parse::<DateTime>().ok()
    } else {
        None
    };
    parsed.ok_or_else(|| format!("`{at}` is no time: write it as 2026-12-01T09:00:00+01:00"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(at: &str, zone: Option<&str>) -> Result<String, String> {
        parse_start_time(at, zone).map(|at| at.to_string())
    }

    #[test]
    fn a_time_is_an_instant_or_local_to_a_zone() {
        assert_eq!(
            at("2026-12-01T09:00:00+01:00", None).unwrap(),
            "2026-12-01T08:00:00Z"
        );
        assert_eq!(
            at("2026-12-01T09:00:00Z", None).unwrap(),
            "2026-12-01T09:00:00Z"
        );
        for local in [
            "2026-07-01T09:00:00",
            "2026-07-01T09:00",
            "2026-07-01 09:00",
        ] {
            assert_eq!(
                at(local, Some("Europe/Berlin")).unwrap(),
                "2026-07-01T07:00:00Z"
            );
        }
    }

    #[test]
    fn an_offset_without_seconds_is_not_lost() {
        assert_eq!(
            at("2026-12-01T09:00+01:00", None).unwrap(),
            "2026-12-01T08:00:00Z"
        );
        assert!(at("2026-12-01T09:00+01:00", Some("Europe/Berlin")).is_err());
    }

    #[test]
    fn a_time_that_the_clocks_leave_out_is_later_and_one_they_show_twice_is_the_first() {
        assert_eq!(
            at("2026-03-29T02:30", Some("Europe/Berlin")).unwrap(),
            "2026-03-29T01:30:00Z"
        );
        assert_eq!(
            at("2026-10-25T02:30", Some("Europe/Berlin")).unwrap(),
            "2026-10-25T00:30:00Z"
        );
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for (text, zone) in [
            ("tomorrow", None),
            ("2026-12-01", Some("Europe/Berlin")),
            ("2026-12-01T09:00:00", None),
            ("2026-12-01T09:00:00", Some("Europe/Atlantis")),
            ("2026-13-01T09:00:00", Some("Europe/Berlin")),
            ("", Some("Europe/Berlin")),
        ] {
            assert!(at(text, zone).is_err(), "{text}");
        }
        let alone = CampaignSchedule {
            zone: Some("Europe/Berlin".into()),
            ..CampaignSchedule::default()
        };
        assert!(alone.start_time().is_err());
    }
}
