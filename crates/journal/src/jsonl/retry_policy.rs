//! The JSON form of a retry policy. Factor and jitter are plain numbers there; every field has a
//! default.

use std::borrow::Cow;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};

use crate::{RetryJitter, RetryPolicy};
use onward_base::BackoffFactor;

pub(super) const POLICY_EXPECTED: &str = "an object with max_attempts (from 1, or null for no limit), initial_interval_ms, \
     max_interval_ms, factor (1 to 1000), jitter (0 to 1), non_retryable_kinds (strings), timeout_ms";

#[derive(Deserialize, Serialize)]
pub(super) struct RetryPolicyObject<'a> {
    #[serde(default = "RetryPolicyObject::default_max_attempts")]
    max_attempts: Option<NonZeroU32>,
    #[serde(default = "RetryPolicyObject::default_initial_interval_ms")]
    initial_interval_ms: u64,
    #[serde(default = "RetryPolicyObject::default_max_interval_ms")]
    max_interval_ms: u64,
    #[serde(default = "RetryPolicyObject::default_factor")]
    factor: f64,
    #[serde(default = "RetryPolicyObject::default_jitter")]
    jitter: f64,
    #[serde(default, borrow)]
    non_retryable_kinds: Vec<Cow<'a, str>>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

impl RetryPolicyObject<'_> {
    fn default_max_attempts() -> Option<NonZeroU32> {
        RetryPolicy::default().max_attempts
    }

    fn default_initial_interval_ms() -> u64 {
        RetryPolicy::default().initial_interval_ms
    }

    fn default_max_interval_ms() -> u64 {
        RetryPolicy::default().max_interval_ms
    }

    fn default_factor() -> f64 {
        permille_to_ratio(RetryPolicy::default().factor.as_permille())
    }

    fn default_jitter() -> f64 {
        permille_to_ratio(RetryPolicy::default().jitter.as_permille())
    }

    /// Returns `None` if a number is out of range or an error kind is invalid.
    pub(super) fn to_retry_policy(&self) -> Option<RetryPolicy> {
        Some(RetryPolicy {
            max_attempts: self.max_attempts,
            initial_interval_ms: self.initial_interval_ms,
            max_interval_ms: self.max_interval_ms,
            factor: BackoffFactor::from_permille(ratio_to_permille(self.factor)?)?,
            jitter: RetryJitter::from_permille(ratio_to_permille(self.jitter)?)?,
            non_retryable: self
                .non_retryable_kinds
                .iter()
                .map(|kind| kind.parse().ok())
                .collect::<Option<_>>()?,
            timeout_ms: self.timeout_ms,
        })
    }
}

fn permille_to_ratio(permille: u32) -> f64 {
    f64::from(permille) / 1_000.0
}

/// Rounds to the nearest thousandth. Returns `None` outside of 0 to 1000, so that a negative number
/// never rounds to a valid one.
fn ratio_to_permille(share: f64) -> Option<u32> {
    (0.0..=1_000.0)
        .contains(&share)
        .then(|| (share * 1_000.0).round() as u32)
}

impl<'a> From<&'a RetryPolicy> for RetryPolicyObject<'a> {
    fn from(policy: &'a RetryPolicy) -> Self {
        Self {
            max_attempts: policy.max_attempts,
            initial_interval_ms: policy.initial_interval_ms,
            max_interval_ms: policy.max_interval_ms,
            factor: permille_to_ratio(policy.factor.as_permille()),
            jitter: permille_to_ratio(policy.jitter.as_permille()),
            non_retryable_kinds: policy
                .non_retryable
                .iter()
                .map(|kind| Cow::Borrowed(kind.as_str()))
                .collect(),
            timeout_ms: policy.timeout_ms,
        }
    }
}
