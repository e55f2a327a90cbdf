//! Mapping of HTTP statuses to the outcome of an item.

use onward_base::SharedText;
use onward_campaign_core::SendOutcome;
use onward_campaign_dispatch::ProviderCapabilities;
use serde::{Deserialize, Serialize};

use crate::http::http_error::HttpConfigError;
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

/// Fails if a match is not a status or a range from 100 to 599. `setting` is the path of the list.
pub(crate) fn check_statuses(
    setting: &str,
    matches: &[HttpStatusMatch],
) -> Result<(), HttpConfigError> {
    let Some(invalid) = matches.iter().find(|it| it.status_range().is_none()) else {
        return Ok(());
    };
    Err(HttpConfigError::InvalidStatus {
        setting: setting.to_owned(),
        status: match invalid {
            HttpStatusMatch::One(status) => status.to_string(),
            HttpStatusMatch::Range(range) => format!("{range:?}"),
        },
    })
}

/// The outcome that a status stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HttpStatusOutcome {
    Accepted,
    Throttled,
    Deferred,
    Rejected,
    Unknown,
}

impl HttpResponseSpec {
    /// Fails if a status is invalid, or if `duplicate` is set for a service that does not
    /// deduplicate.
    pub(crate) fn check_mapping(
        &self,
        capabilities: ProviderCapabilities,
    ) -> Result<(), HttpConfigError> {
        let lists = [
            ("accepted", &self.accepted),
            ("duplicate", &self.duplicate),
            ("throttled", &self.throttled),
            ("deferred", &self.deferred),
            ("rejected", &self.rejected),
            ("unknown", &self.unknown),
        ];
        lists.into_iter().try_for_each(|(field, statuses)| {
            check_statuses(&format!("http.responses.{field}"), statuses)
        })?;
        if !self.duplicate.is_empty() && !capabilities.idempotent {
            return Err(HttpConfigError::DuplicateWithoutIdempotency);
        }
        Ok(())
    }

    /// Returns the outcome of a status: the configured one, else the usual meaning in HTTP.
    /// Gateways respond with 503 and 408 also after they have forwarded the request and lost track
    /// of it; a 503 with `Retry-After` comes from the service itself.
    pub(crate) fn status_outcome(
        &self,
        status: u16,
        retry_after_ms: Option<u64>,
    ) -> HttpStatusOutcome {
        let configured = [
            (&self.duplicate, HttpStatusOutcome::Accepted),
            (&self.accepted, HttpStatusOutcome::Accepted),
            (&self.throttled, HttpStatusOutcome::Throttled),
            (&self.deferred, HttpStatusOutcome::Deferred),
            (&self.rejected, HttpStatusOutcome::Rejected),
            (&self.unknown, HttpStatusOutcome::Unknown),
        ];
        if let Some((_, outcome)) = configured
            .into_iter()
            .find(|(matches, _)| contains_status(matches, status))
        {
            return outcome;
        }
        match status {
            200..=299 => HttpStatusOutcome::Accepted,
            // The credentials were rejected, which is not about the recipient.
            401 | 403 | 407 => HttpStatusOutcome::Throttled,
            425 | 429 => HttpStatusOutcome::Throttled,
            503 if retry_after_ms.is_some() => HttpStatusOutcome::Throttled,
            408 => HttpStatusOutcome::Unknown,
            300..=499 => HttpStatusOutcome::Rejected,
            _ => HttpStatusOutcome::Unknown,
        }
    }
}

impl HttpStatusOutcome {
    /// Converts to the outcome of an item with its details.
    pub(crate) fn into_send_outcome(
        self,
        message_id: Option<SharedText>,
        error: SharedText,
        retry_after_ms: Option<u64>,
    ) -> SendOutcome {
        match self {
            Self::Accepted => SendOutcome::Accepted(message_id),
            Self::Throttled => SendOutcome::Throttled(error, retry_after_ms),
            Self::Deferred => SendOutcome::Deferred(error),
            Self::Rejected => SendOutcome::Refused(error),
            Self::Unknown => SendOutcome::Unknown(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use onward_campaign_dispatch::ProviderCapabilities;

    use super::{HttpStatusMatch, HttpStatusOutcome, check_statuses};
    use crate::http::http_spec::HttpResponseSpec;

    #[test]
    fn an_unmapped_status_has_its_usual_meaning() {
        let responses = HttpResponseSpec::default();
        for (statuses, outcome) in [
            (&[200, 201, 202, 204, 299][..], HttpStatusOutcome::Accepted),
            (&[401, 403, 407, 425, 429], HttpStatusOutcome::Throttled),
            (
                &[301, 302, 307, 400, 404, 409, 410, 422, 499],
                HttpStatusOutcome::Rejected,
            ),
            (
                &[100, 408, 500, 501, 502, 503, 504, 599],
                HttpStatusOutcome::Unknown,
            ),
        ] {
            statuses.iter().for_each(|status| {
                assert_eq!(responses.status_outcome(*status, None), outcome, "{status}")
            });
        }
        assert_eq!(
            responses.status_outcome(503, Some(1_000)),
            HttpStatusOutcome::Throttled
        );
        assert_eq!(
            responses.status_outcome(502, Some(1_000)),
            HttpStatusOutcome::Unknown
        );
    }

    #[test]
    fn a_mapped_status_takes_precedence() {
        let responses: HttpResponseSpec = serde_json::from_value(serde_json::json!({
            "duplicate": [409], "deferred": [500, "502-504"], "throttled": [404], "unknown": [200],
            "rejected": [503],
        }))
        .unwrap();
        let capabilities = |idempotent| ProviderCapabilities {
            idempotent,
            ..ProviderCapabilities::default()
        };
        assert!(responses.check_mapping(capabilities(true)).is_ok());
        for (status, outcome) in [
            (409, HttpStatusOutcome::Accepted),
            (500, HttpStatusOutcome::Deferred),
            (501, HttpStatusOutcome::Unknown),
            (503, HttpStatusOutcome::Deferred),
            (404, HttpStatusOutcome::Throttled),
            (200, HttpStatusOutcome::Unknown),
            (201, HttpStatusOutcome::Accepted),
        ] {
            assert_eq!(responses.status_outcome(status, None), outcome, "{status}");
        }
        assert!(
            responses
                .check_mapping(capabilities(false))
                .unwrap_err()
                .to_string()
                .contains("requires `http.idempotent: true`")
        );
    }

    #[test]
    fn an_invalid_status_is_rejected() {
        for text in [
            "[99]",
            "[600]",
            r#"["5xx"]"#,
            r#"["599-500"]"#,
            r#"["200-"]"#,
        ] {
            let matches: Vec<HttpStatusMatch> = serde_json::from_str(text).unwrap();
            assert!(
                check_statuses("http.responses.accepted", &matches).is_err(),
                "{text}"
            );
        }
    }
}
