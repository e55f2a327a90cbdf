//! An item: one recipient of a campaign run, and one call of a provider.

use crate::{Channel, words};

words! {
    /// What the table says of an item.
    ItemStatus {
        /// Reserved, and not settled.
        Queued = "queued",
        /// The provider has taken a mail.
        Sent = "sent",
        /// The provider has made a call.
        Called = "called",
        /// The provider has published a post.
        Posted = "posted",
        /// It was not delivered, and will not be.
        Failed = "failed",
        /// It was not to be delivered.
        Skipped = "skipped",
    }
}

impl ItemStatus {
    /// Whether nothing follows.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Queued)
    }
}

words! {
    /// Why an item was skipped, or failed.
    Reason {
        /// The recipient wants nothing more.
        Suppressed = "suppressed",
        /// The campaign run was cancelled before.
        Cancelled = "cancelled",
        /// The provider has refused it for good.
        Refused = "refused",
        /// It was tried as often as it may be.
        Exhausted = "exhausted",
        /// Somebody has said so.
        Verdict = "verdict",
        /// What is to be sent cannot be made.
        Unfit = "unfit",
    }
}

/// Where an item stands. It tells apart what the status `queued` does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Standing {
    /// There is no row yet.
    Unreserved,
    /// Reserved by whoever has the job: the provider may be hearing of it now.
    Held,
    /// Reserved, and the provider has not taken it.
    Free,
    /// Reserved, and nobody knows whether the provider was reached.
    InDoubt,
    /// The provider has taken it.
    Served,
    /// It was not delivered, and will not be.
    Failed,
    /// It was not to be delivered.
    Skipped,
}

/// What happens to an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Act {
    /// It is reserved, so that the provider can be called.
    Reserve,
    /// It is reserved anew although the provider may have heard of it: for those that take a key once.
    Repeat,
    /// The provider has taken it.
    Accept,
    /// The provider has refused it, for good.
    Refuse,
    /// The provider has not taken it now.
    Defer,
    /// Whoever called has not heard what became of it.
    Lose,
    /// The provider knows nothing of it.
    Miss,
    /// Nobody tries any more.
    GiveUp,
    /// It is not wanted.
    Exclude,
    /// Somebody wants it tried again although nobody did any more.
    Redrive,
}

impl Standing {
    /// All of them.
    pub const ALL: [Self; 7] =
        [Self::Unreserved, Self::Held, Self::Free, Self::InDoubt, Self::Served, Self::Failed, Self::Skipped];

    /// Where `act` leads; `None` if it is illegal.
    pub const fn after(self, act: Act) -> Option<Self> {
        match (self, act) {
            (Self::Unreserved | Self::Free, Act::Reserve) => Some(Self::Held),
            (Self::Unreserved | Self::Free, Act::Exclude) => Some(Self::Skipped),
            (Self::Unreserved | Self::Free, Act::GiveUp) => Some(Self::Failed),

            (Self::Held, Act::Accept) => Some(Self::Served),
            (Self::Held, Act::Refuse) => Some(Self::Failed),
            (Self::Held, Act::Defer) => Some(Self::Free),
            (Self::Held, Act::Lose) => Some(Self::InDoubt),

            (Self::InDoubt, Act::Accept) => Some(Self::Served),
            (Self::InDoubt, Act::Refuse) => Some(Self::Failed),
            (Self::InDoubt, Act::Miss) => Some(Self::Free),
            (Self::InDoubt, Act::Repeat) => Some(Self::Held),

            (Self::Failed, Act::Redrive) => Some(Self::Free),

            (
                Self::Unreserved
                | Self::Held
                | Self::Free
                | Self::InDoubt
                | Self::Served
                | Self::Failed
                | Self::Skipped,
                _,
            ) => None,
        }
    }

