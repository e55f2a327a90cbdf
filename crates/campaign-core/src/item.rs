//! An outbox item: one recipient of a campaign run, and one send to a provider.

use crate::{DeliveryChannel, text_enum};

text_enum! {
    /// The status of an item as stored in its row.
    ItemStatus {
        /// The item is reserved and not settled.
        Queued = "queued",
        /// The provider accepted an email.
        Sent = "sent",
        /// The provider made a call.
        Called = "called",
        /// The provider published a post.
        Posted = "posted",
        /// The item was not delivered and will not be.
        Failed = "failed",
        /// The item was excluded from delivery.
        Skipped = "skipped",
    }
}

impl ItemStatus {
    /// Whether the item is settled: every status except `queued`.
    pub const fn is_terminal(self) -> bool {
        !matches!(self, Self::Queued)
    }
}

text_enum! {
    /// The reason why an item was skipped or failed.
    ItemReason {
        /// The recipient is on the suppression list.
        Suppressed = "suppressed",
        /// The campaign run was cancelled before the item was sent.
        Cancelled = "cancelled",
        /// The provider refused the item permanently.
        Refused = "refused",
        /// The maximum number of sends or attempts was reached.
        Exhausted = "exhausted",
        /// An operator resolved the item.
        OperatorResolution = "verdict",
        /// The message of the item cannot be rendered.
        InvalidMessage = "unfit",
    }
}

/// The state of an item. It distinguishes the states that share the status `queued`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemState {
    /// The item has no row yet.
    Unreserved,
    /// Reserved by the worker that holds the job's claim: a provider call may be in flight.
    Held,
    /// Reserved, and known not to be accepted by the provider so far.
    Deferred,
    /// Reserved, and it is unknown whether the call reached the provider.
    InDoubt,
    /// The provider accepted the item.
    Served,
    /// The item was not delivered and will not be.
    Failed,
    /// The item was excluded from delivery.
    Skipped,
}

/// An event that changes the state of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemTransition {
    /// The worker reserves the item, so that it can call the provider.
    Reserve,
    /// The worker reserves the item again although a call may have reached the provider: only for
    /// providers that honour idempotency keys.
    ReserveAgain,
    /// The provider accepted the item.
    Accept,
    /// The provider refused the item permanently.
    Refuse,
    /// The provider did not accept the item this time.
    Defer,
    /// The outcome of the provider call is unknown.
    MarkInDoubt,
    /// The item turned out not to have reached the provider.
    ConfirmNotSent,
    /// The maximum number of sends or attempts was reached; the item is not retried.
    Exhaust,
    /// The item is excluded from delivery.
    Skip,
    /// An operator redrives an item that had failed.
    Redrive,
}

impl ItemState {
    /// All states, in the order of their declaration.
    pub const ALL: [Self; 7] = [
        Self::Unreserved,
        Self::Held,
        Self::Deferred,
        Self::InDoubt,
        Self::Served,
        Self::Failed,
        Self::Skipped,
    ];

    /// Returns the state after the transition `act`, or `None` if it is illegal.
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

    /// Whether a worker still has to process the item. An item in doubt is not open.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Unreserved | Self::Deferred | Self::Held)
    }

    /// Whether the item is settled.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Served | Self::Failed | Self::Skipped)
    }

    /// The status that the item's row has in this state, or `None` if there is no row.
    pub const fn status(self, channel: DeliveryChannel) -> Option<ItemStatus> {
        match self {
            Self::Unreserved => None,
            Self::Held | Self::Deferred | Self::InDoubt => Some(ItemStatus::Queued),
            Self::Served => Some(channel.accepted_status()),
            Self::Failed => Some(ItemStatus::Failed),
            Self::Skipped => Some(ItemStatus::Skipped),
        }
    }

    /// The state of an item whose row has this status and these flags.
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
            Unreserved Exhaust Failed
            Unreserved Skip Skipped
            Held Accept Served
            Held Refuse Failed
            Held Defer Deferred
            Held MarkInDoubt InDoubt
            Deferred Reserve Held
            Deferred Exhaust Failed
            Deferred Skip Skipped
            InDoubt ReserveAgain Held
            InDoubt Accept Served
            InDoubt Refuse Failed
            InDoubt ConfirmNotSent Deferred
            Failed Redrive Deferred
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
