//! The one place that reads the machine's clock and waits by it: to say how long a step took, to
//! put load on a server for a while, and to ask another process again.

use std::time::{Duration, Instant};

/// Runs from the moment it is made.
#[derive(Clone, Copy)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "how long things take is what is asked for here"
    )]
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a process of somebody else does not say when it is ready: it is asked"
)]
pub(crate) fn pause(duration: Duration) {
    std::thread::sleep(duration);
}
