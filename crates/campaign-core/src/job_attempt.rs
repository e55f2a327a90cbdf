//! One try of one worker at one job: what to make durable, whom to call, and when it is over.
//!
//! The worker asks for the next [`Step`], performs it, and says what came of it. Whatever is to be called for was reserved by
//! a step that is durable; what was answered goes into the next step together with the next reservations. Should the worker
//! vanish between two steps, the next attempt finds in the rows all there is to know.

use std::collections::BTreeMap;

use onward_base::SharedText;

use crate::{ExponentialBackoff, ItemCounts, ItemReason, ItemState, ItemTransition, JobTransition};

/// Who could not tell what became of something is not asked again before so many milliseconds.
const LOOKUP_RETRY_MIN_MS: u64 = 1_000;

/// How a worker goes about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DispatchPolicy {
    /// Items that are reserved, and for which the provider is called, together. As many may be in doubt after a crash.
    pub window: usize,
    /// Calls of the provider for one item that it did not take, at most.
    pub max_sends: u32,
    /// Tries of a job that came to nothing, one after the other, at most.
    pub max_attempts: u32,
    /// How long to wait after such a try.
    pub backoff: ExponentialBackoff,
    /// The provider takes each key once: it can be called again for what is in doubt.
    pub resend_in_doubt: bool,
    /// The provider can be asked what became of a key, when so many milliseconds have gone by.
    pub lookup_after_ms: Option<u64>,
}

/// An item as an attempt finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemProgress {
    /// Where it stands.
    pub state: ItemState,
    /// How often the provider was called for it.
    pub sends: u32,
    /// For how many milliseconds it has been in doubt.
    pub in_doubt_ms: u64,
    /// Why it was skipped, or failed.
    pub reason: Option<ItemReason>,
}

impl ItemProgress {
    /// An item of which there is no row.
    pub const NEW: Self = Self {
        state: ItemState::Unreserved,
        sends: 0,
        in_doubt_ms: 0,
        reason: None,
    };
}

/// What becomes of an item with a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemChange {
    /// Where it stands then.
    pub new_state: ItemState,
    /// How often the provider was, or is about to be, called for it.
    pub sends: u32,
    /// Why it is skipped, or fails.
    pub reason: Option<ItemReason>,
    /// What went wrong, for people.
    pub error: Option<SharedText>,
    /// What the provider calls it.
    pub provider_message_id: Option<SharedText>,
}

/// What people, or the machine, want of an attempt that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum AttemptDirective {
    /// That it goes on.
    Continue,
    /// That it begins nothing more, so that somebody can go on with it later.
    Release,
    /// That nothing more is begun, ever.
    Cancel,
}

/// What a provider answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendOutcome {
    /// It has taken the item, and may have a name for it.
    Accepted(Option<SharedText>),
    /// It has not, and never will.
    Refused(SharedText),
    /// It has not; another time it may.
    Deferred(SharedText),
    /// It takes nothing now, perhaps for so many milliseconds.
    Throttled(SharedText, Option<u64>),
    /// It may have.
    Unknown(SharedText),
    /// It was not asked: what is to be sent cannot be made.
    InvalidMessage(SharedText),
}

