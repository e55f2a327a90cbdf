//! What a side says of one round: read from the JSON that it prints, and refused if it is not about
//! what was asked for.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// How many items or jobs.
#[derive(Clone, Copy)]
pub(crate) struct Size {
    /// They come first and do not count.
    pub(crate) warm_up: u32,
    pub(crate) measured: u32,
}

/// One round of a side, or the medians of several.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Round {
    pub(crate) count: f64,
    pub(crate) seconds: f64,
    /// CPU time of the process that is not the server.
    pub(crate) cpu_seconds: f64,
    /// What the server has written to its log.
    pub(crate) log_bytes: f64,
    /// How many cores were busy with other things just before.
    pub(crate) other_cores: f64,
    /// What was set for it, in words.
    pub(crate) settings: String,
}

impl Round {
    pub(crate) fn rate(&self) -> f64 {
        self.count / self.seconds
    }

    pub(crate) fn cpu_micros_each(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.count
    }

    pub(crate) fn log_bytes_each(&self) -> f64 {
        self.log_bytes / self.count
    }

    pub(crate) fn expect(self, size: Size) -> Result<Self> {
        ensure!(
            self.count == f64::from(size.measured),
            "{} were done of {}",
            self.count,
            size.measured
        );
        ensure!(self.seconds > 0.0, "it took no time");
        Ok(self)
    }
}

/// The middle one of what the rounds have.
pub(crate) fn median(rounds: &[Round], figure: impl Fn(&Round) -> f64) -> f64 {
    let mut figures: Vec<f64> = rounds.iter().map(figure).collect();
    figures.sort_unstable_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A number that has to be there.
pub(crate) fn number(document: &Value, name: &str) -> Result<f64> {
    document[name]
        .as_f64()
        .with_context(|| format!("no {name} in {document}"))
}

#[cfg(test)]
mod tests {
    use super::{Round, Size, median};

    fn round(seconds: f64) -> Round {
        Round {
            count: 100.0,
            seconds,
            ..Round::default()
        }
    }

    #[test]
    fn the_median_is_one_of_the_rounds() {
        assert_eq!(
            median(&[round(4.0), round(1.0), round(2.0)], Round::rate),
            50.0
        );
        assert!(median(&[], Round::rate).is_nan());
    }

    #[test]
    fn a_round_that_did_less_is_refused() {
        let size = Size {
            warm_up: 0,
            measured: 101,
        };
        assert_eq!(
            round(1.0).expect(size).unwrap_err().to_string(),
            "100 were done of 101"
        );
    }
}
