//! Mapping of HTTP statuses to the outcome of an item.

use onward_base::SharedText;
use onward_campaign_core::SendOutcome;
use serde::{Deserialize, Serialize};

use crate::http::http_spec::HttpResponseSpec;

/// One HTTP status, such as `409`, or a range, such as `"500-599"`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum HttpStatusMatch {
    /// A single status from 100 to 599.
    One(u16),
    /// A range `first-last`, both inclusive.
    Range(String),
}

impl HttpStatusMatch {
    fn status_range(&self) -> Option<(u16, u16)> {
        let (first, last) = match self {
            Self::One(status) => (*status, *status),
            Self::Range(range) => {
                let (first, last) = range.split_once('-')?;
                (first.trim().parse().ok()?, last.trim().parse().ok()?)
            }
        };
        (100 <= first && first <= last && last <= 599).then_some((first, last))
    }

    fn matches_status(&self, status: u16) -> bool {
        self.status_range()
            .is_some_and(|(first, last)| (first..=last).contains(&status))
    }
}

/// Returns whether one of the matches covers the status.
pub(crate) fn contains_status(matches: &[HttpStatusMatch], status: u16) -> bool {
    matches.iter().any(|it| it.matches_status(status))
}

/// Fails if a match is not a status or a range from 100 to 599.
pub(crate) fn check_statuses(matches: &[HttpStatusMatch]) -> Result<(), String> {
    match matches.iter().find(|it| it.status_range().is_none()) {
        Some(wrong) => Err(format!(
            "{wrong:?} is not a status: expected 409 or \"500-599\""
        )),
        None => Ok(()),
    }
}

/// The outcome that a status stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpStatusOutcome {
    Accepted,
    Throttled,
    Deferred,
    Refused,
    Unknown,
}

impl HttpResponseSpec {
    /// Fails if a status is invalid, or if `duplicate` is set for a service that does not
    /// deduplicate.
    pub(crate) fn check_mapping(&self, takes_keys_once: bool) -> Result<(), String> {
        let Self {
            accepted,
            duplicate,
            busy,
            later,
            refused,
            unknown,
            ..
        } = self;
        [accepted, duplicate, busy, later, refused, unknown]
            .into_iter()
            .try_for_each(|it| check_statuses(it))?;
        if !duplicate.is_empty() && !takes_keys_once {
            return Err("answers.duplicate is of no use unless takes_keys_once is true".to_owned());
        }
        Ok(())
    }

    /// Returns the outcome of a status: the configured one, else the usual meaning in HTTP.
    /// Gateways respond with 503 and 408 also after they have forwarded the request and lost track
    /// of it; a 503 with `Retry-After` comes from the service itself.
    pub(crate) fn status_outcome(&self, status: u16, says_when: bool) -> HttpStatusOutcome {
        let said = [
            (&self.duplicate, HttpStatusOutcome::Accepted),
            (&self.accepted, HttpStatusOutcome::Accepted),
            (&self.busy, HttpStatusOutcome::Throttled),
            (&self.later, HttpStatusOutcome::Deferred),
            (&self.refused, HttpStatusOutcome::Refused),
            (&self.unknown, HttpStatusOutcome::Unknown),
        ];
        if let Some((_, meaning)) = said
            .into_iter()
            .find(|(matches, _)| contains_status(matches, status))
        {
            return meaning;
        }
        match status {
            200..=299 => HttpStatusOutcome::Accepted,
            // The credentials were rejected, which is not about the recipient.
            401 | 403 | 407 => HttpStatusOutcome::Throttled,
            425 | 429 => HttpStatusOutcome::Throttled,
            503 if says_when => HttpStatusOutcome::Throttled,
            408 => HttpStatusOutcome::Unknown,
            300..=499 => HttpStatusOutcome::Refused,
            _ => HttpStatusOutcome::Unknown,
        }
    }
}

impl HttpStatusOutcome {
    /// Converts to the outcome of an item with its details.
    pub(crate) fn into_send_outcome(
        self,
        message_id: Option<SharedText>,
        told: SharedText,
        after_ms: Option<u64>,
    ) -> SendOutcome {
        match self {
            Self::Accepted => SendOutcome::Accepted(message_id),
            Self::Throttled => SendOutcome::Throttled(told, after_ms),
            Self::Deferred => SendOutcome::Deferred(told),
            Self::Refused => SendOutcome::Refused(told),
            Self::Unknown => SendOutcome::Unknown(told),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{HttpStatusMatch, HttpStatusOutcome, check_statuses};
    use crate::http::http_spec::HttpResponseSpec;

    #[test]
    fn what_is_not_said_is_as_http_has_it() {
        let answers = HttpResponseSpec::default();
        for (statuses, meaning) in [
            (&[200, 201, 202, 204, 299][..], HttpStatusOutcome::Accepted),
            (&[401, 403, 407, 425, 429], HttpStatusOutcome::Throttled),
            (
                &[301, 302, 307, 400, 404, 409, 410, 422, 499],
                HttpStatusOutcome::Refused,
            ),
            (
                &[100, 408, 500, 501, 502, 503, 504, 599],
                HttpStatusOutcome::Unknown,
            ),
        ] {
            statuses.iter().for_each(|status| {
                assert_eq!(answers.status_outcome(*status, false), meaning, "{status}")
            });
        }
        assert_eq!(
            answers.status_outcome(503, true),
            HttpStatusOutcome::Throttled
        );
        assert_eq!(
            answers.status_outcome(502, true),
            HttpStatusOutcome::Unknown
        );
    }

    #[test]
    fn what_is_said_goes_first() {
        let answers = r#"{"duplicate":[409],"later":[500,"502-504"],"busy":[404],"unknown":[200],"refused":[503]}"#;
        let answers: HttpResponseSpec = serde_json::from_str(answers).unwrap();
        assert_eq!(answers.check_mapping(true), Ok(()));
        for (status, meaning) in [
            (409, HttpStatusOutcome::Accepted),
            (500, HttpStatusOutcome::Deferred),
            (501, HttpStatusOutcome::Unknown),
            (503, HttpStatusOutcome::Deferred),
            (404, HttpStatusOutcome::Throttled),
            (200, HttpStatusOutcome::Unknown),
            (201, HttpStatusOutcome::Accepted),
        ] {
            assert_eq!(answers.status_outcome(status, false), meaning, "{status}");
        }
        assert!(
            answers
                .check_mapping(false)
                .unwrap_err()
                .contains("takes_keys_once")
        );
    }

    #[test]
    fn what_is_no_status_is_refused() {
        for text in [
            "[99]",
            "[600]",
            r#"["5xx"]"#,
            r#"["599-500"]"#,
            r#"["200-"]"#,
        ] {
            let matches: Vec<HttpStatusMatch> = serde_json::from_str(text).unwrap();
            assert!(check_statuses(&matches).is_err(), "{text}");
        }
    }
}
