//! One attempt of one worker at one job: what to persist, which items to send, and how the attempt
//! ends.
//!
//! The worker takes the next [`AttemptStep`], performs it and records the outcome. Every item that
//! is sent was reserved by an earlier step that is durable; the send outcomes are persisted in the
//! next step together with the next reservations. If the worker crashes between two steps, the next
//! attempt recovers everything it needs from the rows.

mod conclusion;
mod outcomes;

use std::collections::BTreeMap;

use onward_base::{ExponentialBackoff, SharedText};

use crate::{ItemCounts, ItemReason, ItemState, ItemTransition};

/// The limits, retry policy and provider capabilities that apply to an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatchPolicy {
    /// Number of items that are reserved and sent together; also the number of items that a crash
    /// may leave in doubt.
    pub window: usize,
    /// Maximum number of sends of one item that the provider does not accept.
    pub max_sends: u32,
    /// Maximum number of consecutive attempts at a job that settle no item.
    pub max_attempts: u32,
    /// The backoff after an attempt that has to be retried.
    pub backoff: ExponentialBackoff,
    /// The provider honours idempotency keys: items in doubt can be sent again.
    pub resend_in_doubt: bool,
    /// How long an item must be in doubt, in milliseconds, before the provider can be asked for its
    /// status. `None` if the provider has no status lookup.
    pub lookup_after_ms: Option<u64>,
    /// For how many milliseconds after the first reservation of an item a provider that cannot be
    /// reached is waited for. Calls that do not reach it count as sends only after that.
    pub max_unreachable_ms: u64,
}

/// The progress of an item as an attempt reads it from its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemProgress {
    /// The current state of the item.
    pub state: ItemState,
    /// How often the provider was called for the item.
    pub sends: u32,
    /// For how many milliseconds the item has been in doubt.
    pub in_doubt_ms: u64,
    /// How many milliseconds ago the item was reserved for the first time.
    pub age_ms: u64,
    /// The reason why the item was skipped or failed, if it was.
    pub reason: Option<ItemReason>,
}

impl ItemProgress {
    /// The progress of an item that has no row.
    pub const NEW: Self = Self {
        state: ItemState::Unreserved,
        sends: 0,
        in_doubt_ms: 0,
        age_ms: 0,
        reason: None,
    };
}

/// The change of an item that a step persists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemChange {
    /// The state of the item after the step.
    pub new_state: ItemState,
    /// How often the provider was called for the item, including a call that is about to be made.
    pub sends: u32,
    /// The reason why the item is skipped or fails, if it does.
    pub reason: Option<ItemReason>,
    /// The error message for operators, if a send went wrong.
    pub error: Option<SharedText>,
    /// The provider's own id of the message, if it returned one.
    pub provider_message_id: Option<SharedText>,
}

/// What an operator or the worker process requests of an attempt in progress. Later variants take
/// precedence over earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttemptDirective {
    /// The attempt continues.
    Continue,
    /// The attempt starts no new sends and releases the job, so that a later attempt can continue
    /// it.
    Release,
    /// The attempt starts no new sends and skips the open items for good.
    Cancel,
}

/// The outcome of a provider call for one item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// The provider accepted the item; carries the provider's message id, if it returned one.
    Accepted(Option<SharedText>),
    /// The provider refused the item permanently.
    Refused(SharedText),
    /// The provider did not accept the item, but may accept it later.
    Deferred(SharedText),
    /// The provider throttles all sends; carries the number of milliseconds to wait, if it gave
    /// one.
    Throttled(SharedText, Option<u64>),
    /// The provider could not be reached, so the item was not handed to it.
    Unreachable(SharedText),
    /// The provider may have accepted the item.
    Unknown(SharedText),
    /// The provider was not called, because the message cannot be rendered.
    InvalidMessage(SharedText),
}

/// The outcome of a status lookup for an item in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupOutcome {
    /// The provider accepted the item; carries its message id, if it returned one.
    Accepted(Option<SharedText>),
    /// The provider refused the item.
    Refused(SharedText),
    /// The provider has no record of the item: it was not sent.
    NotFound,
    /// The provider could not determine the status.
    Unknown,
}

/// How an attempt at a job ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// Every item is settled.
    Completed,
    /// Every item is settled, some of them as exhausted.
    Dead,
    /// Some items have to be retried, after this many milliseconds.
    RetryAfter(u64),
    /// Some items are in doubt, and the provider can be asked after this many milliseconds.
    LookUpAfter(u64),
    /// Some items are in doubt, and only an operator can resolve them.
    AwaitResolution,
    /// The attempt was directed to start nothing new, and items are left for a later attempt.
    Released,
    /// No item may be sent for this many milliseconds. The attempt is not counted.
    Postponed(u64),
}

