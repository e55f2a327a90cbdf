//! Elapsed time and pauses. Measuring is the purpose of this package, so the lints that keep clocks
//! out of the product are answered here once.

use std::time::{Duration, Instant};

/// Measures the time since its creation.
#[derive(Clone, Copy, Debug)]
pub struct BenchStopwatch(Instant);

impl BenchStopwatch {
    /// Starts to measure.
    #[expect(
        clippy::disallowed_methods,
        reason = "measuring elapsed time is the purpose of this type"
    )]
    pub fn start_now() -> Self {
        Self(Instant::now())
    }

    /// Returns the time since the start.
    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Blocks the current thread.
#[expect(
    clippy::disallowed_methods,
    reason = "other processes do not signal readiness, so they are polled"
)]
pub fn pause_thread(duration: Duration) {
    std::thread::sleep(duration);
}
