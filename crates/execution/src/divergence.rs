//! A guest that does not repeat what it did.

use std::fmt;

use onward_journal::{ExecutionId, JournalEvent};

/// The first place at which a guest asked for something else than is recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayDivergence {
    /// The sequence of the recorded event.
    pub sequence: u64,
    /// What is recorded, in words.
    pub recorded: String,
    /// What the guest asked for, in words.
    pub requested: String,
}

impl ReplayDivergence {
    pub(crate) fn new(own: ExecutionId, recorded: &JournalEvent, asked: impl fmt::Display) -> Self {
        let described = recorded.event.describe(own).to_string();
        Self {
            sequence: recorded.sequence,
            recorded: described,
            requested: asked.to_string(),
        }
    }
}

impl fmt::Display for ReplayDivergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "sequence {} records {}, the function asks for {}",
            self.sequence, self.recorded, self.requested
        )
    }
}
