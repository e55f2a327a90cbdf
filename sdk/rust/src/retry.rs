//! When a failed attempt is tried again.

use std::time::Duration;

use crate::host::milliseconds;

/// How often, how soon and for which failures an operation is tried again.
///
/// ```
/// use onward::prelude::*;
///
/// let patient = Retry::attempts(5).first_wait(Duration::from_millis(200)).not_on("card_declined");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retry {
    /// 0 is for ever.
    pub(crate) attempts_max: u32,
    pub(crate) first_wait_ms: u64,
    pub(crate) longest_wait_ms: u64,
    pub(crate) factor_permille: u32,
    pub(crate) jitter_permille: u32,
    pub(crate) final_kinds: Vec<String>,
}

impl Retry {
    /// How many attempts there are of a call that says nothing.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) const DEFAULT_ATTEMPTS: u32 = 10;

    /// So many attempts in all: a second between the first two, doubling up to a minute, shortened
    /// by up to a tenth.
    pub fn attempts(count: u32) -> Self {
        Self {
            attempts_max: count.max(1),
            ..Self::forever()
        }
    }

    /// One attempt.
    pub fn never() -> Self {
        Self::attempts(1)
    }

    /// Until it succeeds.
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

    /// The wait after the first failure.
    #[must_use]
    pub fn first_wait(mut self, wait: Duration) -> Self {
        self.first_wait_ms = milliseconds(wait);
        self
    }

    /// No wait is longer than this.
    #[must_use]
    pub fn longest_wait(mut self, wait: Duration) -> Self {
        self.longest_wait_ms = milliseconds(wait);
        self
    }

    /// What each wait is multiplied with, in thousandths: 2000 doubles, 1000 keeps it.
    #[must_use]
    pub fn factor_permille(mut self, permille: u32) -> Self {
        self.factor_permille = permille;
        self
    }

    /// Up to how much of a wait is taken off at random, in thousandths.
    #[must_use]
    pub fn jitter_permille(mut self, permille: u32) -> Self {
        self.jitter_permille = permille;
        self
    }

    /// Failures of this kind are final. May be repeated.
    #[must_use]
    pub fn not_on(mut self, kind: impl Into<String>) -> Self {
        self.final_kinds.push(kind.into());
        self
    }
}
