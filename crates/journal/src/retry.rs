//! Retry policies: whether and when a failed attempt is retried. Pure arithmetic: the caller passes
//! in the entropy for the jitter, and the journal records the computed `retry_at`, so a replay
//! never draws it again.

use std::num::NonZeroU32;

use minicbor::{Decode, Encode};

use crate::{ErrorKind, ExecutionError};
use onward_base::{BackoffFactor, ExponentialBackoff, Timestamp};

/// The retry policy of an operation: the number of attempts, the backoff, and the failures that are
/// final.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Encode, Decode)]
pub struct RetryPolicy {
    /// Maximum number of attempts, including the first; `None` means no limit. Default: 10.
    #[n(0)]
    pub max_attempts: Option<NonZeroU32>,
    /// Backoff after the first failure, in milliseconds. Default: 1000.
    #[n(1)]
    pub initial_interval_ms: u64,
    /// Maximum backoff, in milliseconds. Default: 60000.
    #[n(2)]
    pub max_interval_ms: u64,
    /// Factor by which the backoff grows after each failure. Default: 2.
    #[n(3)]
    pub factor: BackoffFactor,
    /// Maximum share of the backoff that is subtracted at random. Default: a tenth.
    #[n(4)]
    pub jitter: RetryJitter,
    /// Kinds of failure that are final and not retried. Default: none.
    #[n(5)]
    pub non_retryable: Vec<ErrorKind>,
    /// Timeout of one attempt, in milliseconds. Default: `None`, the policy sets no timeout.
    #[n(6)]
    pub timeout_ms: Option<u64>,
}

/// A share of the backoff from 0 to 1, stored in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RetryJitter(u32);

impl RetryJitter {
    /// No jitter: the backoff is never shortened.
    pub const NONE: Self = Self(0);

    /// Creates a share from thousandths: 100 is a tenth. Returns `None` if `permille` is more than
    /// 1000.
    pub fn from_permille(permille: u32) -> Option<Self> {
        (permille <= 1_000).then_some(Self(permille))
    }

    /// Returns the share in thousandths.
    pub const fn as_permille(self) -> u32 {
        self.0
    }
}

impl Default for RetryPolicy {
    /// 10 attempts, a backoff of 1 s that doubles up to 60 s, and a tenth of jitter.
    fn default() -> Self {
        Self {
            max_attempts: NonZeroU32::new(10),
            initial_interval_ms: 1_000,
            max_interval_ms: 60_000,
            factor: BackoffFactor::DOUBLE,
            jitter: RetryJitter(100),
            non_retryable: Vec::new(),
            timeout_ms: None,
        }
    }
}

impl RetryPolicy {
    /// Returns whether another attempt may follow the failure of attempt `attempt` (1 is the
    /// first).
    pub fn allows_retry(&self, attempt: u32, error: &ExecutionError) -> bool {
        error.retryable
            && self.max_attempts.is_none_or(|max| attempt < max.get())
            && !self.non_retryable.contains(&error.kind)
    }

    /// Returns the earliest start of the next attempt after `attempt` failed at `now`.
    pub fn retry_at(&self, attempt: u32, now: Timestamp, entropy: u32) -> Timestamp {
        now.plus_ms(self.backoff_ms(attempt, entropy))
    }