/// The next step that the worker has to perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptStep {
    /// Persist this atomically; then call [`record_persisted`](JobAttempt::record_persisted).
    Persist {
        /// The changes of items, by position in the job.
        changes: BTreeMap<usize, ItemChange>,
        /// Counts of the job's items after the changes.
        counts: ItemCounts,
        /// Number of attempts at the job since an item was last settled.
        attempts: u32,
        /// How the attempt ends, or `None` if it continues.
        outcome: Option<AttemptOutcome>,
    },
    /// Determine which of these items may be sent now, at most this many; then call
    /// [`record_admission`](JobAttempt::record_admission) with them, or
    /// [`postpone_job`](JobAttempt::postpone_job) if none may be sent. A worker that would have to
    /// wait first calls [`persist_before_waiting`](JobAttempt::persist_before_waiting) if there
    /// are [unstored changes](JobAttempt::has_unstored_changes).
    Admit(Vec<usize>, usize),
    /// Call the provider for these items, once each; then call
    /// [`record_send_outcomes`](JobAttempt::record_send_outcomes).
    Send(Vec<usize>),
    /// Look up the status of these items at the provider; then call
    /// [`record_lookups`](JobAttempt::record_lookups).
    LookUp(Vec<usize>),
    /// The attempt has ended.
    Finished,
}

/// One attempt of one worker at one job, as a state machine without I/O.
#[derive(Debug, Clone)]
pub struct JobAttempt {
    items: Vec<ItemProgress>,
    policy: DispatchPolicy,
    directive: AttemptDirective,
    /// Number of this attempt, counted from 1 since an item was last settled.
    attempts: u32,
    has_progressed: bool,
    /// The maximum number of attempts was already reached, but the last worker crashed before it
    /// could record the end. This attempt starts no new sends.
    is_exhausted: bool,
    /// Set if the provider throttled a send; the inner value is the delay in milliseconds that it
    /// gave.
    throttled: Option<Option<u64>>,
    /// Set if the provider could not be reached and is waited for: the age of the oldest item for
    /// which it was called.
    unreachable_ms: Option<u64>,
    /// Set if no item may be sent now: the delay in milliseconds.
    postponed_ms: Option<u64>,
    /// Items that are not sent again in this attempt.
    deferred: Vec<bool>,
    /// Items sent again although the provider may have accepted them before: a rejection of the
    /// second call proves nothing about the first.
    resent: Vec<bool>,
    /// Items that were already looked up in this attempt.
    looked_up: Vec<bool>,
    changes: BTreeMap<usize, ItemChange>,
    phase: AttemptPhase,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AttemptPhase {
    /// All outcomes so far are in `changes`; the next step can be decided.
    Ready,
    /// These items wait for admission, and the admitted ones are reserved next.
    Admitting(Vec<usize>),
    /// The changes are persisted next, and admission is requested again.
    Flushing,
    /// These items are admitted, and `changes` holds their reservations.
    Admitted(Vec<usize>),
    /// The reservations of these items are being persisted.
    Reserving(Vec<usize>),
    /// The reservations of these items are durable.
    Reserved(Vec<usize>),
    /// The provider is being called for these items.
    Sending(Vec<usize>),
    /// The status of these items is being looked up.
    LookingUp(Vec<usize>),
    Concluding,
    Finished,
}

impl JobAttempt {
    /// Starts attempt number `attempts` since an item was last settled, on items with this
    /// progress. Items that an earlier worker reserved become in doubt.
    pub fn new(
        items: Vec<ItemProgress>,
        attempts: u32,
        policy: DispatchPolicy,
        directive: AttemptDirective,
    ) -> Self {
        let none = vec![false; items.len()];
        let mut attempt = Self {
            items,
            policy,
            directive,
            attempts,
            has_progressed: false,
            is_exhausted: attempts > policy.max_attempts,
            throttled: None,
            unreachable_ms: None,
            postponed_ms: None,
            deferred: none.clone(),
            resent: none.clone(),
            looked_up: none,
            changes: BTreeMap::new(),
            phase: AttemptPhase::Ready,
        };
        for position in 0..attempt.items.len() {
            if attempt.items[position].state == ItemState::Reserved {
                attempt.apply_transition(position, ItemTransition::MarkInDoubt);
                attempt.pending_change(position).error =
                    Some("the worker was lost during the provider call".into());
            }
        }
        attempt
    }

    /// Applies a directive from now on. Work in progress is finished in any case, and a stronger
    /// directive is never replaced by a weaker one.
    pub fn apply_directive(&mut self, directive: AttemptDirective) {
        self.directive = self.directive.max(directive);
    }

