//! The one place that reads the machine's clock, to say how long a step took.

use std::time::{Duration, Instant};

/// Runs from the moment it is made.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "durations are printed for a person; nothing is decided on them")]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
