//! The figures of one round, parsed from the JSON output of a side and checked for completeness.

use anyhow::{Context, Result, ensure};
use onward_benchmarks::statistics::median_figure;
use serde_json::Value;

/// Number of items or jobs.
#[derive(Clone, Copy)]
pub(crate) struct RoundSize {
    /// Executed first, and not measured.
    pub(crate) warm_up: u32,
    pub(crate) measured: u32,
}

/// The figures of one round.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DispatchRound {
    pub(crate) count: f64,
    pub(crate) seconds: f64,
    /// CPU time of the dispatching process, without the database server.
    pub(crate) cpu_seconds: f64,
    /// Bytes that the server has written to its write-ahead log.
    pub(crate) log_bytes: f64,
    /// Cores used by other processes just before the round.
    pub(crate) other_cores: f64,
    /// The settings of the side.
    pub(crate) settings: String,
}

impl DispatchRound {
    pub(crate) fn rate(&self) -> f64 {
        self.count / self.seconds
    }

    pub(crate) fn cpu_micros_each(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.count
    }

    pub(crate) fn log_bytes_each(&self) -> f64 {
        self.log_bytes / self.count
    }

    pub(crate) fn require_complete(self, size: RoundSize) -> Result<Self> {
        ensure!(
            self.count == f64::from(size.measured),
            "{} completed, expected {}",
            self.count,
            size.measured
        );
        ensure!(self.seconds > 0.0, "the measured time is zero");
        Ok(self)
    }
}

/// The median of a figure over all rounds.
pub(crate) fn median_over(rounds: &[DispatchRound], figure: impl Fn(&DispatchRound) -> f64) -> f64 {
    median_figure(rounds.iter().map(figure).collect())
}

/// Reads a required number.
pub(crate) fn number(document: &Value, name: &str) -> Result<f64> {
    document[name]
        .as_f64()
        .with_context(|| format!("no number {name} in {document}"))
}

#[cfg(test)]
mod tests {
    use super::{DispatchRound, RoundSize, median_over};

    fn round(seconds: f64) -> DispatchRound {
        DispatchRound {
            count: 100.0,
            seconds,
            ..DispatchRound::default()
        }
    }

    #[test]
    fn the_median_is_one_of_the_rounds() {
        assert_eq!(
            median_over(&[round(4.0), round(1.0), round(2.0)], DispatchRound::rate),
            50.0
        );
        assert!(median_over(&[], DispatchRound::rate).is_nan());
    }

    #[test]
    fn an_incomplete_round_is_rejected() {
        let size = RoundSize {
            warm_up: 0,
            measured: 101,
        };
        assert_eq!(
            round(1.0).require_complete(size).unwrap_err().to_string(),
            "100 completed, expected 101"
        );
    }
}
