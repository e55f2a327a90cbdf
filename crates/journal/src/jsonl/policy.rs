//! A retry policy as JSON. Factor and jitter are plain numbers there; every field has a default.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::RetryPolicy;

pub(super) const EXPECTED: &str = "an object with max_attempts (from 1, or null for no limit), initial_interval_ms, \
     max_interval_ms, factor (1 to 1000), jitter (0 to 1), non_retryable_kinds (strings), timeout_ms";

#[derive(Deserialize, Serialize)]
pub(super) struct Object<'a> {
    #[serde(default = "Object::max_attempts")]
    max_attempts: Option<u32>,
    #[serde(default = "Object::initial_interval_ms")]
    initial_interval_ms: u64,
    #[serde(default = "Object::max_interval_ms")]
    max_interval_ms: u64,
    #[serde(default = "Object::factor")]
    factor: f64,
    #[serde(default = "Object::jitter")]
    jitter: f64,
    #[serde(default, borrow)]
    non_retryable_kinds: Vec<Cow<'a, str>>,
    #[serde(default)]
    timeout_ms: Option<u64>,
}

impl Object<'_> {
    fn max_attempts() -> Option<u32> {
        RetryPolicy::default().max_attempts
    }

    fn initial_interval_ms() -> u64 {
        RetryPolicy::default().initial_interval_ms
    }

    fn max_interval_ms() -> u64 {
        RetryPolicy::default().max_interval_ms
    }

    fn factor() -> f64 {
        f64::from(RetryPolicy::default().factor_permille) / 1_000.0
    }

    fn jitter() -> f64 {
        f64::from(RetryPolicy::default().jitter_permille) / 1_000.0
    }

    /// `None` if a number is out of range or a kind is not one.
    pub(super) fn read(&self) -> Option<RetryPolicy> {
        let in_range = (1.0..=1_000.0).contains(&self.factor) && (0.0..=1.0).contains(&self.jitter);
        if !in_range || self.max_attempts == Some(0) {
            return None;
        }
        Some(RetryPolicy {
            max_attempts: self.max_attempts,
            initial_interval_ms: self.initial_interval_ms,
            max_interval_ms: self.max_interval_ms,
            factor_permille: (self.factor * 1_000.0).round() as u32,
            jitter_permille: (self.jitter * 1_000.0).round() as u32,
            non_retryable: self.non_retryable_kinds.iter().map(|kind| kind.parse().ok()).collect::<Option<_>>()?,
            timeout_ms: self.timeout_ms,
        })
    }
}

impl<'a> From<&'a RetryPolicy> for Object<'a> {
    fn from(policy: &'a RetryPolicy) -> Self {
        Self {
            max_attempts: policy.max_attempts,
            initial_interval_ms: policy.initial_interval_ms,
            max_interval_ms: policy.max_interval_ms,
            factor: f64::from(policy.factor_permille) / 1_000.0,
            jitter: f64::from(policy.jitter_permille) / 1_000.0,
            non_retryable_kinds: policy.non_retryable.iter().map(|kind| Cow::Borrowed(kind.as_str())).collect(),
            timeout_ms: policy.timeout_ms,
        }
    }
}
