//! The clock that timestamps stored data. It is a parameter, so that tests control the time.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use onward_base::Timestamp;

/// Source of the current time.
pub trait StoreClock: Send + Sync + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// The system clock of this machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl StoreClock for SystemClock {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that reads the system clock"
    )]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        i64::try_from(since.as_micros())
            .ok()
            .and_then(Timestamp::from_micros)
            .unwrap_or(Timestamp::MAX)
    }
}

/// A clock for tests that stands still until it is set.
#[derive(Debug)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Returns a clock that is set to `at`.
    pub const fn new(at: Timestamp) -> Self {
        Self(AtomicI64::new(at.as_micros()))
    }

    /// Sets the clock, forwards or backwards.
    pub fn set(&self, at: Timestamp) {
        self.0.store(at.as_micros(), Ordering::SeqCst);
    }

    /// Moves the clock forwards by `ms` milliseconds.
    pub fn advance_ms(&self, ms: u64) {
        self.set(self.now().plus_ms(ms));
    }
}

impl StoreClock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.load(Ordering::SeqCst)).unwrap_or(Timestamp::MAX)
    }
}