/// What a provider knows of an item that is in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupOutcome {
    /// It has taken it.
    Accepted(Option<SharedText>),
    /// It has refused it.
    Refused(SharedText),
    /// It has never heard of it.
    NotFound,
    /// It cannot tell.
    Unknown,
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptOutcome {
    /// Every item is settled.
    Completed,
    /// Every item is settled, some because nobody tries any more.
    Dead,
    /// Some have to be tried again, after so many milliseconds.
    RetryAfter(u64),
    /// Some are in doubt, and the provider can be asked after so many milliseconds.
    LookUpAfter(u64),
    /// Some are in doubt, and only somebody can say what became of them.
    AwaitResolution,
    /// It was to begin nothing more.
    Released,
    /// Nobody may be reached for so many milliseconds.
    Postponed(u64),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptStep {
    /// Make this durable, all of it or nothing; then say what was [`stored`](Attempt::stored).
    Persist {
        /// What becomes of items, by their positions.
        changes: BTreeMap<usize, ItemChange>,
        /// How the items of the job stand then.
        counts: ItemCounts,
        /// Tries of the job since anything was settled.
        attempts: u32,
        /// How it ends, if it does.
        outcome: Option<AttemptOutcome>,
    },
    /// Find out who of these may be reached now, so many of them at most; then say who was [`admitted`](Attempt::admitted), or
    /// that everything has to be [`put_off`](Attempt::put_off).
    Admit(Vec<usize>, usize),
    /// Call the provider for these, each once; then say what it [`answered`](Attempt::answered).
    Send(Vec<usize>),
    /// Ask the provider what became of these; then say what was [`found`](Attempt::found).
    LookUp(Vec<usize>),
    /// There is nothing more to do.
    Finished,
}

/// One try of one worker at one job.
#[derive(Debug, Clone)]
pub struct JobAttempt {
    items: Vec<ItemProgress>,
    policy: DispatchPolicy,
    directive: AttemptDirective,
    /// Which try since anything was settled.
    attempts: u32,
    has_progressed: bool,
    /// It was tried as often as it may be, and nobody was left to say so: whoever did was not heard of again. Nothing more is
    /// begun.
    is_exhausted: bool,
    /// The provider takes nothing now.
    throttled: Option<Option<u64>>,
    /// Nobody may be reached now.
    postponed_ms: Option<u64>,
    /// Not again in this attempt.
    deferred: Vec<bool>,
    /// Called for although the provider may have taken them before: that it does not take them now says nothing of then.
    resent: Vec<bool>,
    /// The provider was asked about these.
    looked_up: Vec<bool>,
    changes: BTreeMap<usize, ItemChange>,
    phase: AttemptPhase,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AttemptPhase {
    /// Whatever was done is in `changes`.
    Ready,
    /// These are to be reserved, as far as they may be reached.
    Admitting(Vec<usize>),
    /// These may be reached, and are changed to be reserved.
    Admitted(Vec<usize>),
    /// These are about to be reserved.
    Reserving(Vec<usize>),
    /// These are reserved.
    Reserved(Vec<usize>),
    /// The provider has been called for these.
    Sending(Vec<usize>),
    /// The provider has been asked about these.
    LookingUp(Vec<usize>),
    Concluding,
    Finished,
}

impl JobAttempt {
    /// The `attempts`-th try since anything was settled, at items that stand so. Those that somebody else had are in doubt.
    pub fn new(
        slots: Vec<ItemProgress>,
        attempts: u32,
        terms: DispatchPolicy,
        order: AttemptDirective,
    ) -> Self {
        let none = vec![false; slots.len()];
        let mut attempt = Self {
            items: slots,
            policy: terms,
            directive: order,
            attempts,
            has_progressed: false,
            is_exhausted: attempts > terms.max_attempts,
            throttled: None,
            postponed_ms: None,
            deferred: none.clone(),
            resent: none.clone(),
            looked_up: none,
            changes: BTreeMap::new(),
            phase: AttemptPhase::Ready,
        };
        for position in 0..attempt.items.len() {
            if attempt.items[position].state == ItemState::Held {
                attempt.apply_transition(position, ItemTransition::MarkInDoubt);
                attempt.pending_change(position).error =
                    Some("whoever called the provider was not heard of again".into());
            }
        }
        attempt
    }

    /// What is wanted of it from now on. What is under way is finished in any case, and nothing is taken back.
    pub fn apply_directive(&mut self, order: AttemptDirective) {
        self.directive = self.directive.max(order);
    }

    /// Another item stands for this one.
    pub fn skip_duplicate(&mut self, position: usize) {
        if self.items[position].state == ItemState::Unreserved {
            self.items[position].state = ItemState::Skipped;
        }
    }

    /// It is not wanted for this item that anything is begun.
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

    /// What to do next. `entropy` keeps those apart that have to wait.
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
            AttemptPhase::Finished => AttemptStep::Finished,
            waiting @ (AttemptPhase::Admitting(_)
            | AttemptPhase::Reserving(_)
            | AttemptPhase::Sending(_)
            | AttemptPhase::LookingUp(_)
            | AttemptPhase::Concluding) => {
                unreachable!("asked before it was told what came of the last step: {waiting:?}")
            }
        }
    }

    fn decide_step(&mut self, entropy: u64) -> AttemptStep {
        let goes_on = self.directive == AttemptDirective::Continue
            && self.throttled.is_none()
            && self.postponed_ms.is_none()
            && !self.is_exhausted;
        let open = if goes_on {
            self.sendable_positions()
        } else {
            Vec::new()
        };
        if !open.is_empty() {
            self.phase = AttemptPhase::Admitting(open.clone());
            return AttemptStep::Admit(open, self.policy.window.max(1));
        }
        // Who is to begin nothing more ever can still find out what has become of things.
        let may_look = goes_on
            || self.directive == AttemptDirective::Cancel
            || self.is_exhausted && self.directive == AttemptDirective::Continue;
        let doubts = self.lookup_positions();
        if may_look && !doubts.is_empty() {
            // What was answered so far is not to be lost meanwhile.
            if !self.changes.is_empty() {
                return self.persist_changes();
            }
            for &position in &doubts {
                self.looked_up[position] = true;
            }
            self.phase = AttemptPhase::LookingUp(doubts.clone());
            return AttemptStep::LookUp(doubts);
        }
        let new = |slots: &[ItemProgress]| {
            slots
                .iter()
                .filter(|slot| slot.state == ItemState::Unreserved)
                .count()
        };
        let before = new(&self.items);
        let conclusion = self.conclude_attempt(entropy);
        // Others may stand for some of those that are ended without a row: that is heard before it is counted.
        if new(&self.items) < before {
            return self.persist_changes();
        }
        self.phase = AttemptPhase::Concluding;
        self.persist_step(Some(conclusion))
    }

    /// Makes durable what there is, and goes on.
    fn persist_changes(&mut self) -> AttemptStep {
        self.phase = AttemptPhase::Reserving(Vec::new());
        self.persist_step(None)
    }

    /// These may be reached now, and are reserved next.
    pub fn record_admission(&mut self, admitted: &[usize]) {
        let AttemptPhase::Admitting(open) = &self.phase else {
            unreachable!("nobody was to be admitted")
        };
        let is_open = |position: &usize| open.binary_search(position).is_ok();
        let window: Vec<usize> = admitted
            .iter()
            .copied()
            .filter(is_open)
            .take(self.policy.window.max(1))
            .collect();
        for &position in &window {
            let is_doubt = self.items[position].state == ItemState::InDoubt;
            self.resent[position] = is_doubt;
            self.apply_transition(
                position,
                if is_doubt {
                    ItemTransition::ReserveAgain
                } else {
                    ItemTransition::Reserve
                },
            );
            self.items[position].sends += 1;
            let calls = self.items[position].sends;
            self.pending_change(position).sends = calls;
        }
        self.phase = AttemptPhase::Admitted(window);
    }

    /// Nobody may be reached for so many milliseconds.
    pub fn postpone_job(&mut self, wait_ms: u64) {
        self.postponed_ms = Some(wait_ms);
        self.phase = AttemptPhase::Ready;
    }

    /// The items to call the provider for.
    fn sendable_positions(&self) -> Vec<usize> {
        let is_next = |position: &usize| {
            !self.deferred[*position]
                && match self.items[*position].state {
                    ItemState::Unreserved | ItemState::Deferred => true,
                    ItemState::InDoubt => self.can_resend(&self.items[*position]),
                    ItemState::Held
                    | ItemState::Served
                    | ItemState::Failed
                    | ItemState::Skipped => false,
                }
        };
        (0..self.items.len()).filter(is_next).collect()
    }

    /// Items in doubt that the provider can be asked about next, no more than it is called for together.
    fn lookup_positions(&self) -> Vec<usize> {
        let Some(after) = self.policy.lookup_after_ms else {
            return Vec::new();
        };
        let is_old =
            |slot: &ItemProgress| slot.state == ItemState::InDoubt && slot.in_doubt_ms >= after;
        let is_next =
            |position: &usize| is_old(&self.items[*position]) && !self.looked_up[*position];
        (0..self.items.len())
            .filter(is_next)
            .take(self.policy.window.max(1))
            .collect()
    }

    fn conclude_attempt(&mut self, entropy: u64) -> AttemptOutcome {
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
            // Whoever takes it up next calls again.
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

    /// Another try, if there may be one. Whoever is sent away by a provider that says until when it is busy has not tried.
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

    /// Whether the provider can be called again for an item in doubt.
    fn can_resend(&self, slot: &ItemProgress) -> bool {
        slot.state == ItemState::InDoubt
            && self.policy.resend_in_doubt
            && slot.sends < self.policy.max_sends
    }

    /// How a job ends whose items are all settled.
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

    /// What happens to a job that nobody has, now that somebody has said what became of some of its items.
    pub fn transition_after_resolution(slots: &[ItemProgress]) -> Option<JobTransition> {
        let tally = ItemCounts::from_states(slots.iter().map(|slot| slot.state));
        match (tally.is_settled(), Self::settled_outcome(slots)) {
            (true, AttemptOutcome::Dead) => Some(JobTransition::DeadLetter),
            (true, _) => Some(JobTransition::Complete),
            (false, _) => None,
        }
    }

    /// In how many milliseconds the provider can be asked about what is in doubt and it was not asked about yet.
    fn next_lookup_ms(&self) -> Option<u64> {
        let after = self.policy.lookup_after_ms?;
        let in_doubt = self
            .items
            .iter()
            .filter(|slot| slot.state == ItemState::InDoubt);
        let left = in_doubt
            .map(|slot| after.saturating_sub(slot.in_doubt_ms))
            .max()?;
        // Where it could not tell, it is asked again after as long.
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

    fn persist_step(&mut self, conclusion: Option<AttemptOutcome>) -> AttemptStep {
        let attempts = match conclusion {
            // Whoever gives it back has not tried; nor has whoever only asks.
            Some(
                AttemptOutcome::Released
                | AttemptOutcome::Postponed(_)
                | AttemptOutcome::LookUpAfter(_)
                | AttemptOutcome::AwaitResolution,
            ) if !self.has_progressed => self.attempts.saturating_sub(1),
            // How often it was tried in the end is worth knowing of a job that is given up.
            Some(AttemptOutcome::Dead) => self.attempts,
            Some(_) if self.has_progressed => 0,
            None if self.has_progressed => 1,
            _ => self.attempts,
        };
        AttemptStep::Persist {
            changes: std::mem::take(&mut self.changes),
            counts: self.item_counts(),
            attempts,
            outcome: conclusion,
        }
    }

    /// The last step to store is durable. Of what it reserved, another row stands for the items at `taken`.
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
            other => unreachable!("nothing was to be stored: {other:?}"),
        };
    }

    /// What the provider answered. What it said nothing about is in doubt.
    pub fn record_send_outcomes(&mut self, answers: Vec<(usize, SendOutcome)>) {
        let AttemptPhase::Sending(window) = std::mem::replace(&mut self.phase, AttemptPhase::Ready)
        else {
            unreachable!("nobody was called")
        };
        let mut answers: BTreeMap<usize, SendOutcome> = answers.into_iter().collect();
        for position in window {
            let silent = || SendOutcome::Unknown("the provider said nothing of it".into());
            self.settle_item(position, answers.remove(&position).unwrap_or_else(silent));
        }
    }

    fn settle_item(&mut self, position: usize, answer: SendOutcome) {
        match answer {
            // It may have taken it before.
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
        // Whoever takes a key once is called again in another attempt, not in this one.
        self.deferred[position] = true;
        self.pending_change(position).error = Some(error);
    }

    /// The provider takes nothing now, which is not this item's fault.
    fn record_throttling(&mut self, position: usize, after_ms: Option<u64>) {
        self.items[position].sends -= 1;
        let calls = self.items[position].sends;
        self.pending_change(position).sends = calls;
        // Whoever wants to be asked again at once has not said how long.
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

    /// What the provider knows of items that it was asked about.
    pub fn record_lookups(&mut self, found: Vec<(usize, LookupOutcome)>) {
        let AttemptPhase::LookingUp(asked) =
            std::mem::replace(&mut self.phase, AttemptPhase::Ready)
        else {
            unreachable!("nobody was asked")
        };
        for (position, found) in found
            .into_iter()
            .filter(|(position, _)| asked.contains(position))
        {
            match found {
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

    /// How its items stand.
    pub fn item_counts(&self) -> ItemCounts {
        ItemCounts::from_states(self.items.iter().map(|slot| slot.state))
    }

    fn apply_transition(&mut self, position: usize, act: ItemTransition) {
        let slot = &mut self.items[position];
        let Some(to) = slot.state.next_state(act) else {
            unreachable!("{act:?} is not for an item that is {:?}", slot.state)
        };
        slot.state = to;
        self.has_progressed |= to.is_terminal();
        self.pending_change(position).new_state = to;
    }

    /// What becomes of an item with the next step.
    fn pending_change(&mut self, position: usize) -> &mut ItemChange {
        let ItemProgress {
            state: standing,
            sends: calls,
            reason,
            ..
        } = self.items[position];
        self.changes.entry(position).or_insert(ItemChange {
            new_state: standing,
            sends: calls,
            reason,
            error: None,
            provider_message_id: None,
        })
    }
}
