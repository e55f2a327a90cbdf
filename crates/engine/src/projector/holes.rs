//! Places in a log that were empty when it was read to the end.

use onward_journal::Text;
use onward_runs::{Gap, RunSeq};
use serde::{Deserialize, Serialize};

/// Ranges of sequences that are missing, in order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Holes(Vec<(RunSeq, RunSeq)>);

impl Holes {
    /// What `text` says; what cannot be read is taken for none.
    pub(crate) fn parse(text: Option<&Text>) -> Self {
        text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
    }

    pub(crate) fn to_text(&self) -> Option<Text> {
        if self.0.is_empty() { None } else { serde_json::to_string(self).ok().map(Text::from) }
    }

    /// Adds the events between the two that `gap` names.
    pub(crate) fn push(&mut self, gap: Gap) {
        let last = RunSeq::new(gap.before.get().saturating_sub(1)).unwrap_or(RunSeq::ZERO);
        self.0.push((gap.after.next(), last));
    }

    /// The first and the last missing event of each range.
    pub fn ranges(&self) -> impl Iterator<Item = (RunSeq, RunSeq)> {
        self.0.iter().copied()
    }

    /// Whether nothing is missing.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
