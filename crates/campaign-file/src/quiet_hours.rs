//! Quiet hours: local hours in which no message is sent.

use std::time::Duration;

use jiff::civil::Time;
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp as Moment};
use onward_base::Timestamp;
use onward_campaign_core::AudienceRecipient;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::time_zone::{self, UnknownTimeZone};

/// Daily hours in which no message is sent, in the time zone of the campaign or of each recipient.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "QuietHoursDocument", into = "QuietHoursDocument")]
pub struct QuietHours {
    from: Time,
    until: Time,
    time_zone: TimeZone,
    document: QuietHoursDocument,
}

/// Quiet hours as the campaign file and the stored document have them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "quiet_hours")]
struct QuietHoursDocument {
    from: String,
    until: String,
    time_zone: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_zone_field: Option<String>,
}

/// Reasons why quiet hours are invalid.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum QuietHoursError {
    /// `from` or `until` is not a time of day.
    #[error("invalid time of day `{0}`: use the form \"21:00\", in quotes")]
    InvalidTime(String),
    /// `from` and `until` are the same time, which could mean no quiet hours or a whole day.
    #[error("`from` and `until` must be different times, and both are {0}")]
    EqualTimes(String),
    /// `time_zone` is not the name of a time zone.
    #[error(transparent)]
    UnknownTimeZone(#[from] UnknownTimeZone),
}

impl TryFrom<QuietHoursDocument> for QuietHours {
    type Error = QuietHoursError;

    fn try_from(document: QuietHoursDocument) -> Result<Self, QuietHoursError> {
        let (from, until) = (
            parse_time_of_day(&document.from)?,
            parse_time_of_day(&document.until)?,
        );
        if from == until {
            return Err(QuietHoursError::EqualTimes(document.from));
        }
        Ok(Self {
            from,
            until,
            time_zone: time_zone::require_time_zone(&document.time_zone)?,
            document,
        })
    }
}

impl From<QuietHours> for QuietHoursDocument {
    fn from(quiet: QuietHours) -> Self {
        quiet.document
    }
}

/// Parses a time of day in the form `HH:MM`; no other form is accepted.
fn parse_time_of_day(text: &str) -> Result<Time, QuietHoursError> {
    let has_form = text.len() == 5 && text.is_ascii() && text.as_bytes()[2] == b':';
    let parsed = if has_form {
        Time::strptime("%H:%M", text).ok()
    } else {
        None
    };
    parsed.ok_or_else(|| QuietHoursError::InvalidTime(text.to_owned()))
}

impl QuietHours {
    /// Creates quiet hours between two times of day such as `21:00`, in the named time zone.
    /// `time_zone_field` is the field of a recipient that has the recipient's own time zone. Fails
    /// if a time or the time zone is invalid, or if both times are equal.
    pub fn new(
        from: &str,
        until: &str,
        time_zone: &str,
        time_zone_field: Option<&str>,
    ) -> Result<Self, QuietHoursError> {
        Self::try_from(QuietHoursDocument {
            from: from.to_owned(),
            until: until.to_owned(),
            time_zone: time_zone.to_owned(),
            time_zone_field: time_zone_field.map(str::to_owned),
        })
    }

    /// Returns the time until the quiet hours end in the given time zone, or `None` outside quiet
    /// hours.
    ///
    /// Without a time zone, or with an unknown one, the time zone of the campaign applies.
    pub fn wait_in_zone(
        &self,
        now: Timestamp,
        recipient_time_zone: Option<&str>,
    ) -> Option<Duration> {
        let own_zone = recipient_time_zone.and_then(time_zone::find_time_zone);
        let zone = own_zone.as_ref().unwrap_or(&self.time_zone);
        let now = time_zone::to_jiff_timestamp(now)?;
        if !self.is_quiet(zone, now) {
            return None;
        }
        let end = self.next_quiet_end(zone, now)?;
        end.duration_since(now).try_into().ok()
    }

    /// Returns the time until this recipient's quiet hours end, or `None` outside quiet hours.
    pub fn wait_for_recipient(
        &self,
        recipient: &AudienceRecipient,
        now: Timestamp,
    ) -> Option<Duration> {
        let field = self.document.time_zone_field.as_ref();
        self.wait_in_zone(
            now,
            field
                .and_then(|field| recipient.data.get(field))
                .and_then(|zone| zone.as_str()),
        )
    }

    /// The field of a recipient that has the recipient's own time zone, if one is configured.
    pub fn time_zone_field(&self) -> Option<&str> {
        self.document.time_zone_field.as_deref()
    }

    fn is_quiet(&self, zone: &TimeZone, at: Moment) -> bool {
        let local = zone.to_datetime(at).time();
        if self.from < self.until {
            self.from <= local && local < self.until
        } else {
            self.from <= local || local < self.until
        }
    }

