//! Moving average of operation latency: quick operations run on the caller's thread, because
//! handing them to another thread and back would take longer.

use std::sync::atomic::{AtomicI64, Ordering};

use onward_base::Timestamp;

/// Maximum average, in microseconds, at which an operation counts as quick.
const QUICK_MAX_US: i64 = 1_000;

/// Moving average in microseconds. It starts at 0, so an operation counts as quick until
/// measurements show otherwise.
#[derive(Default)]
pub(crate) struct LatencyAverage(AtomicI64);

impl LatencyAverage {
    pub(crate) fn is_quick(&self) -> bool {
        self.0.load(Ordering::Relaxed) <= QUICK_MAX_US
    }

    /// Adds a sample to the average. Of two concurrent samples one may be lost.
    pub(crate) fn record_sample(&self, begun: Timestamp, ended: Timestamp) {
        let took = (ended.as_micros() - begun.as_micros()).clamp(0, 100 * QUICK_MAX_US);
        self.0.store(
            (self.0.load(Ordering::Relaxed) * 7 + took) / 8,
            Ordering::Relaxed,
        );
    }
}
