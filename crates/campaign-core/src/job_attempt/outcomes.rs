//! The outcomes of sends and status lookups: what each means for its item and for the attempt.

use std::collections::BTreeMap;

use onward_base::SharedText;

use super::{AttemptPhase, JobAttempt, LookupOutcome, SendOutcome};
use crate::{ItemReason, ItemTransition};

impl JobAttempt {
    /// Records the outcomes of the provider calls. Items without an outcome become in doubt.
    pub fn record_send_outcomes(&mut self, outcomes: Vec<(usize, SendOutcome)>) {
        let AttemptPhase::Sending(window) = std::mem::replace(&mut self.phase, AttemptPhase::Ready)
        else {
            unreachable!("no provider call is in progress")
        };
        let mut outcomes: BTreeMap<usize, SendOutcome> = outcomes.into_iter().collect();
        for position in window {
            let missing = || SendOutcome::Unknown("the provider reported no outcome".into());
            self.settle_item(position, outcomes.remove(&position).unwrap_or_else(missing));
        }
    }

    fn settle_item(&mut self, position: usize, outcome: SendOutcome) {
        match outcome {
            // The provider may have accepted the item in an earlier call.
            SendOutcome::Deferred(error)
            | SendOutcome::InvalidMessage(error)
            | SendOutcome::Refused(error)
                if self.resent[position] =>
            {
                self.mark_in_doubt(position, error);
            }
            SendOutcome::Throttled(error, after_ms) if self.resent[position] => {
                self.mark_in_doubt(position, error);
                self.record_throttling(position, after_ms);
            }
            SendOutcome::Accepted(message_id) => {
                self.apply_transition(position, ItemTransition::Accept);
                self.pending_change(position).provider_message_id = message_id;
            }
            SendOutcome::Refused(error) => self.fail_item(position, ItemReason::Refused, error),
            SendOutcome::InvalidMessage(error) => {
                self.fail_item(position, ItemReason::InvalidMessage, error)
            }
            SendOutcome::Unknown(error) => self.mark_in_doubt(position, error),
            SendOutcome::Unreachable(error) => self.record_unreachable(position, error),
            SendOutcome::Deferred(error) => {
                self.defer_item(position, error);
                self.exhaust_at_max_sends(position);
            }
            SendOutcome::Throttled(error, after_ms) => {
                self.defer_item(position, error);
                self.record_throttling(position, after_ms);
            }
        }
    }

    fn mark_in_doubt(&mut self, position: usize, error: SharedText) {
        self.apply_transition(position, ItemTransition::MarkInDoubt);
        // An item in doubt is sent again in another attempt at the earliest, not in this one.
        self.deferred[position] = true;
        self.pending_change(position).error = Some(error);
    }

    /// Records that the provider could not be reached. The send is not counted against the item
    /// while the policy waits for such a provider.
    fn record_unreachable(&mut self, position: usize, error: SharedText) {
        let age_ms = self.items[position].age_ms;
        let is_waited_for = age_ms < self.policy.max_unreachable_ms;
        if self.resent[position] {
            self.mark_in_doubt(position, error);
        } else {
            self.defer_item(position, error);
        }
        if is_waited_for {
            self.uncount_send(position);
            self.unreachable_ms = self.unreachable_ms.max(Some(age_ms));
        } else if !self.resent[position] {
            self.exhaust_at_max_sends(position);
        }
    }

    /// Takes back the count of the send for which the item was reserved.
    fn uncount_send(&mut self, position: usize) {
        self.items[position].sends -= 1;
        let sends = self.items[position].sends;
        self.pending_change(position).sends = sends;
    }

    /// Records that the provider throttles all sends. The send is not counted against the item.
    fn record_throttling(&mut self, position: usize, after_ms: Option<u64>) {
        self.uncount_send(position);
        // A delay of 0 counts as no delay given.
        self.throttled = Some(self.throttled.flatten().max(after_ms.filter(|ms| *ms > 0)));
    }

    fn exhaust_at_max_sends(&mut self, position: usize) {
        if self.items[position].sends >= self.policy.max_sends {
            self.apply_transition(position, ItemTransition::Exhaust);
            self.items[position].reason = Some(ItemReason::Exhausted);
            self.pending_change(position).reason = Some(ItemReason::Exhausted);
        }
    }

    fn fail_item(&mut self, position: usize, reason: ItemReason, error: SharedText) {
        self.apply_transition(position, ItemTransition::Refuse);
        self.items[position].reason = Some(reason);
        let change = self.pending_change(position);
        (change.reason, change.error) = (Some(reason), Some(error));
    }

    fn defer_item(&mut self, position: usize, error: SharedText) {
        self.apply_transition(position, ItemTransition::Defer);
        self.deferred[position] = true;
        self.pending_change(position).error = Some(error);
    }

    /// Records the outcomes of a status lookup. An inconclusive lookup leaves the item in doubt.
    pub fn record_lookups(&mut self, outcomes: Vec<(usize, LookupOutcome)>) {
        let AttemptPhase::LookingUp(pending) =
            std::mem::replace(&mut self.phase, AttemptPhase::Ready)
        else {
            unreachable!("no status lookup is in progress")
        };
        for (position, outcome) in outcomes
            .into_iter()
            .filter(|(position, _)| pending.contains(position))
        {
            match outcome {
                LookupOutcome::Accepted(message_id) => {
                    self.apply_transition(position, ItemTransition::Accept);
                    self.pending_change(position).provider_message_id = message_id;
                }
                LookupOutcome::Refused(error) => {
                    self.fail_item(position, ItemReason::Refused, error)
                }
                LookupOutcome::NotFound => {
                    self.apply_transition(position, ItemTransition::ConfirmNotSent);
                    self.exhaust_at_max_sends(position);
                }
                LookupOutcome::Unknown => {}
            }
        }
    }
}
