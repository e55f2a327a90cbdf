//! The report of a replay divergence: a guest that requests something other than its journal
//! records.

use std::fmt;

use onward_journal::{ExecutionId, JournalEvent};

/// The first point at which a guest requested something other than the journal records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplayDivergence {
    /// The sequence number of the recorded event.
    pub sequence: u64,
    /// A description of the recorded event, for people.
    pub recorded: String,
    /// A description of the guest's request, for people.
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
