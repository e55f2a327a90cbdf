//! How long things take these days: what is quick is done on the caller's time, because handing it to a thread and back would
//! take longer.

use std::sync::atomic::{AtomicI64, Ordering};

use onward_base::Timestamp;

/// What takes longer than this, in microseconds, is not quick.
const QUICK_MAX_US: i64 = 1_000;

/// A moving average, in microseconds. Quick until the contrary is known.
#[derive(Default)]
pub(crate) struct LatencyAverage(AtomicI64);

impl LatencyAverage {
    pub(crate) fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= QUICK_MAX_US
    }

    /// Takes in how long something took. Of two at the same moment one may be missed.
    pub(crate) fn record_sample(&self, begun: Timestamp, ended: Timestamp) {
        let took = (ended.as_micros() - begun.as_micros()).clamp(0, 100 * QUICK_MAX_US);
        self.0.store(
            (self.0.load(Ordering::Relaxed) * 7 + took) / 8,
            Ordering::Relaxed,
        );
    }
}
