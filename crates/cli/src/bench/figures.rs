//! The figures of one workload.

use std::time::Duration;

/// Fewer executions than this have no 99th percentile to speak of.
const TAIL_SAMPLES_MIN: usize = 100;

/// What a server and the driver have used until a moment.
#[derive(Clone, Copy, Default)]
pub(super) struct Meters {
    pub(super) cpu: Option<Duration>,
    pub(super) driver_cpu: Option<Duration>,
    pub(super) written_bytes: Option<u64>,
    pub(super) commits: Option<u64>,
}

impl Meters {
    /// What was used since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        let time = |now: Option<Duration>, then: Option<Duration>| Some(now?.saturating_sub(then?));
        let count = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        Self {
            cpu: time(self.cpu, before.cpu),
            driver_cpu: time(self.driver_cpu, before.driver_cpu),
            written_bytes: count(self.written_bytes, before.written_bytes),
            commits: count(self.commits, before.commits),
        }
    }
}

/// How long executions took, as whoever asked for them saw it.
#[derive(Default)]
pub(super) struct Latencies(Vec<Duration>);

impl Latencies {
    /// In any order.
    pub(super) fn new(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Self(all)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The value that so many percent do not exceed.
    fn percentile_ms(&self, percent: usize) -> Option<f64> {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0.get(rank - 1).map(|latency| latency.as_secs_f64() * 1_000.0)
    }

    pub(super) fn p50_ms(&self) -> Option<f64> {
        self.percentile_ms(50)
    }

    pub(super) fn p99_ms(&self) -> Option<f64> {
        (self.0.len() >= TAIL_SAMPLES_MIN).then(|| self.percentile_ms(99)).flatten()
    }
}

/// The figures of one workload.
pub(super) struct Figures {
    pub(super) workload: &'static str,
    pub(super) concurrency: usize,
    /// What is counted: `step`, `start`.
    pub(super) unit: &'static str,
    pub(super) executions: usize,
    pub(super) units: u64,
    pub(super) took: Duration,
    pub(super) latencies: Latencies,
    pub(super) used: Meters,
    /// Plain one-row commits a second, measured before and after.
    pub(super) raw_rates: [f64; 2],
    /// What only this workload has.
    pub(super) more: Vec<More>,
}

/// A figure that only one workload has.
pub(super) struct More {
    /// For programs.
    pub(super) key: &'static str,
    /// For people.
    pub(super) label: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

impl Figures {
    pub(super) fn per_second(&self) -> f64 {
        self.units as f64 / self.took.as_secs_f64()
    }

    /// The mean of before and after.
    pub(super) fn raw_rate(&self) -> f64 {
        self.raw_rates.iter().sum::<f64>() / 2.0
    }

    /// So much for each step or start.
    pub(super) fn each(&self, total: f64) -> f64 {
        total / self.units as f64
    }

    pub(super) fn with(mut self, key: &'static str, label: &str, value: f64, unit: &'static str) -> Self {
        self.more.push(More { key, label: label.to_owned(), value, unit });
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Latencies, Meters};

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let few = Latencies::new([30, 10, 20].map(Duration::from_millis).to_vec());
        assert_eq!((few.p50_ms(), few.p99_ms()), (Some(20.0), None));
        let many = Latencies::new((1..=200).map(Duration::from_millis).collect());
        assert_eq!((many.p50_ms(), many.p99_ms()), (Some(100.0), Some(198.0)));
        assert_eq!(Latencies::default().p50_ms(), None);
    }

    #[test]
    fn what_is_not_known_at_one_end_is_not_known_at_all() {
        let known = Meters { commits: Some(7), ..Meters::default() };
        assert_eq!(known.since(Meters { commits: Some(3), ..Meters::default() }).commits, Some(4));
        assert_eq!(known.since(Meters::default()).commits, None);
    }
}
