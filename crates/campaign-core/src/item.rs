//! An item: one recipient of a campaign run, and one call of a provider.

use crate::{DeliveryChannel, text_enum};

text_enum! {
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

text_enum! {
    /// Why an item was skipped, or failed.
    ItemReason {
        /// The recipient wants nothing more.
        Suppressed = "suppressed",
        /// The campaign run was cancelled before.
        Cancelled = "cancelled",
        /// The provider has refused it for good.
        Refused = "refused",
        /// It was tried as often as it may be.
        Exhausted = "exhausted",
        /// Somebody has said so.
        OperatorResolution = "verdict",
        /// What is to be sent cannot be made.
        InvalidMessage = "unfit",
    }
}

/// Where an item stands. It tells apart what the status `queued` does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemState {
    /// There is no row yet.
    Unreserved,
    /// Reserved by whoever has the job: the provider may be hearing of it now.
    Held,
    /// Reserved, and the provider has not taken it.
    Deferred,
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
pub enum ItemTransition {
    /// It is reserved, so that the provider can be called.
    Reserve,
    /// It is reserved anew although the provider may have heard of it: for those that take a key once.
    ReserveAgain,
    /// The provider has taken it.
    Accept,
    /// The provider has refused it, for good.
    Refuse,
    /// The provider has not taken it now.
    Defer,
    /// Whoever called has not heard what became of it.
    MarkInDoubt,
    /// The provider knows nothing of it.
    ConfirmNotSent,
    /// Nobody tries any more.
    Exhaust,
    /// It is not wanted.
    Skip,
    /// Somebody wants it tried again although nobody did any more.
    Redrive,
}

impl ItemState {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Unreserved,
        Self::Held,
        Self::Deferred,
        Self::InDoubt,
        Self::Served,
        Self::Failed,
        Self::Skipped,
    ];

    /// Where `act` leads; `None` if it is illegal.
    pub const fn next_state(self, act: ItemTransition) -> Option<Self> {
        match (self, act) {
            (Self::Unreserved | Self::Deferred, ItemTransition::Reserve) => Some(Self::Held),
            (Self::Unreserved | Self::Deferred, ItemTransition::Skip) => Some(Self::Skipped),
            (Self::Unreserved | Self::Deferred, ItemTransition::Exhaust) => Some(Self::Failed),

            (Self::Held, ItemTransition::Accept) => Some(Self::Served),
            (Self::Held, ItemTransition::Refuse) => Some(Self::Failed),
            (Self::Held, ItemTransition::Defer) => Some(Self::Deferred),
            (Self::Held, ItemTransition::MarkInDoubt) => Some(Self::InDoubt),

            (Self::InDoubt, ItemTransition::Accept) => Some(Self::Served),
            (Self::InDoubt, ItemTransition::Refuse) => Some(Self::Failed),
            (Self::InDoubt, ItemTransition::ConfirmNotSent) => Some(Self::Deferred),
            (Self::InDoubt, ItemTransition::ReserveAgain) => Some(Self::Held),

            (Self::Failed, ItemTransition::Redrive) => Some(Self::Deferred),

            (
                Self::Unreserved
                | Self::Held
                | Self::Deferred
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
        matches!(self, Self::Unreserved | Self::Deferred | Self::Held)
    }

    /// Whether nothing follows.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Served | Self::Failed | Self::Skipped)
    }

    /// What the table says; nothing where there is no row.
    pub const fn status(self, channel: DeliveryChannel) -> Option<ItemStatus> {
        match self {
            Self::Unreserved => None,
            Self::Held | Self::Deferred | Self::InDoubt => Some(ItemStatus::Queued),
            Self::Served => Some(channel.accepted_status()),
            Self::Failed => Some(ItemStatus::Failed),
            Self::Skipped => Some(ItemStatus::Skipped),
        }
    }

    /// Where an item stands whose row says this.
    pub const fn from_status(status: ItemStatus, is_held: bool, is_in_doubt: bool) -> Self {
        match status {
            ItemStatus::Queued if is_in_doubt => Self::InDoubt,
            ItemStatus::Queued if is_held => Self::Held,
            ItemStatus::Queued => Self::Deferred,
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

    const ACTS: [ItemTransition; 10] = [
        ItemTransition::Reserve,
        ItemTransition::ReserveAgain,
        ItemTransition::Accept,
        ItemTransition::Refuse,
        ItemTransition::Defer,
        ItemTransition::MarkInDoubt,
        ItemTransition::ConfirmNotSent,
        ItemTransition::Exhaust,
        ItemTransition::Skip,
        ItemTransition::Redrive,
    ];

    #[test]
    fn the_table_is_this() {
        let mut table = String::new();
        for standing in ItemState::ALL {
            for act in ACTS {
                if let Some(next) = standing.next_state(act) {
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
        let items = page
            .split("\n## ")
            .find(|part| part.starts_with("Items\n"))
            .unwrap();
        let rows = items.lines().filter(|line| line.starts_with("| ")).skip(1);
        let standing = |word: &str| match word.trim() {
            "no row" => ItemState::Unreserved,
            "put off" => ItemState::Deferred,
            "held" => ItemState::Held,
            "in doubt" => ItemState::InDoubt,
            "served" => ItemState::Served,
            "failed" => ItemState::Failed,
            "skipped" => ItemState::Skipped,
            other => panic!("{other}"),
        };
        let mut said = Vec::new();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let from = cells[0].trim_end_matches(", because nobody tried any more");
            said.extend(
                from.split(',')
                    .map(|from| format!("{:?} {:?}", standing(from), standing(cells[2]))),
            );
        }
        let done = ItemState::ALL.into_iter().flat_map(|from| {
            ACTS.into_iter()
                .filter_map(move |act| Some(format!("{from:?} {:?}", from.next_state(act)?)))
        });
        let mut done: Vec<String> = done.collect();
        said.sort();
        done.sort();
        assert_eq!(said, done);
    }

    #[test]
    fn a_provider_is_called_only_for_what_is_held_and_nothing_is_held_twice_without_an_answer() {
        for standing in ItemState::ALL {
            let held = [ItemTransition::Reserve, ItemTransition::ReserveAgain]
                .map(|act| standing.next_state(act))
                .contains(&Some(ItemState::Held));
            let may_have_been_called = matches!(standing, ItemState::Held | ItemState::Served);
            assert!(!held || !may_have_been_called, "{standing:?}");
        }
        assert_eq!(
            ItemState::InDoubt.next_state(ItemTransition::Reserve),
            None,
            "only for providers that take a key once"
        );
    }

    #[test]
    fn rows_say_where_items_stand() {
        for channel in DeliveryChannel::ALL {
            for standing in ItemState::ALL {
                let Some(status) = standing.status(channel) else {
                    continue;
                };
                let (held, doubt) = (standing == ItemState::Held, standing == ItemState::InDoubt);
                assert_eq!(ItemState::from_status(status, held, doubt), standing);
                assert_eq!(status.is_terminal(), standing.is_terminal());
            }
        }
    }
}
