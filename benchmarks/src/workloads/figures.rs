//! The figures of one workload: rates, latencies and used resources.

use std::time::Duration;

use crate::statistics::BenchLatencies;

/// Resources that a server and the driver have used up to a point in time. `None` where the system
/// does not report them.
#[derive(Clone, Copy, Default)]
pub(super) struct BenchUsage {
    pub(super) cpu: Option<Duration>,
    pub(super) driver_cpu: Option<Duration>,
    pub(super) written_bytes: Option<u64>,
    pub(super) commits: Option<u64>,
}

impl BenchUsage {
    /// Returns the usage since `before`. A value that is unknown at either point is `None`.
    pub(super) fn usage_since(self, before: Self) -> Self {
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

/// The figures of one workload at one concurrency.
pub(super) struct BenchFigures {
    pub(super) workload: &'static str,
    pub(super) concurrency: usize,
    /// Name of the counted unit: `step`, `start` or `item`.
    pub(super) unit: &'static str,
    pub(super) executions: usize,
    pub(super) units: u64,
    pub(super) took: Duration,
    pub(super) latencies: BenchLatencies,
    pub(super) used: BenchUsage,
    /// Baseline: plain one-row commits per second, measured before and after the workload.
    pub(super) commit_rates: [f64; 2],
    /// Figures that only this workload reports.
    pub(super) extra_figures: Vec<ExtraFigure>,
}

/// A figure that only one workload reports.
pub(super) struct ExtraFigure {
    /// Field name in the JSON report.
    pub(super) key: &'static str,
    /// Label in the table.
    pub(super) label: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

impl BenchFigures {
    pub(super) fn per_second(&self) -> f64 {
        self.units as f64 / self.took.as_secs_f64()
    }

    /// Returns the mean of the baseline before and after the workload, in commits per second.
    pub(super) fn mean_commit_rate(&self) -> f64 {
        self.commit_rates.iter().sum::<f64>() / 2.0
    }

    /// Divides a total by the number of units.
    pub(super) fn per_unit(&self, total: f64) -> f64 {
        total / self.units as f64
    }

    pub(super) fn with_figure(
        mut self,
        key: &'static str,
        label: &str,
        value: f64,
        unit: &'static str,
    ) -> Self {
        self.extra_figures.push(ExtraFigure {
            key,
            label: label.to_owned(),
            value,
            unit,
        });
        self
    }
}

#[cfg(test)]
mod tests {
    use super::BenchUsage;

    #[test]
    fn a_value_that_is_unknown_at_one_reading_has_no_difference() {
        let known = BenchUsage {
            commits: Some(7),
            ..BenchUsage::default()
        };
        assert_eq!(
            known
                .usage_since(BenchUsage {
                    commits: Some(3),
                    ..BenchUsage::default()
                })
                .commits,
            Some(4)
        );
        assert_eq!(known.usage_since(BenchUsage::default()).commits, None);
    }
}
