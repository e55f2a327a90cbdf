//! The retry delays of a worker: the shared exponential backoff, with a count of the failures.

use std::time::Duration;

use onward_base::ExponentialBackoff;

/// The backoff of every request to the server.
const REQUEST_BACKOFF: ExponentialBackoff = ExponentialBackoff {
    initial_ms: 100,
    max_ms: 10_000,
};

/// The consecutive failures of a request, and the delay before the next try. The delay has jitter,
/// so that workers that failed at the same time do not retry at the same time.
#[derive(Debug, Default)]
pub(crate) struct RetryBackoff {
    failures: u32,
}

impl RetryBackoff {
    /// Counts a failure and returns the delay that follows it.
    pub(crate) fn next_delay(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let entropy = getrandom::u64().unwrap_or_default();
        Duration::from_millis(REQUEST_BACKOFF.delay_ms(self.failures, entropy))
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
    fn delays_grow_to_a_limit_and_start_again_after_a_reset() {
        let initial = Duration::from_millis(REQUEST_BACKOFF.initial_ms);
        let max = Duration::from_millis(REQUEST_BACKOFF.max_ms);
        let mut backoff = RetryBackoff::default();
        for _ in 0..3 {
            let delays: Vec<Duration> = (0..40).map(|_| backoff.next_delay()).collect();
            assert!(delays[0] >= initial / 2 && delays[0] <= initial);
            assert!(delays[3] >= initial * 4 && delays[3] <= initial * 8);
            assert!(delays[39] >= max / 2 && delays[39] <= max);
            backoff.reset();
        }
    }
}
