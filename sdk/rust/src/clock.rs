//! Time from the journal: read once, equal on every replay.

use std::ops::Add;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::Result;
use crate::host::{self, milliseconds};
use crate::promise::Promise;

/// A point in time, in microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates a timestamp from microseconds since 1970.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since 1970.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// Time since `earlier`; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(
            self.0
                .saturating_add(i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)),
        )
    }
}

impl From<Timestamp> for SystemTime {
    fn from(time: Timestamp) -> Self {
        let distance = Duration::from_micros(time.0.unsigned_abs());
        if time.0 < 0 {
            Self::UNIX_EPOCH - distance
        } else {
            Self::UNIX_EPOCH + distance
        }
    }
}

/// The current time.
pub fn now() -> Timestamp {
    Timestamp(host::now())
}

/// Waits for a duration, which may be years: a waiting workflow uses no memory.
pub fn sleep(duration: Duration) -> Result<()> {
    timer(duration)?.wait()
}

/// Starts a timer without waiting for it.
pub fn timer(duration: Duration) -> Result<Promise<()>> {
    Ok(Promise::new(host::timer(milliseconds(duration))?))
}