    /// Skips an unreserved item because another item has the same idempotency key.
    pub fn skip_duplicate(&mut self, position: usize) {
        if self.items[position].state == ItemState::Unreserved {
            self.items[position].state = ItemState::Skipped;
        }
    }

    /// Excludes an item from delivery, unless it is reserved, in doubt or settled.
    pub fn skip_item(&mut self, position: usize, reason: ItemReason) {
        if self.items[position]
            .state
            .next_state(ItemTransition::Skip)
            .is_some()
        {
            self.apply_transition(position, ItemTransition::Skip);
            self.items[position].reason = Some(reason);
            self.pending_change(position).reason = Some(reason);
        }
    }

    /// Returns the next step. `entropy` is the jitter of the backoff.
    ///
    /// # Panics
    ///
    /// Panics if the outcome of the last step was not recorded.
    pub fn next_step(&mut self, entropy: u64) -> AttemptStep {
        match std::mem::replace(&mut self.phase, AttemptPhase::Finished) {
            AttemptPhase::Ready => self.decide_step(entropy),
            AttemptPhase::Admitted(window) => {
                self.phase = AttemptPhase::Reserving(window);
                self.persist_step(None)
            }
            AttemptPhase::Reserved(window) if window.is_empty() => {
                self.phase = AttemptPhase::Ready;
                self.next_step(entropy)
            }
            AttemptPhase::Reserved(window) => {
                self.phase = AttemptPhase::Sending(window.clone());
                AttemptStep::Send(window)
            }
            AttemptPhase::Flushing => self.persist_changes(),
            AttemptPhase::Finished => AttemptStep::Finished,
            waiting @ (AttemptPhase::Admitting(_)
            | AttemptPhase::Reserving(_)
            | AttemptPhase::Sending(_)
            | AttemptPhase::LookingUp(_)
            | AttemptPhase::Concluding) => {
                unreachable!("the outcome of the last step was not recorded: {waiting:?}")
            }
        }
    }

    fn decide_step(&mut self, entropy: u64) -> AttemptStep {
        let can_send = self.directive == AttemptDirective::Continue
            && self.throttled.is_none()
            && self.unreachable_ms.is_none()
            && self.postponed_ms.is_none()
            && !self.is_exhausted;
        let open = if can_send {
            self.sendable_positions()
        } else {
            Vec::new()
        };
        if !open.is_empty() {
            self.phase = AttemptPhase::Admitting(open.clone());
            return AttemptStep::Admit(open, self.policy.window.max(1));
        }
        // A cancelled or exhausted attempt may still look up items in doubt.
        let can_look_up = can_send
            || self.directive == AttemptDirective::Cancel
            || self.is_exhausted && self.directive == AttemptDirective::Continue;
        let in_doubt = self.lookup_positions();
        if can_look_up && !in_doubt.is_empty() {
            // Persist the outcomes so far before the lookup, so that a crash does not lose them.
            if !self.changes.is_empty() {
                return self.persist_changes();
            }
            for &position in &in_doubt {
                self.looked_up[position] = true;
            }
            self.phase = AttemptPhase::LookingUp(in_doubt.clone());
            return AttemptStep::LookUp(in_doubt);
        }
        let count_unreserved = |items: &[ItemProgress]| {
            items
                .iter()
                .filter(|item| item.state == ItemState::Unreserved)
                .count()
        };
        let before = count_unreserved(&self.items);
        let outcome = self.conclude_attempt(entropy);
        // Items that are settled without ever having a row may be duplicates of other items.
        // Persist first, so that the store reports the duplicates before the items are counted.
        if count_unreserved(&self.items) < before {
            return self.persist_changes();
        }
        self.phase = AttemptPhase::Concluding;
        self.persist_step(Some(outcome))
    }

    /// Persists the pending changes without ending the attempt.
    fn persist_changes(&mut self) -> AttemptStep {
        self.phase = AttemptPhase::Reserving(Vec::new());
        self.persist_step(None)
    }

