//! Ranges of a log that were missing when it was read to its end.

use onward_base::SharedText;
use onward_runs::{RunEventGap, RunSeq};
use onward_store::Error;
use serde::{Deserialize, Serialize};

/// Missing ranges of sequences, in ascending order.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct MissingRanges(Vec<(RunSeq, RunSeq)>);

impl MissingRanges {
    /// Parses the stored form. Fails with [`Error::Corrupt`] if the projector cannot have written
    /// it.
    pub fn parse(text: Option<&SharedText>) -> Result<Self, Error> {
        text.map_or_else(
            || Ok(Self::default()),
            |text| {
                serde_json::from_str(text).map_err(|error| {
                    Error::corrupt(format!("the missing ranges of a snapshot: {error}"))
                })
            },
        )
    }

    pub(crate) fn to_text(&self) -> Option<SharedText> {
        if self.0.is_empty() {
            None
        } else {
            serde_json::to_string(self).ok().map(SharedText::from)
        }
    }

    /// Adds the range of events between the two that `gap` names.
    pub(crate) fn push_gap(&mut self, gap: RunEventGap) {
        let last = RunSeq::new(gap.before_seq.as_u64().saturating_sub(1)).unwrap_or(RunSeq::ZERO);
        self.0.push((gap.after_seq.next_seq(), last));
    }

    /// The first and the last missing sequence of each range.
    pub fn ranges(&self) -> impl Iterator<Item = (RunSeq, RunSeq)> {
        self.0.iter().copied()
    }

    /// Whether nothing is missing.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
