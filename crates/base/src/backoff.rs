//! Exponential backoff with jitter: the delay before an operation is retried. Every retry delay of
//! the workspace that grows is computed here.
//!
//! The caller passes in the entropy for the jitter and counts the attempts.

/// Backoff that doubles with each attempt. Jitter subtracts up to half of the delay, so that
/// operations that failed together are not retried together.
///
/// ```
/// use onward_base::ExponentialBackoff;
/// let backoff = ExponentialBackoff { initial_ms: 100, max_ms: 10_000 };
/// assert_eq!([1, 2, 3].map(|attempt| backoff.delay_ms(attempt, 0)), [50, 100, 200]);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExponentialBackoff {
    /// The delay after the first attempt, in milliseconds.
    pub initial_ms: u64,
    /// The upper limit of every delay, in milliseconds.
    pub max_ms: u64,
}

impl ExponentialBackoff {
    /// Returns the delay in milliseconds after attempt number `attempt`, which counts from 1. The
    /// result lies between half of the full delay (`entropy` 0) and the full delay.
    pub fn delay_ms(&self, attempt: u32, entropy: u64) -> u64 {
        let full = self.full_delay_ms(attempt, BackoffFactor::DOUBLE);
        let half = full / 2;
        half + entropy % (full - half + 1)
    }

    /// Returns the delay in milliseconds after attempt number `attempt`, without jitter: it grows
    /// by `factor` with each attempt, up to `max_ms`.
    pub fn full_delay_ms(&self, attempt: u32, factor: BackoffFactor) -> u64 {
        let max = u128::from(self.max_ms);
        let mut delay = u128::from(self.initial_ms);
        for _ in 1..attempt {
            let next = (delay * u128::from(factor.0)).div_ceil(1_000);
            if delay >= max || next == delay {
                break;
            }
            delay = next;
        }
        u64::try_from(delay.min(max)).unwrap_or(u64::MAX)
    }
}

/// The factor by which a backoff grows with each attempt: from 1 to 1000, stored in thousandths.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct BackoffFactor(u32);

impl BackoffFactor {
    /// The factor 2.
    pub const DOUBLE: Self = Self(2_000);

    /// Creates a factor from thousandths: 2000 doubles the backoff. Returns `None` if `permille` is
    /// not between 1000 and 1000000.
    pub fn from_permille(permille: u32) -> Option<Self> {
        (1_000..=1_000_000)
            .contains(&permille)
            .then_some(Self(permille))
    }

    /// Returns the factor in thousandths.
    pub const fn as_permille(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum() {
        let backoff = ExponentialBackoff {
            initial_ms: 1_000,
            max_ms: 60_000,
        };
        let longest = |attempt| backoff.delay_ms(attempt, 30_000.min(500 << (attempt - 1)));
        assert_eq!([1, 2, 3].map(longest), [1_000, 2_000, 4_000]);
        for attempt in [1, 2, 7, 8, 63, 64, 65, 1_000, u32::MAX] {
            for entropy in [0, 1, 12_345, u64::MAX] {
                let delay = backoff.delay_ms(attempt, entropy);
                assert!(
                    (500..=60_000).contains(&delay),
                    "{attempt} {entropy}: {delay}"
                );
                assert!(
                    attempt < 7 || delay >= 30_000,
                    "{attempt} {entropy}: {delay}"
                );
            }
        }
        assert_eq!(
            ExponentialBackoff {
                initial_ms: 0,
                max_ms: 0
            }
            .delay_ms(3, 7),
            0
        );
    }

    #[test]
    fn extreme_delays_do_not_overflow() {
        let backoff = ExponentialBackoff {
            initial_ms: u64::MAX,
            max_ms: u64::MAX,
        };
        let largest = BackoffFactor::from_permille(1_000_000).unwrap();
        assert_eq!(backoff.full_delay_ms(u32::MAX, largest), u64::MAX);
        assert!(backoff.delay_ms(u32::MAX, u64::MAX) >= u64::MAX / 2);
        let without_delay = ExponentialBackoff {
            initial_ms: 0,
            ..backoff
        };
        assert_eq!(without_delay.delay_ms(u32::MAX, u64::MAX), 0);
    }

    #[test]
    fn a_factor_is_from_1_to_1000() {
        let factors = [999, 1_000, 1_000_000, 1_000_001]
            .map(|permille| BackoffFactor::from_permille(permille).map(BackoffFactor::as_permille));
        assert_eq!(factors, [None, Some(1_000), Some(1_000_000), None]);
        assert_eq!(
            BackoffFactor::from_permille(2_000),
            Some(BackoffFactor::DOUBLE)
        );
    }
}