    /// Returns the first instant after now that is not quiet: the local time `until`, or a
    /// daylight-saving change.
    fn next_quiet_end(&self, zone: &TimeZone, now: Moment) -> Option<Moment> {
        let today = zone.to_datetime(now).date();
        let days = (0..=3).filter_map(|days| today.checked_add(Span::new().days(days)).ok());
        let untils = days.flat_map(|day| {
            let ends = zone.to_ambiguous_timestamp(day.to_datetime(self.until));
            [ends.earlier().ok(), ends.later().ok()]
        });
        let changes = zone.following(now).take(2).map(|change| change.timestamp());
        untils
            .flatten()
            .chain(changes)
            .filter(|at| *at > now && !self.is_quiet(zone, *at))
            .min()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wait(quiet: &QuietHours, now: &str, zone: Option<&str>) -> Option<u64> {
        quiet
            .wait_in_zone(now.parse().unwrap(), zone)
            .map(|wait| wait.as_secs() / 60)
    }

    fn night() -> QuietHours {
        QuietHours::new("21:00", "08:00", "Europe/Berlin", Some("timezone")).unwrap()
    }

    #[test]
    fn quiet_hours_may_span_midnight() {
        assert_eq!(wait(&night(), "2026-12-01T19:59:59Z", None), None);
        assert_eq!(wait(&night(), "2026-12-01T20:00:00Z", None), Some(11 * 60));
        assert_eq!(wait(&night(), "2026-12-02T06:59:00Z", None), Some(1));
        assert_eq!(wait(&night(), "2026-12-02T07:00:00Z", None), None);
    }

    #[test]
    fn quiet_hours_may_be_within_a_day() {
        let noon = QuietHours::new("12:00", "14:00", "UTC", None).unwrap();
        assert_eq!(wait(&noon, "2026-12-01T11:59:59Z", None), None);
        assert_eq!(wait(&noon, "2026-12-01T12:00:00Z", None), Some(120));
        assert_eq!(wait(&noon, "2026-12-01T14:00:00Z", None), None);
    }

    #[test]
    fn the_time_zone_of_the_recipient_takes_precedence() {
        assert_eq!(
            wait(&night(), "2026-12-01T12:00:00Z", Some("Asia/Tokyo")),
            Some(11 * 60)
        );
        assert_eq!(
            wait(&night(), "2026-12-01T12:00:00Z", Some("Atlantis")),
            None
        );
        assert_eq!(
            wait(&night(), "2026-12-01T20:00:00Z", Some("")),
            Some(11 * 60)
        );
        let mut recipient = AudienceRecipient {
            id: "1".into(),
            address: "a@b.example".into(),
            data: serde_json::Map::new(),
        };
        let now = "2026-12-01T12:00:00Z".parse().unwrap();
        assert_eq!(night().wait_for_recipient(&recipient, now), None);
        recipient
            .data
            .insert("timezone".into(), "Asia/Tokyo".into());
        assert_eq!(
            night().wait_for_recipient(&recipient, now),
            Some(Duration::from_secs(11 * 3600))
        );
    }

    #[test]
    fn quiet_hours_are_shorter_or_longer_by_an_hour_at_a_daylight_saving_change() {
        assert_eq!(wait(&night(), "2026-03-28T20:00:00Z", None), Some(10 * 60));
        assert_eq!(wait(&night(), "2026-10-24T19:00:00Z", None), Some(12 * 60));
    }

    #[test]
    fn an_end_that_is_skipped_is_the_daylight_saving_change() {
        let quiet = QuietHours::new("21:00", "02:30", "Europe/Berlin", None).unwrap();
        assert_eq!(wait(&quiet, "2026-03-29T00:00:00Z", None), Some(60));
    }

    #[test]
    fn an_hour_that_occurs_twice_is_quiet_twice() {
        let quiet = QuietHours::new("21:00", "02:30", "Europe/Berlin", None).unwrap();
        assert_eq!(wait(&quiet, "2026-10-25T00:00:00Z", None), Some(30));
        assert_eq!(wait(&quiet, "2026-10-25T00:30:00Z", None), None);
        assert_eq!(wait(&quiet, "2026-10-25T01:10:00Z", None), Some(20));
    }

    #[test]
    fn an_invalid_time_of_day_is_rejected() {
        for (from, until, zone) in [
            ("21:00", "21:00", "UTC"),
            ("24:00", "08:00", "UTC"),
            ("9:00", "08:00", "UTC"),
            ("21:00:00", "08:00", "UTC"),
            ("21:00", "", "UTC"),
            ("21:00", "08:60", "UTC"),
            ("21:00", "08:00", "Mars"),
        ] {
            assert!(
                QuietHours::new(from, until, zone, None).is_err(),
                "{from} {until} {zone}"
            );
        }
    }

    const ZONES: [&str; 7] = [
        "UTC",
        "Europe/Berlin",
        "America/New_York",
        "Asia/Kolkata",
        "Australia/Lord_Howe",
        "Pacific/Apia",
        "Africa/Casablanca",
    ];

    proptest! {
        #[test]
        fn quiet_hours_end_exactly_after_the_wait(
            (from, until) in (0..24 * 60, 0..24 * 60).prop_filter("from and until must differ", |(from, until)| from != until),
            us in 1_400_000_000_000_000_i64..2_200_000_000_000_000,
            zone in prop::sample::select(&ZONES[..]),
            fraction in 0.0..1.0,
        ) {
            let time_of_day = |minutes: i32| format!("{:02}:{:02}", minutes / 60, minutes % 60);
            let quiet = QuietHours::new(&time_of_day(from), &time_of_day(until), "UTC", None).unwrap();
            let now = Timestamp::from_micros(us).unwrap();
            if let Some(wait) = quiet.wait_in_zone(now, Some(zone)) {
                let after = |wait: Duration| Timestamp::from_micros(us + wait.as_micros() as i64).unwrap();
                prop_assert!(!wait.is_zero());
                prop_assert_eq!(quiet.wait_in_zone(after(wait), Some(zone)), None);
                let before = wait.mul_f64(fraction);
                prop_assert!(before >= wait || quiet.wait_in_zone(after(before), Some(zone)).is_some());
                // If at least two hours of the day are not quiet, no daylight-saving change can
                // skip all of them.
                let open = (from - until).rem_euclid(24 * 60);
                prop_assert!(open < 120 || wait <= Duration::from_secs(26 * 3600), "{:?}", wait);
            }
        }
    }
}
