//! The error for a refused event or command: the rule, the sequence number and the reason.

use thiserror::Error;

use crate::{EventKind, Rule};

/// An event or command broke a rule; nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{rule} ({}) at sequence {sequence}, {event}: {message}. {}", .rule.invariant().name, .rule.invariant().text)]
pub struct RuleViolation {
    /// The rule that was broken.
    pub rule: Rule,
    /// The sequence number of the refused event, as it was given.
    pub sequence: u64,
    /// The kind of the event that was refused.
    pub event: EventKind,
    /// What is wrong with the event, as text for people.
    pub message: String,
}

impl RuleViolation {
    /// Creates the violation for a journal without events: rule S-2 requires a first one.
    pub fn empty_journal() -> Self {
        let message = "the journal is empty".to_owned();
        Self {
            rule: Rule::S2,
            sequence: 0,
            event: EventKind::ExecutionStarted,
            message,
        }
    }
}
