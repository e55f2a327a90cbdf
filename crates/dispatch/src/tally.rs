//! How items stand together.

use std::ops::{Add, AddAssign};

use crate::{RunStatus, Standing};

/// How many items there are, and how many stand where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
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

impl Tally {
    /// The tally of items that stand so.
    pub fn of(standings: impl IntoIterator<Item = Standing>) -> Self {
        let mut tally = Self::default();
        for standing in standings {
            tally.items += 1;
            match standing {
                Standing::Served => tally.served += 1,
                Standing::Failed => tally.failed += 1,
                Standing::Skipped => tally.skipped += 1,
                Standing::InDoubt => tally.in_doubt += 1,
                Standing::Unreserved | Standing::Held | Standing::Free => {}
            }
        }
        tally
    }

    /// Those for which something has still to be done.
    pub const fn open(&self) -> u64 {
        self.items.saturating_sub(self.served + self.failed + self.skipped + self.in_doubt)
    }

    /// Whether every item is settled.
    pub const fn is_settled(&self) -> bool {
        self.open() == 0 && self.in_doubt == 0
    }

    /// What a campaign run whose jobs are all over came to. One that was cut short has not reached everybody.
    pub const fn outcome(&self, is_cut_short: bool) -> RunStatus {
        match (self.served, self.failed > 0 || is_cut_short) {
            (_, false) => RunStatus::Completed,
            (0, true) => RunStatus::Failed,
            (_, true) => RunStatus::Partial,
        }
    }
}

impl Add for Tally {
    type Output = Self;

    fn add(mut self, other: Self) -> Self {
        self += other;
        self
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        let Self { items, served, failed, skipped, in_doubt } = other;
        self.items += items;
        self.served += served;
        self.failed += failed;
        self.skipped += skipped;
        self.in_doubt += in_doubt;
    }
}
