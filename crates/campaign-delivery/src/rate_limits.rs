//! How many may be reached in which time, as a document says it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

const SECOND_US: u64 = 1_000_000;

/// How many may be reached through a provider.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimits {
    /// In any second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
    /// In any minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u32>,
    /// In any hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_hour: Option<u32>,
    /// So many at once after a quiet time; one unless it is said. What is more than one comes on top of the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// In each domain of mail.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_domain: Option<DomainRateLimits>,
}

/// How many may be reached in each domain.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DomainRateLimits {
    /// In any second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
    /// In any minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u32>,
    /// In any hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_hour: Option<u32>,
    /// So many at once after a quiet time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
    /// In domains for which something else holds, by their names.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub overrides: BTreeMap<String, RateLimitRule>,
}

/// How many in which time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitRule {
    /// In any second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_second: Option<u32>,
    /// In any minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_minute: Option<u32>,
    /// In any hour.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_hour: Option<u32>,
    /// So many at once after a quiet time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u32>,
}

impl RateLimits {
    /// What holds for all that goes through the provider.
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

    /// What is wrong with them, if anything is.
    pub fn check_limits(&self) -> Result<(), String> {
        self.provider_rule().check_rule("the provider")?;
        let Some(domains) = &self.per_domain else {
            return Ok(());
        };
        domains.default_rule().check_rule("a domain")?;
        domains
            .overrides
            .iter()
            .try_for_each(|(domain, rates)| rates.check_rule(domain))
    }
}

impl DomainRateLimits {
    /// What holds for a domain of which nothing else is said.
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
    /// The time between two for each of its rates, in microseconds, rounded up.
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

    /// Whether there are any.
    pub(crate) fn has_any_rate(&self) -> bool {
        self.intervals_us().iter().any(Option::is_some)
    }

    fn check_rule(&self, whose: &str) -> Result<(), String> {
        match [self.per_second, self.per_minute, self.per_hour, self.burst].contains(&Some(0)) {
            true => Err(format!(
                "a limit of {whose} is 0, which lets nobody pass: leave it out, or pause the campaign"
            )),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RateLimits;

    #[test]
    fn a_limit_that_lets_nobody_pass_is_refused() {
        let limits = |text: &str| {
            serde_json::from_str::<RateLimits>(text)
                .unwrap()
                .check_limits()
        };
        assert_eq!(
            limits(r#"{"per_second":5,"per_domain":{"overrides":{"example.org":{"per_hour":1}}}}"#),
            Ok(())
        );
        for text in [
            r#"{"per_second":0}"#,
            r#"{"burst":0}"#,
            r#"{"per_domain":{"per_minute":0}}"#,
            r#"{"per_domain":{"overrides":{"example.org":{"per_hour":0}}}}"#,
        ] {
            assert!(
                limits(text).unwrap_err().contains("lets nobody pass"),
                "{text}"
            );
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        assert!(serde_json::from_str::<RateLimits>(r#"{"per_day":5}"#).is_err());
        assert!(
            serde_json::from_str::<RateLimits>(
                r#"{"per_domain":{"overrides":{"a.b":{"per_day":5}}}}"#
            )
            .is_err()
        );
    }
}
