//! The rate limits of a provider, as its configuration document has them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

const SECOND_US: u64 = 1_000_000;

/// Rate limits of a provider. All limits that are set apply together.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimits {
    /// Maximum number of sends in any second. default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
    /// Maximum number of sends in any minute. default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u32>,
    /// Maximum number of sends in any hour. default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_hour: Option<u32>,
    /// Burst: sends allowed at once after an idle time. default: 1. A burst above 1 comes on top of
    /// the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Limits per recipient domain of email addresses, in addition to the limits of the provider.
    /// default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_domain: Option<DomainRateLimits>,
}

/// Rate limits per recipient domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DomainRateLimits {
    /// Maximum number of sends to a domain in any second. default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
    /// Maximum number of sends to a domain in any minute. default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u32>,
    /// Maximum number of sends to a domain in any hour. default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_hour: Option<u32>,
    /// Burst: sends to a domain allowed at once after an idle time. default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// Limits of specific domains, by domain name; they replace the limits above.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, RateLimitRule>,
}

/// One set of rates with a burst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitRule {
    /// Maximum number of sends in any second. default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
    /// Maximum number of sends in any minute. default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u32>,
    /// Maximum number of sends in any hour. default: unlimited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_hour: Option<u32>,
    /// Burst: sends allowed at once after an idle time. default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

/// A limit or a burst is 0, which would block all sends.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{setting}` must be at least 1, because 0 blocks all sends: \
     remove it for no limit, or pause the campaign"
)]
pub struct ZeroRateLimit {
    /// Path of the setting, such as `smtp.rate_limits.per_second`.
    pub setting: String,
}

impl RateLimits {
    /// The rule for all sends through the provider.
    pub fn provider_rule(&self) -> RateLimitRule {
        let Self {
            per_second,
            per_minute,
            per_hour,
            burst,
            ..
        } = *self;
        RateLimitRule {
            per_second,
            per_minute,
            per_hour,
            burst,
        }
    }

    /// Fails if a limit or a burst is 0. `setting` is the path of these limits in the document.
    pub fn check_limits(&self, setting: &str) -> Result<(), ZeroRateLimit> {
        self.provider_rule().check_rule(setting)?;
        let Some(domains) = &self.per_domain else {
            return Ok(());
        };
        let setting = format!("{setting}.per_domain");
        domains.default_rule().check_rule(&setting)?;
        domains.overrides.iter().try_for_each(|(domain, rule)| {
            rule.check_rule(&format!("{setting}.overrides.{domain}"))
        })
    }
}

impl DomainRateLimits {
    /// The rule for domains without an override.
    pub fn default_rule(&self) -> RateLimitRule {
        let Self {
            per_second,
            per_minute,
            per_hour,
            burst,
            ..
        } = *self;
        RateLimitRule {
            per_second,
            per_minute,
            per_hour,
            burst,
        }
    }
}

impl RateLimitRule {
    /// The interval between two sends for each rate, in microseconds, rounded up; `None` for a rate
    /// that is not set.
    pub(crate) fn intervals_us(&self) -> [Option<u64>; 3] {
        let each = |count: Option<u32>, seconds: u64| {
            count.map(|it| (seconds * SECOND_US).div_ceil(u64::from(it.max(1))))
        };
        [
            each(self.per_second, 1),
            each(self.per_minute, 60),
            each(self.per_hour, 3_600),
        ]
    }

    /// Whether at least one rate is set. A burst alone limits nothing.
    pub(crate) fn has_any_rate(&self) -> bool {
        self.intervals_us().iter().any(Option::is_some)
    }

    fn check_rule(&self, setting: &str) -> Result<(), ZeroRateLimit> {
        let fields = [
            ("per_second", self.per_second),
            ("per_minute", self.per_minute),
            ("per_hour", self.per_hour),
            ("burst", self.burst),
        ];
        match fields.iter().find(|(_, value)| *value == Some(0)) {
            Some((field, _)) => Err(ZeroRateLimit {
                setting: format!("{setting}.{field}"),
            }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RateLimits;

    #[test]
    fn a_limit_of_zero_is_rejected_with_the_path_of_the_setting() {
        let limits = |text: &str| {
            serde_json::from_str::<RateLimits>(text)
                .unwrap()
                .check_limits("smtp.rate_limits")
        };
        assert_eq!(
            limits(r#"{"per_second":5,"per_domain":{"overrides":{"example.org":{"per_hour":1}}}}"#),
            Ok(())
        );
        for (text, setting) in [
            (r#"{"per_second":0}"#, "per_second"),
            (r#"{"burst":0}"#, "burst"),
            (
                r#"{"per_domain":{"per_minute":0}}"#,
                "per_domain.per_minute",
            ),
            (
                r#"{"per_domain":{"overrides":{"example.org":{"per_hour":0}}}}"#,
                "per_domain.overrides.example.org.per_hour",
            ),
        ] {
            let expected = format!("`smtp.rate_limits.{setting}` must be at least 1");
            let error = limits(text).unwrap_err().to_string();
            assert!(error.starts_with(&expected), "{text}: {error}");
        }
    }

    #[test]
    fn an_unknown_field_is_rejected() {
        assert!(serde_json::from_str::<RateLimits>(r#"{"per_day":5}"#).is_err());
        assert!(
            serde_json::from_str::<RateLimits>(
                r#"{"per_domain":{"overrides":{"a.b":{"per_day":5}}}}"#
            )
            .is_err()
        );
    }
}
