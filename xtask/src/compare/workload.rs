//! What both sides are asked to do: durable steps that do nothing, in a few arrangements.
//!
//! An answer is checked: a server that answers without having done the work would be the fastest of
//! all.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// What one invocation does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Ten durable steps, one after the other.
    Chain,
    /// A thousand of them at once, joined.
    Fanout,
    /// Thousands of them, one after the other, to see whether they get slower.
    Long,
    /// None at all: what it costs to start and to end.
    Start,
}

/// Some work, and how many invocations of it are under way at a time.
pub(crate) struct Workload {
    pub(crate) work: Work,
    pub(crate) concurrency: usize,
}

impl Workload {
    /// What it is, how many at a time, and what is counted.
    pub(crate) fn name(&self) -> String {
        format!(
            "{} × {}, {}s",
            self.work.name(),
            self.concurrency,
            self.work.unit()
        )
    }
}

/// The light ones first: what a heavy one leaves behind for later would slow them down.
pub(crate) static WORKLOADS: [Workload; 5] = [
    Workload {
        work: Work::Chain,
        concurrency: 1,
    },
    Workload {
        work: Work::Long,
        concurrency: 1,
    },
    Workload {
        work: Work::Chain,
        concurrency: 64,
    },
    Workload {
        work: Work::Start,
        concurrency: 64,
    },
    Workload {
        work: Work::Fanout,
        concurrency: 1,
    },
];

/// How many steps the first and the last part of long work have.
pub(crate) const PART_STEPS: u32 = 500;

/// How fast long work was at both its ends, in steps a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ends {
    pub(crate) first: f64,
    pub(crate) last: f64,
}

impl Work {
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

    /// What its rate counts.
    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Chain | Self::Fanout | Self::Long => "step",
            Self::Start => "start",
        }
    }

    /// How many of its unit one invocation makes.
    pub(crate) fn units(self) -> u32 {
        self.steps().max(1)
    }

    /// What the handler is given.
    pub(crate) fn input(self) -> Value {
        match self {
            Self::Chain | Self::Fanout | Self::Start => json!({ "steps": self.steps() }),
            Self::Long => json!({ "steps": self.steps(), "part": PART_STEPS }),
        }
    }

    /// Whether a handler that answers this has done its work.
    pub(crate) fn check(self, answer: &str) -> Result<()> {
        match self {
            Self::Chain | Self::Fanout | Self::Start => {
                ensure!(
                    answer.trim().parse() == Ok(self.steps()),
                    "{} answered {answer}",
                    self.name()
                );
            }
            Self::Long => {
                self.ends(answer)?;
            }
        }
        Ok(())
    }

    /// What long work says about its ends; other work says nothing.
    pub(crate) fn ends(self, answer: &str) -> Result<Option<Ends>> {
        if self != Self::Long {
            return Ok(None);
        }
        let document: Value =
            serde_json::from_str(answer).with_context(|| format!("long answered {answer}"))?;
        let number = |name: &str| {
            document[name]
                .as_f64()
                .with_context(|| format!("no {name} in {answer}"))
        };
        ensure!(
            number("done")? == f64::from(self.steps()),
            "not all steps were done: {answer}"
        );
        let rate =
            |name: &str| number(name).map(|took_ms| f64::from(PART_STEPS) * 1_000.0 / took_ms);
        Ok(Some(Ends {
            first: rate("first_ms")?,
            last: rate("last_ms")?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::{Ends, Work};

    #[test]
    fn an_answer_without_the_work_is_refused() {
        assert!(Work::Chain.check("10").is_ok());
        assert!(Work::Chain.check("9").is_err());
        assert!(Work::Start.check("0").is_ok());
        assert!(Work::Start.check("").is_err());
        assert!(
            Work::Long
                .check(r#"{"done":4999,"first_ms":1,"last_ms":1}"#)
                .is_err()
        );
    }

    #[test]
    fn long_work_tells_how_fast_its_ends_were() {
        let answer = r#"{"done":5000,"first_ms":250,"last_ms":500}"#;
        assert_eq!(
            Work::Long.ends(answer).unwrap(),
            Some(Ends {
                first: 2_000.0,
                last: 1_000.0
            })
        );
        assert_eq!(Work::Chain.ends("10").unwrap(), None);
    }
}
