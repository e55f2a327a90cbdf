//! The end of an attempt: whether its job is settled, has to be retried, or waits for a lookup, an
//! operator or the provider.

use onward_base::ExponentialBackoff;

use super::{AttemptDirective, AttemptOutcome, ItemProgress, JobAttempt};
use crate::{ItemCounts, ItemReason, ItemState, ItemTransition, JobTransition};

/// Maximum delay in milliseconds between two attempts to reach a provider.
const UNREACHABLE_DELAY_MAX_MS: u64 = 60_000;

/// Minimum delay in milliseconds before the provider is asked again about an item that it could not
/// look up.
const LOOKUP_RETRY_MIN_MS: u64 = 1_000;

impl JobAttempt {
    /// Decides how the attempt ends once no item can be sent or looked up any more.
    pub(super) fn conclude_attempt(&mut self, entropy: u64) -> AttemptOutcome {
        if self.directive == AttemptDirective::Cancel {
            self.settle_open_items(ItemTransition::Skip, ItemReason::Cancelled);
        }
        let mut counts = self.item_counts();
        if counts.open_items() > 0 {
            if self.directive == AttemptDirective::Release {
                return AttemptOutcome::Released;
            }
            if let Some(delay) = self.postponed_ms {
                return AttemptOutcome::Postponed(delay);
            }
            if let Some(outcome) = self.retry_outcome(entropy) {
                return outcome;
            }
            self.settle_open_items(ItemTransition::Exhaust, ItemReason::Exhausted);
            counts = self.item_counts();
        }
        if counts.in_doubt > 0 {
            let is_resendable = self.items.iter().any(|item| self.can_resend(item));
            // The next attempt sends the item again.
            if is_resendable && self.directive == AttemptDirective::Release {
                return AttemptOutcome::Released;
            }
            let can_retry = is_resendable && self.directive == AttemptDirective::Continue;
            if let Some(delay) = self.postponed_ms.filter(|_| can_retry) {
                return AttemptOutcome::Postponed(delay);
            }
            if let Some(outcome) = self.retry_outcome(entropy).filter(|_| can_retry) {
                return outcome;
            }
            return self
                .next_lookup_ms()
                .map_or(AttemptOutcome::AwaitResolution, AttemptOutcome::LookUpAfter);
        }
        Self::settled_outcome(&self.items)
    }

    /// The outcome that schedules another attempt, or `None` if the retry policy allows no more. An
    /// attempt does not count if the provider could not be reached, or throttled it and gave a
    /// delay.
    fn retry_outcome(&self, entropy: u64) -> Option<AttemptOutcome> {
        if let Some(age_ms) = self.unreachable_ms {
            let delay = self.unreachable_delay_ms(age_ms, entropy);
            let requested = self.throttled.flatten().unwrap_or(0);
            return Some(AttemptOutcome::Postponed(delay.max(requested)));
        }
        let attempt = if self.has_progressed {
            1
        } else {
            self.attempts
        };
        let delay = self.policy.backoff.delay_ms(attempt, entropy);
        match self.throttled.flatten() {
            Some(requested) => Some(AttemptOutcome::Postponed(delay.max(requested))),
            None if self.is_exhausted => None,
            None if self.has_progressed || self.attempts < self.policy.max_attempts => {
                Some(AttemptOutcome::RetryAfter(delay))
            }
            None => None,
        }
    }

    /// The delay before the provider is tried to be reached again: half of the time that the oldest
    /// item has waited so far, so that it grows exponentially without a count of the attempts, up
    /// to a maximum. Jitter shortens it by up to half.
    fn unreachable_delay_ms(&self, age_ms: u64, entropy: u64) -> u64 {
        let ExponentialBackoff { initial_ms, max_ms } = self.policy.backoff;
        let delay = (age_ms / 2).clamp(1, UNREACHABLE_DELAY_MAX_MS);
        let delay = delay.max(initial_ms).min(max_ms).max(1);
        delay - entropy % (delay / 2 + 1)
    }

    /// Whether an item is in doubt and the provider can be called for it again.
    pub(super) fn can_resend(&self, item: &ItemProgress) -> bool {
        item.state == ItemState::InDoubt
            && self.policy.resend_in_doubt
            && item.sends < self.policy.max_sends
    }

    /// The outcome of a job whose items are all settled: `Dead` if any item is exhausted, else
    /// `Completed`.
    pub fn settled_outcome(items: &[ItemProgress]) -> AttemptOutcome {
        let is_exhausted = items
            .iter()
            .any(|item| item.reason == Some(ItemReason::Exhausted));
        if is_exhausted {
            AttemptOutcome::Dead
        } else {
            AttemptOutcome::Completed
        }
    }

    /// The transition of an unclaimed job after an operator resolved some of its items, or `None`
    /// if not all items are settled.
    pub fn transition_after_resolution(items: &[ItemProgress]) -> Option<JobTransition> {
        let counts = ItemCounts::from_states(items.iter().map(|item| item.state));
        match (counts.is_settled(), Self::settled_outcome(items)) {
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
            .filter(|item| item.state == ItemState::InDoubt);
        let remaining = in_doubt
            .map(|item| after.saturating_sub(item.in_doubt_ms))
            .max()?;
        // If the last lookup was inconclusive, the next one follows after the same delay.
        Some(if remaining == 0 {
            after.max(LOOKUP_RETRY_MIN_MS)
        } else {
            remaining
        })
    }

    fn settle_open_items(&mut self, transition: ItemTransition, reason: ItemReason) {
        for position in 0..self.items.len() {
            if self.items[position].state.next_state(transition).is_some() {
                self.apply_transition(position, transition);
                self.items[position].reason = Some(reason);
                self.pending_change(position).reason = Some(reason);
            }
        }
    }
}
