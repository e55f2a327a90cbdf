//! The end of an attempt: whether its job is settled, has to be retried, or waits for a lookup, an
//! operator or the provider.

use super::{AttemptDirective, AttemptOutcome, ItemProgress, JobAttempt};
use crate::{ItemCounts, ItemReason, ItemState, ItemTransition, JobTransition};

/// Minimum delay in milliseconds before the provider is asked again about an item that it could not
/// look up.
const LOOKUP_RETRY_MIN_MS: u64 = 1_000;

impl JobAttempt {
    /// Decides how the attempt ends once no item can be sent or looked up any more.
    pub(super) fn conclude_attempt(&mut self, entropy: u64) -> AttemptOutcome {
        if self.directive == AttemptDirective::Cancel {
            self.settle_open_items(ItemTransition::Skip, ItemReason::Cancelled);
        }
        let mut tally = self.item_counts();
        if tally.open_items() > 0 {
            if self.directive == AttemptDirective::Release {
                return AttemptOutcome::Released;
            }
            if let Some(wait) = self.postponed_ms {
                return AttemptOutcome::Postponed(wait);
            }
            if let Some(conclusion) = self.retry_outcome(entropy) {
                return conclusion;
            }
            self.settle_open_items(ItemTransition::Exhaust, ItemReason::Exhausted);
            tally = self.item_counts();
        }
        if tally.in_doubt > 0 {
            let is_repeatable = self.items.iter().any(|slot| self.can_resend(slot));
            // The next attempt sends the item again.
            if is_repeatable && self.directive == AttemptDirective::Release {
                return AttemptOutcome::Released;
            }
            let can_repeat = is_repeatable && self.directive == AttemptDirective::Continue;
            if let Some(wait) = self.postponed_ms.filter(|_| can_repeat) {
                return AttemptOutcome::Postponed(wait);
            }
            if let Some(conclusion) = self.retry_outcome(entropy).filter(|_| can_repeat) {
                return conclusion;
            }
            return self
                .next_lookup_ms()
                .map_or(AttemptOutcome::AwaitResolution, AttemptOutcome::LookUpAfter);
        }
        Self::settled_outcome(&self.items)
    }

    /// The outcome that schedules another attempt, or `None` if the retry policy allows no more. An
    /// attempt throttled by a provider that gave a delay does not count as an attempt.
    fn retry_outcome(&self, entropy: u64) -> Option<AttemptOutcome> {
        let attempt = if self.has_progressed {
            1
        } else {
            self.attempts
        };
        let wait = self.policy.backoff.delay_ms(attempt, entropy);
        match self.throttled.flatten() {
            Some(asked) => Some(AttemptOutcome::Postponed(wait.max(asked))),
            None if self.is_exhausted => None,
            None if self.has_progressed || self.attempts < self.policy.max_attempts => {
                Some(AttemptOutcome::RetryAfter(wait))
            }
            None => None,
        }
    }

    /// Whether an item is in doubt and the provider can be called for it again.
    pub(super) fn can_resend(&self, slot: &ItemProgress) -> bool {
        slot.state == ItemState::InDoubt
            && self.policy.resend_in_doubt
            && slot.sends < self.policy.max_sends
    }

    /// The outcome of a job whose items are all settled: `Dead` if any item is exhausted, else
    /// `Completed`.
    pub fn settled_outcome(slots: &[ItemProgress]) -> AttemptOutcome {
        let is_exhausted = slots
            .iter()
            .any(|slot| slot.reason == Some(ItemReason::Exhausted));
        if is_exhausted {
            AttemptOutcome::Dead
        } else {
            AttemptOutcome::Completed
        }
    }

    /// The transition of an unclaimed job after an operator resolved some of its items, or `None`
    /// if not all items are settled.
    pub fn transition_after_resolution(slots: &[ItemProgress]) -> Option<JobTransition> {
        let tally = ItemCounts::from_states(slots.iter().map(|slot| slot.state));
        match (tally.is_settled(), Self::settled_outcome(slots)) {
            (true, AttemptOutcome::Dead) => Some(JobTransition::DeadLetter),
            (true, _) => Some(JobTransition::Complete),
            (false, _) => None,
        }
    }

    /// Milliseconds until the items in doubt can be looked up, or `None` if the provider has no
    /// status lookup or no item is in doubt.
    fn next_lookup_ms(&self) -> Option<u64> {
        let after = self.policy.lookup_after_ms?;
        let in_doubt = self
            .items
            .iter()
            .filter(|slot| slot.state == ItemState::InDoubt);
        let left = in_doubt
            .map(|slot| after.saturating_sub(slot.in_doubt_ms))
            .max()?;
        // If the last lookup was inconclusive, the next one follows after the same delay.
        Some(if left == 0 {
            after.max(LOOKUP_RETRY_MIN_MS)
        } else {
            left
        })
    }

    fn settle_open_items(&mut self, act: ItemTransition, reason: ItemReason) {
        for position in 0..self.items.len() {
            if self.items[position].state.next_state(act).is_some() {
                self.apply_transition(position, act);
                self.items[position].reason = Some(reason);
                self.pending_change(position).reason = Some(reason);
            }
        }
    }
}
