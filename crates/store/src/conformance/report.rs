//! The report of a suite run, with the checks that passed and failed.

use std::collections::BTreeMap;
use std::fmt;

use super::{CheckResult, ConformanceCheck, Topic};

/// The result of a suite run.
#[derive(Debug, Clone, Default)]
pub struct ConformanceReport {
    /// Number of checks that passed, by topic.
    pub passed: BTreeMap<Topic, usize>,
    /// The checks that failed.
    pub failed: Vec<FailedCheck>,
}

/// A failed check with the reason of the failure.
#[derive(Debug, Clone)]
pub struct FailedCheck {
    /// Name of the check.
    pub name: String,
    /// Topic of the check.
    pub topic: Topic,
    /// Description of the failure.
    pub reason: String,
}

impl ConformanceReport {
    /// Panics with the list of failures if there are any, or if no check ran.
    pub fn expect_all_passed(&self) {
        assert!(self.failed.is_empty(), "{self}");
        assert!(!self.passed.is_empty(), "no check was run");
    }

    /// Whether the check of this name failed.
    pub fn has_failed(&self, name: &str) -> bool {
        self.failed.iter().any(|failed| failed.name == name)
    }
}

impl<'a> FromIterator<(&'a ConformanceCheck, CheckResult)> for ConformanceReport {
    fn from_iter<I: IntoIterator<Item = (&'a ConformanceCheck, CheckResult)>>(verdicts: I) -> Self {
        let mut report = Self::default();
        for (check, verdict) in verdicts {
            let topic = check.topic;
            match verdict {
                Ok(()) => *report.passed.entry(topic).or_default() += 1,
                Err(failure) => {
                    report.failed.push(FailedCheck {
                        name: check.name.clone(),
                        topic,
                        reason: failure.to_string(),
                    });
                }
            }
        }
        report
    }
}

impl fmt::Display for ConformanceReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} checks passed, {} failed",
            self.passed.values().sum::<usize>(),
            self.failed.len()
        )?;
        for FailedCheck {
            name,
            topic,
            reason,
        } in &self.failed
        {
            writeln!(f, "- {topic}: {name}\n  {reason}")?;
        }
        Ok(())
    }
}
