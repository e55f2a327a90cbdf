//! An outbox item: one recipient of a campaign run, and one send to a provider.

use onward_base::text_enum;

use crate::DeliveryChannel;

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
        OperatorResolution = "operator_resolution",
        /// The message of the item cannot be rendered.
        InvalidMessage = "invalid_message",
    }
}

/// The state of an item. It distinguishes the states that share the status `queued`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ItemState {
    /// The item has no row yet.
    Unreserved,
    /// Reserved by the worker that holds the job's claim: a provider call may be in flight.
    Reserved,
    /// Reserved, and known not to be accepted by the provider so far.
    Deferred,
    /// Reserved, and it is unknown whether the call reached the provider.
    InDoubt,
    /// The provider accepted the item.
    Sent,
    /// The item was not delivered and will not be.
    Failed,
    /// The item was excluded from delivery.
    Skipped,
}

/// The states that share the status `queued`: the timestamps in the row distinguish them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueuedItemState {
    /// A provider call may be in flight.
    Reserved,
    /// The provider is known not to have accepted the item so far.
    Deferred,
    /// It is unknown whether the call reached the provider.
    InDoubt,
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
        Self::Reserved,
        Self::Deferred,
        Self::InDoubt,
        Self::Sent,
        Self::Failed,
        Self::Skipped,
    ];

    /// Returns the state after this transition, or `None` if it is illegal.
    pub const fn next_state(self, transition: ItemTransition) -> Option<Self> {
        match (self, transition) {
            (Self::Unreserved | Self::Deferred, ItemTransition::Reserve) => Some(Self::Reserved),
            (Self::Unreserved | Self::Deferred, ItemTransition::Skip) => Some(Self::Skipped),
            (Self::Unreserved | Self::Deferred, ItemTransition::Exhaust) => Some(Self::Failed),

            (Self::Reserved, ItemTransition::Accept) => Some(Self::Sent),
            (Self::Reserved, ItemTransition::Refuse) => Some(Self::Failed),
            (Self::Reserved, ItemTransition::Defer) => Some(Self::Deferred),
            (Self::Reserved, ItemTransition::MarkInDoubt) => Some(Self::InDoubt),

            (Self::InDoubt, ItemTransition::Accept) => Some(Self::Sent),
            (Self::InDoubt, ItemTransition::Refuse) => Some(Self::Failed),
            (Self::InDoubt, ItemTransition::ConfirmNotSent) => Some(Self::Deferred),
            (Self::InDoubt, ItemTransition::ReserveAgain) => Some(Self::Reserved),

            (Self::Failed, ItemTransition::Redrive) => Some(Self::Deferred),

            (
                Self::Unreserved
                | Self::Reserved
                | Self::Deferred
                | Self::InDoubt
                | Self::Sent
                | Self::Failed
                | Self::Skipped,
                _,
            ) => None,
        }
    }

    /// Whether a worker still has to process the item. An item in doubt is not open.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Unreserved | Self::Deferred | Self::Reserved)
    }

    /// Whether the item is settled.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Sent | Self::Failed | Self::Skipped)
    }

    /// The status that the item's row has in this state, or `None` if there is no row.
    pub const fn status(self, channel: DeliveryChannel) -> Option<ItemStatus> {
        match self {
            Self::Unreserved => None,
            Self::Reserved | Self::Deferred | Self::InDoubt => Some(ItemStatus::Queued),
            Self::Sent => Some(channel.accepted_status()),
            Self::Failed => Some(ItemStatus::Failed),
            Self::Skipped => Some(ItemStatus::Skipped),
        }
    }

    /// The state of an item whose row has this status. `queued` is the state if the status is
    /// `queued`.
    pub const fn from_status(status: ItemStatus, queued: QueuedItemState) -> Self {
        match status {
            ItemStatus::Queued => match queued {
                QueuedItemState::Reserved => Self::Reserved,
                QueuedItemState::Deferred => Self::Deferred,
                QueuedItemState::InDoubt => Self::InDoubt,
            },
            ItemStatus::Sent | ItemStatus::Called | ItemStatus::Posted => Self::Sent,
            ItemStatus::Failed => Self::Failed,
            ItemStatus::Skipped => Self::Skipped,
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    const TRANSITIONS: [ItemTransition; 10] = [
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
    fn the_transition_table_of_items_is_complete() {
        let mut table = String::new();
        for state in ItemState::ALL {
            for transition in TRANSITIONS {
                if let Some(next) = state.next_state(transition) {
                    table.push_str(&format!("{state:?} {transition:?} {next:?}\n"));
                }
            }
        }
        expect![[r#"
            Unreserved Reserve Reserved
            Unreserved Exhaust Failed
            Unreserved Skip Skipped
            Reserved Accept Sent
            Reserved Refuse Failed
            Reserved Defer Deferred
            Reserved MarkInDoubt InDoubt
            Deferred Reserve Reserved
            Deferred Exhaust Failed
            Deferred Skip Skipped
            InDoubt ReserveAgain Reserved
            InDoubt Accept Sent
            InDoubt Refuse Failed
            InDoubt ConfirmNotSent Deferred
            Failed Redrive Deferred
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn the_transition_table_matches_the_specification() {
        let page = include_str!("../../../spec/dispatch.md");
        let items = page
            .split("\n## ")
            .find(|part| part.starts_with("Items\n"))
            .unwrap();
        let rows = items.lines().filter(|line| line.starts_with("| ")).skip(1);
        let state = |name: &str| match name.trim() {
            "no row" => ItemState::Unreserved,
            "deferred" => ItemState::Deferred,
            "reserved" => ItemState::Reserved,
            "in doubt" => ItemState::InDoubt,
            "sent" => ItemState::Sent,
            "failed" => ItemState::Failed,
            "skipped" => ItemState::Skipped,
            other => panic!("unknown item state in spec/dispatch.md: {other}"),
        };
        let mut specified = Vec::new();
        for row in rows {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let from = cells[0].trim_end_matches(" with reason `exhausted`");
            specified.extend(
                from.split(',')
                    .map(|from| format!("{:?} {:?}", state(from), state(cells[2]))),
            );
        }
        let implemented = ItemState::ALL.into_iter().flat_map(|from| {
            TRANSITIONS.into_iter().filter_map(move |transition| {
                Some(format!("{from:?} {:?}", from.next_state(transition)?))
            })
        });
        let mut implemented: Vec<String> = implemented.collect();
        specified.sort();
        implemented.sort();
        assert_eq!(specified, implemented);
    }

    #[test]
    fn an_item_whose_call_may_be_in_flight_or_was_accepted_is_not_reserved_again() {
        for state in ItemState::ALL {
            let can_be_reserved = [ItemTransition::Reserve, ItemTransition::ReserveAgain]
                .map(|transition| state.next_state(transition))
                .contains(&Some(ItemState::Reserved));
            let is_called = matches!(state, ItemState::Reserved | ItemState::Sent);
            assert!(!can_be_reserved || !is_called, "{state:?}");
        }
        assert_eq!(
            ItemState::InDoubt.next_state(ItemTransition::Reserve),
            None,
            "an item in doubt is reserved again only for idempotent providers"
        );
    }

    #[test]
    fn the_state_of_an_item_is_recovered_from_its_row() {
        for channel in DeliveryChannel::ALL {
            for state in ItemState::ALL {
                let Some(status) = state.status(channel) else {
                    continue;
                };
                let queued = match state {
                    ItemState::Reserved => QueuedItemState::Reserved,
                    ItemState::InDoubt => QueuedItemState::InDoubt,
                    _ => QueuedItemState::Deferred,
                };
                assert_eq!(ItemState::from_status(status, queued), state);
                assert_eq!(status.is_terminal(), state.is_terminal());
            }
        }
    }
}
