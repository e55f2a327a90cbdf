//! What every closed-loop load driver needs: when to stop, and what was measured.
//!
//! There are two drivers, because they speak different protocols: `onward bench` uses the API
//! client of Onward, and the comparisons send the same raw HTTP requests to every engine.

use std::time::Duration;

use crate::statistics::BenchLatencies;

/// When a connection stops sending requests.
#[derive(Clone, Copy, Debug)]
pub enum LoadLimit {
    /// After this time.
    Elapsed(Duration),
    /// After this number of responses.
    Completed(usize),
}

impl LoadLimit {
    /// Whether a connection that has `completed` responses after `elapsed` stops.
    pub fn is_reached(self, elapsed: Duration, completed: usize) -> bool {
        match self {
            Self::Elapsed(duration) => elapsed >= duration,
            Self::Completed(count) => completed >= count,
        }
    }
}

/// The measurements of a load run.
#[derive(Debug)]
pub struct LoadResult<R> {
    /// Time from the first request to the last response.
    pub elapsed: Duration,
    /// The latency of each invocation.
    pub latencies: BenchLatencies,
    /// The response of one of the last invocations.
    pub result: Option<R>,
}
