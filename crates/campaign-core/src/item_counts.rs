//! Item counts of a job or campaign run by state, and the run status that follows from them.

use std::ops::{Add, AddAssign};

use crate::{CampaignRunStatus, ItemState};

/// Number of items of a job or campaign run, in total and by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemCounts {
    /// All items of the job or run.
    pub items: u64,
    /// Items that the provider accepted.
    pub served: u64,
    /// Items that were not delivered and will not be.
    pub failed: u64,
    /// Items that were excluded from delivery, and duplicates of another item.
    pub skipped: u64,
    /// Items in doubt: it is unknown whether the provider accepted them.
    pub in_doubt: u64,
}

impl ItemCounts {
    /// Counts items by their states.
    pub fn from_states(standings: impl IntoIterator<Item = ItemState>) -> Self {
        let mut tally = Self::default();
        for standing in standings {
            tally.items += 1;
            match standing {
                ItemState::Served => tally.served += 1,
                ItemState::Failed => tally.failed += 1,
                ItemState::Skipped => tally.skipped += 1,
                ItemState::InDoubt => tally.in_doubt += 1,
                ItemState::Unreserved | ItemState::Held | ItemState::Deferred => {}
            }
        }
        tally
    }

    /// Number of items that a worker still has to process: neither settled nor in doubt.
    pub const fn open_items(&self) -> u64 {
        self.items
            .saturating_sub(self.served + self.failed + self.skipped + self.in_doubt)
    }

    /// Whether every item is settled: none is open and none is in doubt.
    pub const fn is_settled(&self) -> bool {
        self.open_items() == 0 && self.in_doubt == 0
    }

    /// The final status of a campaign run whose jobs are all over. A run that was cut short did not
    /// reach all recipients and is never `Completed`.
    pub const fn final_run_status(&self, is_cut_short: bool) -> CampaignRunStatus {
        match (self.served, self.failed > 0 || is_cut_short) {
            (_, false) => CampaignRunStatus::Completed,
            (0, true) => CampaignRunStatus::Failed,
            (_, true) => CampaignRunStatus::Partial,
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
            served,
            failed,
            skipped,
            in_doubt,
        } = other;
        self.items += items;
        self.served += served;
        self.failed += failed;
        self.skipped += skipped;
        self.in_doubt += in_doubt;
    }
}
