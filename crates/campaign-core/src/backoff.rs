//! Exponential backoff with jitter between the attempts of a job.

/// Backoff that doubles with each attempt. Jitter subtracts up to half of the delay, so that jobs
/// that failed together are not retried together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExponentialBackoff {
    /// The delay after the first attempt, in milliseconds. Default: 5000.
    pub initial_ms: u64,
    /// The upper limit of every delay, in milliseconds. Default: 15 minutes.
    pub max_ms: u64,
}

impl Default for ExponentialBackoff {
    fn default() -> Self {
        Self {
            initial_ms: 5_000,
            max_ms: 15 * 60_000,
        }
    }
}

impl ExponentialBackoff {
    /// Returns the delay in milliseconds after attempt number `attempt`, which counts from 1. The
    /// result lies between half of the full delay and the full delay.
    pub fn delay_ms(&self, attempt: u32, entropy: u64) -> u64 {
        let doubled = self
            .initial_ms
            .checked_shl(attempt.saturating_sub(1))
            .unwrap_or(u64::MAX);
        // `checked_shl` does not report bits that are shifted out as an overflow.
        let is_past = attempt.saturating_sub(1) >= self.initial_ms.leading_zeros();
        let whole = if is_past {
            self.max_ms
        } else {
            doubled.min(self.max_ms)
        };
        let half = whole / 2;
        half + entropy % (whole - half + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let backoff = ExponentialBackoff {
            initial_ms: 1_000,
            max_ms: 60_000,
        };
        let longest = |attempt| backoff.delay_ms(attempt, 30_000.min(500 << (attempt - 1)));
        assert_eq!([1, 2, 3].map(longest), [1_000, 2_000, 4_000]);
        for attempt in [1, 2, 7, 8, 63, 64, 65, 1_000, u32::MAX] {
            for entropy in [0, 1, 12_345, u64::MAX] {
                let wait = backoff.delay_ms(attempt, entropy);
                assert!(
                    (500..=60_000).contains(&wait),
                    "{attempt} {entropy}: {wait}"
                );
                assert!(attempt < 7 || wait >= 30_000, "{attempt} {entropy}: {wait}");
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
}