    /// Whether something has still to be done for it that a worker can do.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Unreserved | Self::Free | Self::Held)
    }

    /// Whether nothing follows.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Served | Self::Failed | Self::Skipped)
    }

    /// What the table says; nothing where there is no row.
    pub const fn status(self, channel: Channel) -> Option<ItemStatus> {
        match self {
            Self::Unreserved => None,
            Self::Held | Self::Free | Self::InDoubt => Some(ItemStatus::Queued),
            Self::Served => Some(channel.served()),
            Self::Failed => Some(ItemStatus::Failed),
            Self::Skipped => Some(ItemStatus::Skipped),
        }
    }

    /// Where an item stands whose row says this.
    pub const fn of(status: ItemStatus, is_held: bool, is_in_doubt: bool) -> Self {
        match status {
            ItemStatus::Queued if is_in_doubt => Self::InDoubt,
            ItemStatus::Queued if is_held => Self::Held,
            ItemStatus::Queued => Self::Free,
            ItemStatus::Sent | ItemStatus::Called | ItemStatus::Posted => Self::Served,
            ItemStatus::Failed => Self::Failed,
            ItemStatus::Skipped => Self::Skipped,
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    const ACTS: [Act; 10] = [
        Act::Reserve,
        Act::Repeat,
        Act::Accept,
        Act::Refuse,
        Act::Defer,
        Act::Lose,
        Act::Miss,
        Act::GiveUp,
        Act::Exclude,
        Act::Redrive,
    ];

    #[test]
    fn the_table_is_this() {
        let mut table = String::new();
        for standing in Standing::ALL {
            for act in ACTS {
                if let Some(next) = standing.after(act) {
                    table.push_str(&format!("{standing:?} {act:?} {next:?}\n"));
                }
            }
        }
        expect![[r#"
            Unreserved Reserve Held
            Unreserved GiveUp Failed
            Unreserved Exclude Skipped
            Held Accept Served
            Held Refuse Failed
            Held Defer Free
            Held Lose InDoubt
            Free Reserve Held
            Free GiveUp Failed
            Free Exclude Skipped
            InDoubt Repeat Held
            InDoubt Accept Served
            InDoubt Refuse Failed
            InDoubt Miss Free
            Failed Redrive Free
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn the_table_of_the_specification_is_the_same() {
        let page = include_str!("../../../spec/dispatch.md");
        let items = page.split("\n## ").find(|part| part.starts_with("Items\n")).unwrap();
        let rows = items.lines().filter(|line| line.starts_with("| ")).skip(1);
        let standing = |word: &str| match word.trim() {
            "no row" => Standing::Unreserved,
            "put off" => Standing::Free,
            "held" => Standing::Held,
            "in doubt" => Standing::InDoubt,
            "served" => Standing::Served,
            "failed" => Standing::Failed,
            "skipped" => Standing::Skipped,
            other => panic!("{other}"),
        };
        let mut said = Vec::new();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let from = cells[0].trim_end_matches(", because nobody tried any more");
            said.extend(from.split(',').map(|from| format!("{:?} {:?}", standing(from), standing(cells[2]))));
        }
        let done = Standing::ALL
            .into_iter()
            .flat_map(|from| ACTS.into_iter().filter_map(move |act| Some(format!("{from:?} {:?}", from.after(act)?))));
        let mut done: Vec<String> = done.collect();
        said.sort();
        done.sort();
        assert_eq!(said, done);
    }

    #[test]
    fn a_provider_is_called_only_for_what_is_held_and_nothing_is_held_twice_without_an_answer() {
        for standing in Standing::ALL {
            let held = [Act::Reserve, Act::Repeat].map(|act| standing.after(act)).contains(&Some(Standing::Held));
            let may_have_been_called = matches!(standing, Standing::Held | Standing::Served);
            assert!(!held || !may_have_been_called, "{standing:?}");
        }
        assert_eq!(Standing::InDoubt.after(Act::Reserve), None, "only for providers that take a key once");
    }

    #[test]
    fn rows_say_where_items_stand() {
        for channel in Channel::ALL {
            for standing in Standing::ALL {
                let Some(status) = standing.status(channel) else { continue };
                let (held, doubt) = (standing == Standing::Held, standing == Standing::InDoubt);
                assert_eq!(Standing::of(status, held, doubt), standing);
                assert_eq!(status.is_terminal(), standing.is_terminal());
            }
        }
    }
}
