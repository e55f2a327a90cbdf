//! Item counts of a job or campaign run by state, and the run status that follows from them.

use std::ops::{Add, AddAssign};

use crate::{CampaignRunStatus, ItemState};

/// Number of items of a job or campaign run, in total and by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemCounts {
    /// All items of the job or run.
    pub items: u64,
    /// Items that the provider accepted.
    pub sent: u64,
    /// Items that were not delivered and will not be.
    pub failed: u64,
    /// Items that were excluded from delivery, and duplicates of another item.
    pub skipped: u64,
    /// Items in doubt: it is unknown whether the provider accepted them.
    pub in_doubt: u64,
}

/// Whether a campaign run processed all of its recipients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunCoverage {
    /// Every recipient was processed.
    AllRecipients,
    /// The run was cancelled before every recipient was processed.
    CutShort,
}

impl ItemCounts {
    /// Counts items by their states.
    pub fn from_states(states: impl IntoIterator<Item = ItemState>) -> Self {
        let mut counts = Self::default();
        for state in states {
            counts.items += 1;
            match state {
                ItemState::Sent => counts.sent += 1,
                ItemState::Failed => counts.failed += 1,
                ItemState::Skipped => counts.skipped += 1,
                ItemState::InDoubt => counts.in_doubt += 1,
                ItemState::Unreserved | ItemState::Reserved | ItemState::Deferred => {}
            }
        }
        counts
    }

    /// Number of items that a worker still has to process: neither settled nor in doubt.
    pub const fn open_items(&self) -> u64 {
        self.items
            .saturating_sub(self.sent + self.failed + self.skipped + self.in_doubt)
    }

    /// Whether every item is settled: none is open and none is in doubt.
    pub const fn is_settled(&self) -> bool {
        self.open_items() == 0 && self.in_doubt == 0
    }

    /// The final status of a campaign run whose jobs have all ended. A run that was cut short did
    /// not reach all recipients and is never `Completed`.
    pub const fn final_run_status(&self, coverage: RunCoverage) -> CampaignRunStatus {
        match (self.sent, self.failed, coverage) {
            (_, 0, RunCoverage::AllRecipients) => CampaignRunStatus::Completed,
            (0, _, _) => CampaignRunStatus::Failed,
            (_, _, _) => CampaignRunStatus::Partial,
        }
    }
}

impl Add for ItemCounts {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for ItemCounts {
    fn add_assign(&mut self, other: Self) {
        let Self {
            items,
            sent,
            failed,
            skipped,
            in_doubt,
        } = other;
        self.items += items;
        self.sent += sent;
        self.failed += failed;
        self.skipped += skipped;
        self.in_doubt += in_doubt;
    }
}
