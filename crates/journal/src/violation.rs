//! What a refused event or command is told: the rule, the place and the reason.

use thiserror::Error;

use crate::{EventKind, Rule};

/// A rule was broken; nothing was changed.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{rule} ({}) at sequence {sequence}, {event}: {message}. {}", .rule.invariant().name, .rule.invariant().text)]
pub struct RuleViolation {
    /// The rule that was broken.
    pub rule: Rule,
    /// The sequence number of the offending event, as it was given.
    pub sequence: u64,
    /// The event that was refused.
    pub event: EventKind,
    /// What is wrong with it.
    pub message: String,
}

impl RuleViolation {
    /// A journal without events: even the first rule asks for one.
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
