//! The retry policy of a call: attempts, backoff and errors that are final.

use std::time::Duration;

use crate::host::milliseconds;

/// Retry policy of an operation: number of attempts, backoff, and kinds that are not retried.
///
/// ```
/// use onward::prelude::*;
///
/// let patient = Retry::attempts(5).first_wait(Duration::from_millis(200)).not_on("card_declined");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// 0 means no limit.
    pub(crate) attempts_max: u32,
    pub(crate) first_wait_ms: u64,
    pub(crate) longest_wait_ms: u64,
    pub(crate) factor_permille: u32,
    pub(crate) jitter_permille: u32,
    pub(crate) final_kinds: Vec<String>,
}

impl Retry {
    /// Number of attempts of a call without a retry policy.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) const DEFAULT_ATTEMPTS: u32 = 10;

    /// At most `count` attempts, with exponential backoff: 1 s after the first, doubling up to 60
    /// s, minus up to 10 % jitter.
    pub fn attempts(count: u32) -> Self {
        Self {
            attempts_max: count.max(1),
            ..Self::forever()
        }
    }

    /// A single attempt.
    pub fn never() -> Self {
        Self::attempts(1)
    }

    /// No limit of attempts.
    pub fn forever() -> Self {
        Self {
            attempts_max: 0,
            first_wait_ms: 1_000,
            longest_wait_ms: 60_000,
            factor_permille: 2_000,
            jitter_permille: 100,
            final_kinds: Vec::new(),
        }
    }

    /// Backoff after the first failure; default: 1 s.
    #[must_use]
    pub fn first_wait(mut self, wait: Duration) -> Self {
        self.first_wait_ms = milliseconds(wait);
        self
    }

    /// Maximum backoff; default: 60 s.
    #[must_use]
    pub fn longest_wait(mut self, wait: Duration) -> Self {
        self.longest_wait_ms = milliseconds(wait);
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
    pub fn not_on(mut self, kind: impl Into<String>) -> Self {
        self.final_kinds.push(kind.into());
        self
    }
}
