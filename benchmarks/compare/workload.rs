//! The workloads of the comparison: durable steps that do nothing, in several arrangements.
//!
//! Every result is checked, so that a server cannot respond without doing the work.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// The work of one invocation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum ComparedWork {
    /// Ten durable steps in sequence.
    Chain,
    /// A thousand steps in parallel, joined.
    Fanout,
    /// Thousands of steps in sequence, to detect whether they become slower.
    Long,
    /// No steps: the cost of starting and completing an execution.
    Start,
}

/// A kind of work and its number of concurrent invocations.
pub(crate) struct ComparedWorkload {
    pub(crate) work: ComparedWork,
    pub(crate) concurrency: usize,
}

impl ComparedWorkload {
    /// The work, the concurrency, and the unit that is counted.
    pub(crate) fn name(&self) -> String {
        format!(
            "{} × {}, {}s",
            self.work.name(),
            self.concurrency,
            self.work.unit()
        )
    }
}

/// Light workloads first, because deferred work of a heavy one would slow them down.
pub(crate) static WORKLOADS: [ComparedWorkload; 5] = [
    ComparedWorkload {
        work: ComparedWork::Chain,
        concurrency: 1,
    },
    ComparedWorkload {
        work: ComparedWork::Long,
        concurrency: 1,
    },
    ComparedWorkload {
        work: ComparedWork::Chain,
        concurrency: 64,
    },
    ComparedWorkload {
        work: ComparedWork::Start,
        concurrency: 64,
    },
    ComparedWorkload {
        work: ComparedWork::Fanout,
        concurrency: 1,
    },
];

/// Number of steps in the first and in the last part of the long workload.
pub(crate) const PART_STEPS: u32 = 500;

/// Rates of the first and the last part of the long workload, in steps per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct EndRates {
    pub(crate) first: f64,
    pub(crate) last: f64,
}

impl ComparedWork {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Chain => "chain",
            Self::Fanout => "fanout",
            Self::Long => "long",
            Self::Start => "start",
        }
    }

    pub(crate) const fn steps(self) -> u32 {
        match self {
            Self::Chain => 10,
            Self::Fanout => 1_000,
            Self::Long => 5_000,
            Self::Start => 0,
        }
    }

    /// The unit of its rate.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Chain | Self::Fanout | Self::Long => "step",
            Self::Start => "start",
        }
    }

    /// Number of units per invocation.
    pub(crate) fn units(self) -> u32 {
        self.steps().max(1)
    }

    /// The input of the handler.
    pub(crate) fn input(self) -> Value {
        match self {
            Self::Chain | Self::Fanout | Self::Start => json!({ "steps": self.steps() }),
            Self::Long => json!({ "steps": self.steps(), "part": PART_STEPS }),
        }
    }

    /// Checks that the result proves the work was done.
    pub(crate) fn check(self, result: &str) -> Result<()> {
        match self {
            Self::Chain | Self::Fanout | Self::Start => {
                ensure!(
                    result.trim().parse() == Ok(self.steps()),
                    "wrong result of {}: {result}",
                    self.name()
                );
            }
            Self::Long => {
                self.ends(result)?;
            }
        }
        Ok(())
    }

    /// Reads the rates of both ends from a result of the long workload; none for other work.
    pub(crate) fn ends(self, result: &str) -> Result<Option<EndRates>> {
        if self != Self::Long {
            return Ok(None);
        }
        let document: Value = serde_json::from_str(result)
            .with_context(|| format!("the result of long is not JSON: {result}"))?;
        let number = |name: &str| {
            document[name]
                .as_f64()
                .with_context(|| format!("no number {name} in the result: {result}"))
        };
        ensure!(
            number("done")? == f64::from(self.steps()),
            "not all steps were completed: {result}"
        );
        let rate =
            |name: &str| number(name).map(|took_ms| f64::from(PART_STEPS) * 1_000.0 / took_ms);
        Ok(Some(EndRates {
            first: rate("first_ms")?,
            last: rate("last_ms")?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{ComparedWork, EndRates};

    #[test]
    fn a_result_without_the_work_is_rejected() {
        assert!(ComparedWork::Chain.check("10").is_ok());
        assert!(ComparedWork::Chain.check("9").is_err());
        assert!(ComparedWork::Start.check("0").is_ok());
        assert!(ComparedWork::Start.check("").is_err());
        assert!(
            ComparedWork::Long
                .check(r#"{"done":4999,"first_ms":1,"last_ms":1}"#)
                .is_err()
        );
    }

    #[test]
    fn the_long_workload_reports_the_rates_of_both_ends() {
        let result = r#"{"done":5000,"first_ms":250,"last_ms":500}"#;
        assert_eq!(
            ComparedWork::Long.ends(result).unwrap(),
            Some(EndRates {
                first: 2_000.0,
                last: 1_000.0
            })
        );
        assert_eq!(ComparedWork::Chain.ends("10").unwrap(), None);
    }
}
