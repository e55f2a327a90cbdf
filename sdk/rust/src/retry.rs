//! The retry policy of a call: attempts, backoff and errors that are final.

use std::time::Duration;

use crate::host::milliseconds;

/// Retry policy of an operation: number of attempts, backoff, and kinds that are not retried.
///
/// ```
/// use onward::prelude::*;
///
/// let retry = RetryPolicy::max_attempts(5)
///     .initial_interval(Duration::from_millis(200))
///     .non_retryable("card_declined");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// 0 means no limit.
    pub(crate) max_attempts: u32,
    pub(crate) initial_interval_ms: u64,
    pub(crate) max_interval_ms: u64,
    pub(crate) factor_permille: u32,
    pub(crate) jitter_permille: u32,
    pub(crate) non_retryable_kinds: Vec<String>,
}

impl RetryPolicy {
    /// Number of attempts of a call without a retry policy.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) const DEFAULT_MAX_ATTEMPTS: u32 = 10;

    /// At most `count` attempts, with exponential backoff: 1 s after the first, doubling up to 60
    /// s, minus up to 10 % jitter.
    pub fn max_attempts(count: u32) -> Self {
        Self {
            max_attempts: count.max(1),
            ..Self::unlimited_attempts()
        }
    }

    /// A single attempt.
    pub fn no_retries() -> Self {
        Self::max_attempts(1)
    }

    /// No limit of attempts.
    pub fn unlimited_attempts() -> Self {
        Self {
            max_attempts: 0,
            initial_interval_ms: 1_000,
            max_interval_ms: 60_000,
            factor_permille: 2_000,
            jitter_permille: 100,
            non_retryable_kinds: Vec::new(),
        }
    }

    /// Backoff after the first failure; default: 1 s.
    #[must_use]
    pub fn initial_interval(mut self, wait: Duration) -> Self {
        self.initial_interval_ms = milliseconds(wait);
        self
    }

    /// Maximum backoff; default: 60 s.
    #[must_use]
    pub fn max_interval(mut self, wait: Duration) -> Self {
        self.max_interval_ms = milliseconds(wait);
        self
    }

    /// Backoff factor in thousandths; default: 2000, which doubles. 1000 keeps the backoff
    /// constant.
    #[must_use]
    pub fn factor_permille(mut self, permille: u32) -> Self {
        self.factor_permille = permille;
        self
    }

    /// Jitter: maximum share that is subtracted at random, in thousandths; default: 100.
    #[must_use]
    pub fn jitter_permille(mut self, permille: u32) -> Self {
        self.jitter_permille = permille;
        self
    }

    /// Failures of this kind are not retried. May be repeated.
    #[must_use]
    pub fn non_retryable(mut self, kind: impl Into<String>) -> Self {
        self.non_retryable_kinds.push(kind.into());
        self
    }
}
