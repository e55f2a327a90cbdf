//! How items stand together.

use std::ops::{Add, AddAssign};

use crate::{CampaignRunStatus, ItemState};

/// How many items there are, and how many stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ItemCounts {
    /// All that are meant.
    pub items: u64,
    /// Those that the provider has taken.
    pub served: u64,
    /// Those that were not delivered, and will not be.
    pub failed: u64,
    /// Those that were not to be delivered, and those that another item stands for.
    pub skipped: u64,
    /// Those of which nobody knows.
    pub in_doubt: u64,
}

impl ItemCounts {
    /// The tally of items that stand so.
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

    /// Those for which something has still to be done.
    pub const fn open_items(&self) -> u64 {
        self.items
            .saturating_sub(self.served + self.failed + self.skipped + self.in_doubt)
    }

    /// Whether every item is settled.
    pub const fn is_settled(&self) -> bool {
        self.open_items() == 0 && self.in_doubt == 0
    }

    /// What a campaign run whose jobs are all over came to. One that was cut short has not reached everybody.
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
