//! Exponential backoff with jitter for requests to the server.

use std::time::Duration;

/// The upper bound of the first delay.
const INITIAL_DELAY: Duration = Duration::from_millis(100);

/// The upper bound of every delay.
const MAX_DELAY: Duration = Duration::from_secs(10);

/// Exponential backoff with jitter, so that workers that failed at the same time do not retry at
/// the same time.
#[derive(Debug, Default)]
pub(crate) struct RetryBackoff {
    failures: u32,
}

impl RetryBackoff {
    /// The next delay: one half is fixed, the other half is random.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let whole = INITIAL_DELAY
            .saturating_mul(1 << self.failures.min(10))
            .min(MAX_DELAY);
        self.failures = self.failures.saturating_add(1);
        let mut byte = [0];
        // Without randomness, the delay is the full one.
        let share = if getrandom::fill(&mut byte).is_ok() {
            u32::from(byte[0])
        } else {
            255
        };
        whole / 2 + whole / 2 * share / 255
    }

    /// Starts again with the shortest delay, after a success.
    pub(crate) const fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_begin_again() {
        let mut patience = RetryBackoff::default();
        for _ in 0..3 {
            let waits: Vec<Duration> = (0..40).map(|_| patience.next_delay()).collect();
            assert!(waits[0] >= INITIAL_DELAY / 2 && waits[0] <= INITIAL_DELAY);
            assert!(waits[3] >= INITIAL_DELAY * 4 && waits[3] <= INITIAL_DELAY * 8);
            assert!(waits[39] >= MAX_DELAY / 2 && waits[39] <= MAX_DELAY);
            patience.reset();
        }
    }
}
