//! Medians and percentiles.

use std::time::Duration;

/// Minimum number of samples for a meaningful 99th percentile.
const TAIL_SAMPLES_MIN: usize = 100;

/// Returns the median, which is one of the figures; NaN if there are none.
pub fn median_figure(mut figures: Vec<f64>) -> f64 {
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the median, which is one of the durations; zero if there are none.
pub fn median_duration(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

/// Latencies as the client observed them, sorted.
#[derive(Debug, Default)]
pub struct BenchLatencies(Vec<Duration>);

impl BenchLatencies {
    /// Takes latencies in any order.
    pub fn new(mut all: Vec<Duration>) -> Self {
        all.sort_unstable();
        Self(all)
    }

    /// Returns the number of samples.
    pub fn sample_count(&self) -> usize {
        self.0.len()
    }

    /// Returns a percentile in milliseconds by the nearest-rank method. `None` without samples.
    fn percentile_ms(&self, percent: usize) -> Option<f64> {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0
            .get(rank - 1)
            .map(|latency| latency.as_secs_f64() * 1_000.0)
    }

    /// Returns the median in milliseconds. `None` without samples.
    pub fn p50_ms(&self) -> Option<f64> {
        self.percentile_ms(50)
    }

    /// Returns the 99th percentile in milliseconds. `None` with fewer than 100 samples.
    pub fn p99_ms(&self) -> Option<f64> {
        (self.0.len() >= TAIL_SAMPLES_MIN)
            .then(|| self.percentile_ms(99))
            .flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{BenchLatencies, median_duration, median_figure};

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let few = BenchLatencies::new([30, 10, 20].map(Duration::from_millis).to_vec());
        assert_eq!((few.p50_ms(), few.p99_ms()), (Some(20.0), None));
        assert_eq!(
            [1, 50, 99, 100].map(|percent| few.percentile_ms(percent)),
            [10.0, 20.0, 30.0, 30.0].map(Some)
        );
        let many = BenchLatencies::new((1..=200).map(Duration::from_millis).collect());
        assert_eq!((many.p50_ms(), many.p99_ms()), (Some(100.0), Some(198.0)));
        assert_eq!(BenchLatencies::default().p50_ms(), None);
    }

    #[test]
    fn a_median_is_one_of_the_values() {
        assert_eq!(median_figure(vec![25.0, 100.0, 50.0]), 50.0);
        assert!(median_figure(Vec::new()).is_nan());
        let times = [3, 1, 2].map(Duration::from_secs).to_vec();
        assert_eq!(median_duration(times), Duration::from_secs(2));
    }
}