    /// Returns the backoff after attempt `attempt`: exponential, capped, then shortened by the
    /// share of the jitter that `entropy` selects.
    fn backoff_ms(&self, attempt: u32, entropy: u32) -> u64 {
        let backoff = ExponentialBackoff {
            initial_ms: self.initial_interval_ms,
            max_ms: self.max_interval_ms,
        };
        let full = backoff.full_delay_ms(attempt, self.factor);
        let spread = u128::from(full) * u128::from(self.jitter.0) / 1_000;
        let taken = spread * u128::from(entropy) / u128::from(u32::MAX);
        full - u64::try_from(taken).unwrap_or(full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn factor(permille: u32) -> BackoffFactor {
        BackoffFactor::from_permille(permille).unwrap()
    }

    fn backoffs_ms(policy: &RetryPolicy, entropy: u32) -> Vec<u64> {
        (1..=8)
            .map(|attempt| policy.backoff_ms(attempt, entropy))
            .collect()
    }

    #[test]
    fn backoffs_double_up_to_the_maximum() {
        let policy = RetryPolicy {
            max_interval_ms: 20_000,
            ..RetryPolicy::default()
        };
        assert_eq!(
            backoffs_ms(&policy, 0),
            [1_000, 2_000, 4_000, 8_000, 16_000, 20_000, 20_000, 20_000]
        );
    }

    #[test]
    fn jitter_subtracts_at_most_its_share() {
        let policy = RetryPolicy::default();
        assert_eq!(policy.backoff_ms(1, u32::MAX), 900);
        assert_eq!(policy.backoff_ms(1, u32::MAX / 2), 951);
        let full_jitter = RetryPolicy {
            jitter: RetryJitter(1_000),
            ..policy
        };
        assert_eq!(full_jitter.backoff_ms(1, u32::MAX), 0);
        let none = RetryPolicy {
            jitter: RetryJitter::NONE,
            ..full_jitter
        };
        assert_eq!(none.backoff_ms(1, u32::MAX), 1_000);
    }

    #[test]
    fn extreme_policies_neither_overflow_nor_loop_for_long() {
        let growing = RetryPolicy {
            initial_interval_ms: u64::MAX,
            max_interval_ms: u64::MAX,
            factor: factor(1_000_000),
            ..RetryPolicy::default()
        };
        assert_eq!(growing.backoff_ms(u32::MAX, 0), u64::MAX);
        assert_eq!(
            growing.retry_at(u32::MAX, Timestamp::EPOCH, 0),
            Timestamp::MAX
        );
        let constant = RetryPolicy {
            factor: factor(1_000),
            ..RetryPolicy::default()
        };
        assert_eq!(constant.backoff_ms(u32::MAX, 0), 1_000);
        let tiny = RetryPolicy {
            initial_interval_ms: 1,
            factor: factor(1_001),
            ..RetryPolicy::default()
        };
        assert_eq!(
            (tiny.backoff_ms(2, 0), tiny.backoff_ms(3, 0)),
            (2, 3),
            "a short backoff grows too"
        );
        let none = RetryPolicy {
            initial_interval_ms: 0,
            ..RetryPolicy::default()
        };
        assert_eq!(none.backoff_ms(u32::MAX, 7), 0);
    }

    #[test]
    fn attempts_and_kinds_limit_retries() {
        let error = |kind| ExecutionError::new(kind, "");
        let policy = RetryPolicy {
            max_attempts: NonZeroU32::new(3),
            non_retryable: vec![ErrorKind::Timeout],
            ..RetryPolicy::default()
        };
        let allowed = |attempt, kind| policy.allows_retry(attempt, &error(kind));
        assert!(allowed(1, ErrorKind::Trap) && allowed(2, ErrorKind::Trap));
        assert!(!allowed(3, ErrorKind::Trap), "three attempts in all");
        assert!(!allowed(1, ErrorKind::Timeout));
        let unlimited = RetryPolicy {
            max_attempts: None,
            ..policy
        };
        assert!(unlimited.allows_retry(u32::MAX, &error(ErrorKind::Trap)));
        assert!(
            !unlimited.allows_retry(1, &error(ErrorKind::Trap).into_permanent()),
            "a permanent error is never retried"
        );
    }

    #[test]
    fn retry_at_counts_from_now() {
        assert_eq!(
            RetryPolicy::default().retry_at(2, Timestamp::EPOCH, 0),
            Timestamp::EPOCH.plus_ms(2_000)
        );
    }

    #[test]
    fn jitter_is_from_0_to_1() {
        let jitters =
            [0, 1_000, 1_001].map(|j| RetryJitter::from_permille(j).map(RetryJitter::as_permille));
        assert_eq!(jitters, [Some(0), Some(1_000), None]);
    }
}