    /// Whether there are changes that are not persisted yet, such as outcomes of provider calls.
    pub fn has_unstored_changes(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Persists the changes before the worker waits for admission: items that the provider has
    /// answered are not in doubt if the worker crashes while it waits.
    pub fn persist_before_waiting(&mut self) {
        let AttemptPhase::Admitting(_) = &self.phase else {
            unreachable!("no admission is pending: {:?}", self.phase)
        };
        self.phase = AttemptPhase::Flushing;
    }

    /// Records which items may be sent now; they are reserved next.
    pub fn record_admission(&mut self, admitted: &[usize]) {
        let AttemptPhase::Admitting(open) = &self.phase else {
            unreachable!("no admission is pending: {:?}", self.phase)
        };
        let is_open = |position: &usize| open.binary_search(position).is_ok();
        let window: Vec<usize> = admitted
            .iter()
            .copied()
            .filter(is_open)
            .take(self.policy.window.max(1))
            .collect();
        for &position in &window {
            let is_in_doubt = self.items[position].state == ItemState::InDoubt;
            self.resent[position] = is_in_doubt;
            self.apply_transition(
                position,
                if is_in_doubt {
                    ItemTransition::ReserveAgain
                } else {
                    ItemTransition::Reserve
                },
            );
            self.items[position].sends += 1;
            let sends = self.items[position].sends;
            self.pending_change(position).sends = sends;
        }
        self.phase = AttemptPhase::Admitted(window);
    }

    /// Records that no item may be sent for `wait_ms` milliseconds.
    pub fn postpone_job(&mut self, wait_ms: u64) {
        self.postponed_ms = Some(wait_ms);
        self.phase = AttemptPhase::Ready;
    }

    /// Positions of the items for which the provider can be called.
    fn sendable_positions(&self) -> Vec<usize> {
        let is_next = |position: &usize| {
            !self.deferred[*position]
                && match self.items[*position].state {
                    ItemState::Unreserved | ItemState::Deferred => true,
                    ItemState::InDoubt => self.can_resend(&self.items[*position]),
                    ItemState::Reserved
                    | ItemState::Sent
                    | ItemState::Failed
                    | ItemState::Skipped => false,
                }
        };
        (0..self.items.len()).filter(is_next).collect()
    }

    /// Positions of the items in doubt to look up next, at most one window.
    fn lookup_positions(&self) -> Vec<usize> {
        let Some(after) = self.policy.lookup_after_ms else {
            return Vec::new();
        };
        let is_due =
            |item: &ItemProgress| item.state == ItemState::InDoubt && item.in_doubt_ms >= after;
        let is_next =
            |position: &usize| is_due(&self.items[*position]) && !self.looked_up[*position];
        (0..self.items.len())
            .filter(is_next)
            .take(self.policy.window.max(1))
            .collect()
    }

    fn persist_step(&mut self, outcome: Option<AttemptOutcome>) -> AttemptStep {
        let attempts = match outcome {
            // An attempt that is released, postponed or waits for a lookup or a resolution is not
            // counted.
            Some(
                AttemptOutcome::Released
                | AttemptOutcome::Postponed(_)
                | AttemptOutcome::LookUpAfter(_)
                | AttemptOutcome::AwaitResolution,
            ) if !self.has_progressed => self.attempts.saturating_sub(1),
            // A job that has ended keeps the number of its last attempt for diagnosis.
            Some(AttemptOutcome::Completed | AttemptOutcome::Dead) => self.attempts,
            Some(_) if self.has_progressed => 0,
            None if self.has_progressed => 1,
            _ => self.attempts,
        };
        AttemptStep::Persist {
            changes: std::mem::take(&mut self.changes),
            counts: self.item_counts(),
            attempts,
            outcome,
        }
    }

    /// Records that the last [`AttemptStep::Persist`] is durable. `taken` lists the positions whose
    /// idempotency key another row already has; these items are skipped as duplicates.
    pub fn record_persisted(&mut self, taken: &[usize]) {
        self.phase = match std::mem::replace(&mut self.phase, AttemptPhase::Finished) {
            AttemptPhase::Reserving(mut window) => {
                for &position in taken {
                    (self.items[position].state, self.items[position].reason) =
                        (ItemState::Skipped, None);
                    self.has_progressed = true;
                }
                window.retain(|position| !taken.contains(position));
                AttemptPhase::Reserved(window)
            }
            AttemptPhase::Concluding => AttemptPhase::Finished,
            other => unreachable!("no step is being persisted: {other:?}"),
        };
    }

    /// Counts of the job's items by state.
    pub fn item_counts(&self) -> ItemCounts {
        ItemCounts::from_states(self.items.iter().map(|item| item.state))
    }

    fn apply_transition(&mut self, position: usize, transition: ItemTransition) {
        let item = &mut self.items[position];
        let Some(next) = item.state.next_state(transition) else {
            unreachable!(
                "illegal transition {transition:?} of an item in state {:?}",
                item.state
            )
        };
        item.state = next;
        self.has_progressed |= next.is_terminal();
        self.pending_change(position).new_state = next;
    }

    /// The change of an item that the next step persists, created if there is none yet.
    fn pending_change(&mut self, position: usize) -> &mut ItemChange {
        let ItemProgress {
            state,
            sends,
            reason,
            ..
        } = self.items[position];
        self.changes.entry(position).or_insert(ItemChange {
            new_state: state,
            sends,
            reason,
            error: None,
            provider_message_id: None,
        })
    }
}
