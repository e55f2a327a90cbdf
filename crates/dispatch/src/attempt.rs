//! One try of one worker at one job: what to make durable, whom to call, and when it is over.
//!
//! The worker asks for the next [`Step`], performs it, and says what came of it. Whatever is to be called for was reserved by
//! a step that is durable; what was answered goes into the next step together with the next reservations. Should the worker
//! vanish between two steps, the next attempt finds in the rows all there is to know.

use std::collections::BTreeMap;

use onward_journal::Text;

use crate::{Act, Backoff, JobAct, Reason, Standing, Tally};

/// Who could not tell what became of something is not asked again before so many milliseconds.
const AGAIN_MS: u64 = 1_000;

/// How a worker goes about a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Items that are reserved, and for which the provider is called, together. As many may be in doubt after a crash.
    pub window: usize,
    /// Calls of the provider for one item that it did not take, at most.
    pub calls_max: u32,
    /// Tries of a job that came to nothing, one after the other, at most.
    pub attempts_max: u32,
    /// How long to wait after such a try.
    pub backoff: Backoff,
    /// The provider takes each key once: it can be called again for what is in doubt.
    pub repeats: bool,
    /// The provider can be asked what became of a key, when so many milliseconds have gone by.
    pub looks_after_ms: Option<u64>,
}

/// An item as an attempt finds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Slot {
    /// Where it stands.
    pub standing: Standing,
    /// How often the provider was called for it.
    pub calls: u32,
    /// For how many milliseconds it has been in doubt.
    pub doubt_ms: u64,
    /// Why it was skipped, or failed.
    pub reason: Option<Reason>,
}

impl Slot {
    /// An item of which there is no row.
    pub const NEW: Self = Self { standing: Standing::Unreserved, calls: 0, doubt_ms: 0, reason: None };
}

/// What becomes of an item with a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where it stands then.
    pub to: Standing,
    /// How often the provider was, or is about to be, called for it.
    pub calls: u32,
    /// Why it is skipped, or fails.
    pub reason: Option<Reason>,
    /// What went wrong, for people.
    pub error: Option<Text>,
    /// What the provider calls it.
    pub message_id: Option<Text>,
}

/// What people, or the machine, want of an attempt that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// That it goes on.
    Go,
    /// That it begins nothing more, so that somebody can go on with it later.
    Release,
    /// That nothing more is begun, ever.
    Cancel,
}

/// What a provider answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It has taken the item, and may have a name for it.
    Accepted(Option<Text>),
    /// It has not, and never will.
    Refused(Text),
    /// It has not; another time it may.
    Later(Text),
    /// It takes nothing now, perhaps for so many milliseconds.
    Busy(Text, Option<u64>),
    /// It may have.
    Unknown(Text),
    /// It was not asked: what is to be sent cannot be made.
    Unfit(Text),
}

/// What a provider knows of an item that is in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It has taken it.
    Accepted(Option<Text>),
    /// It has refused it.
    Refused(Text),
    /// It has never heard of it.
    Nothing,
    /// It cannot tell.
    Unsure,
}

/// How an attempt ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conclusion {
    /// Every item is settled.
    Completed,
    /// Every item is settled, some because nobody tries any more.
    Dead,
    /// Some have to be tried again, after so many milliseconds.
    Retry(u64),
    /// Some are in doubt, and the provider can be asked after so many milliseconds.
    Look(u64),
    /// Some are in doubt, and only somebody can say what became of them.
    Wait,
    /// It was to begin nothing more.
    Released,
    /// Nobody may be reached for so many milliseconds.
    PutOff(u64),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Make this durable, all of it or nothing; then say what was [`stored`](Attempt::stored).
    Store {
        /// What becomes of items, by their positions.
        changes: BTreeMap<usize, Change>,
        /// How the items of the job stand then.
        tally: Tally,
        /// Tries of the job since anything was settled.
        attempts: u32,
        /// How it ends, if it does.
        conclusion: Option<Conclusion>,
    },
    /// Find out who of these may be reached now, so many of them at most; then say who was [`admitted`](Attempt::admitted), or
    /// that everything has to be [`put_off`](Attempt::put_off).
    Admit(Vec<usize>, usize),
    /// Call the provider for these, each once; then say what it [`answered`](Attempt::answered).
    Call(Vec<usize>),
    /// Ask the provider what became of these; then say what was [`found`](Attempt::found).
    Look(Vec<usize>),
    /// There is nothing more to do.
    Over,
}

/// One try of one worker at one job.
#[derive(Debug, Clone)]
pub struct Attempt {
    slots: Vec<Slot>,
    terms: Terms,
    order: Order,
    /// Which try since anything was settled.
    attempts: u32,
    has_progressed: bool,
    /// It was tried as often as it may be, and nobody was left to say so: whoever did was not heard of again. Nothing more is
    /// begun.
    is_beyond: bool,
    /// The provider takes nothing now.
    busy: Option<Option<u64>>,
    /// Nobody may be reached now.
    put_off: Option<u64>,
    /// Not again in this attempt.
    deferred: Vec<bool>,
    /// Called for although the provider may have taken them before: that it does not take them now says nothing of then.
    repeated: Vec<bool>,
    /// The provider was asked about these.
    looked: Vec<bool>,
    changes: BTreeMap<usize, Change>,
    phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
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
    Calling(Vec<usize>),
    /// The provider has been asked about these.
    Looking(Vec<usize>),
    Concluding,
    Over,
}

impl Attempt {
    /// The `attempts`-th try since anything was settled, at items that stand so. Those that somebody else had are in doubt.
    pub fn new(slots: Vec<Slot>, attempts: u32, terms: Terms, order: Order) -> Self {
        let none = vec![false; slots.len()];
        let mut attempt = Self {
            slots,
            terms,
            order,
            attempts,
            has_progressed: false,
            is_beyond: attempts > terms.attempts_max,
            busy: None,
            put_off: None,
            deferred: none.clone(),
            repeated: none.clone(),
            looked: none,
            changes: BTreeMap::new(),
            phase: Phase::Ready,
        };
        for position in 0..attempt.slots.len() {
            if attempt.slots[position].standing == Standing::Held {
                attempt.act(position, Act::Lose);
                attempt.change(position).error = Some("whoever called the provider was not heard of again".into());
            }
        }
        attempt
    }

    /// What is wanted of it from now on. What is under way is finished in any case, and nothing is taken back.
    pub fn order(&mut self, order: Order) {
        self.order = self.order.max(order);
    }

    /// Another item stands for this one.
    pub fn pass_over(&mut self, position: usize) {
        if self.slots[position].standing == Standing::Unreserved {
            self.slots[position].standing = Standing::Skipped;
        }
    }

    /// It is not wanted for this item that anything is begun.
    pub fn exclude(&mut self, position: usize, reason: Reason) {
        if self.slots[position].standing.after(Act::Exclude).is_some() {
            self.act(position, Act::Exclude);
            self.slots[position].reason = Some(reason);
            self.change(position).reason = Some(reason);
        }
    }

    /// What to do next. `entropy` keeps those apart that have to wait.
    pub fn next(&mut self, entropy: u64) -> Step {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Ready => self.decide(entropy),
            Phase::Admitted(window) => {
                self.phase = Phase::Reserving(window);
                self.store(None)
            }
            Phase::Reserved(window) if window.is_empty() => {
                self.phase = Phase::Ready;
                self.next(entropy)
            }
            Phase::Reserved(window) => {
                self.phase = Phase::Calling(window.clone());
                Step::Call(window)
            }
            Phase::Over => Step::Over,
            waiting @ (Phase::Admitting(_)
            | Phase::Reserving(_)
            | Phase::Calling(_)
            | Phase::Looking(_)
            | Phase::Concluding) => {
                unreachable!("asked before it was told what came of the last step: {waiting:?}")
            }
        }
    }

    fn decide(&mut self, entropy: u64) -> Step {
        let goes_on = self.order == Order::Go && self.busy.is_none() && self.put_off.is_none() && !self.is_beyond;
        let open = if goes_on { self.open() } else { Vec::new() };
        if !open.is_empty() {
            self.phase = Phase::Admitting(open.clone());
            return Step::Admit(open, self.terms.window.max(1));
        }
        // Who is to begin nothing more ever can still find out what has become of things.
        let may_look = goes_on || self.order == Order::Cancel || self.is_beyond && self.order == Order::Go;
        let doubts = self.doubts();
        if may_look && !doubts.is_empty() {
            // What was answered so far is not to be lost meanwhile.
            if !self.changes.is_empty() {
                return self.keep();
            }
            for &position in &doubts {
                self.looked[position] = true;
            }
            self.phase = Phase::Looking(doubts.clone());
            return Step::Look(doubts);
        }
        let new = |slots: &[Slot]| slots.iter().filter(|slot| slot.standing == Standing::Unreserved).count();
        let before = new(&self.slots);
        let conclusion = self.conclude(entropy);
        // Others may stand for some of those that are ended without a row: that is heard before it is counted.
        if new(&self.slots) < before {
            return self.keep();
        }
        self.phase = Phase::Concluding;
        self.store(Some(conclusion))
    }

    /// Makes durable what there is, and goes on.
    fn keep(&mut self) -> Step {
        self.phase = Phase::Reserving(Vec::new());
        self.store(None)
    }

    /// These may be reached now, and are reserved next.
    pub fn admitted(&mut self, admitted: &[usize]) {
        let Phase::Admitting(open) = &self.phase else { unreachable!("nobody was to be admitted") };
        let is_open = |position: &usize| open.binary_search(position).is_ok();
        let window: Vec<usize> = admitted.iter().copied().filter(is_open).take(self.terms.window.max(1)).collect();
        for &position in &window {
            let is_doubt = self.slots[position].standing == Standing::InDoubt;
            self.repeated[position] = is_doubt;
            self.act(position, if is_doubt { Act::Repeat } else { Act::Reserve });
            self.slots[position].calls += 1;
            let calls = self.slots[position].calls;
            self.change(position).calls = calls;
        }
        self.phase = Phase::Admitted(window);
    }

    /// Nobody may be reached for so many milliseconds.
    pub fn put_off(&mut self, wait_ms: u64) {
        self.put_off = Some(wait_ms);
        self.phase = Phase::Ready;
    }

    /// The items to call the provider for.
    fn open(&self) -> Vec<usize> {
        let is_next = |position: &usize| {
            !self.deferred[*position]
                && match self.slots[*position].standing {
                    Standing::Unreserved | Standing::Free => true,
                    Standing::InDoubt => self.is_repeatable(&self.slots[*position]),
                    Standing::Held | Standing::Served | Standing::Failed | Standing::Skipped => false,
                }
        };
        (0..self.slots.len()).filter(is_next).collect()
    }

    /// Items in doubt that the provider can be asked about next, no more than it is called for together.
    fn doubts(&self) -> Vec<usize> {
        let Some(after) = self.terms.looks_after_ms else { return Vec::new() };
        let is_old = |slot: &Slot| slot.standing == Standing::InDoubt && slot.doubt_ms >= after;
        let is_next = |position: &usize| is_old(&self.slots[*position]) && !self.looked[*position];
        (0..self.slots.len()).filter(is_next).take(self.terms.window.max(1)).collect()
    }

    fn conclude(&mut self, entropy: u64) -> Conclusion {
        if self.order == Order::Cancel {
            self.end_open(Act::Exclude, Reason::Cancelled);
        }
        let mut tally = self.tally();
        if tally.open() > 0 {
            if self.order == Order::Release {
                return Conclusion::Released;
            }
            if let Some(wait) = self.put_off {
                return Conclusion::PutOff(wait);
            }
            if let Some(conclusion) = self.retry(entropy) {
                return conclusion;
            }
            self.end_open(Act::GiveUp, Reason::Exhausted);
            tally = self.tally();
        }
        if tally.in_doubt > 0 {
            let is_repeatable = self.slots.iter().any(|slot| self.is_repeatable(slot));
            // Whoever takes it up next calls again.
            if is_repeatable && self.order == Order::Release {
                return Conclusion::Released;
            }
            let can_repeat = is_repeatable && self.order == Order::Go;
            if let Some(wait) = self.put_off.filter(|_| can_repeat) {
                return Conclusion::PutOff(wait);
            }
            if let Some(conclusion) = self.retry(entropy).filter(|_| can_repeat) {
                return conclusion;
            }
            return self.when_to_look().map_or(Conclusion::Wait, Conclusion::Look);
        }
        Self::settled(&self.slots)
    }

    /// Another try, if there may be one. Whoever is sent away by a provider that says until when it is busy has not tried.
    fn retry(&self, entropy: u64) -> Option<Conclusion> {
        let attempt = if self.has_progressed { 1 } else { self.attempts };
        let wait = self.terms.backoff.wait_ms(attempt, entropy);
        match self.busy.flatten() {
            Some(asked) => Some(Conclusion::PutOff(wait.max(asked))),
            None if self.is_beyond => None,
            None if self.has_progressed || self.attempts < self.terms.attempts_max => Some(Conclusion::Retry(wait)),
            None => None,
        }
    }

    /// Whether the provider can be called again for an item in doubt.
    fn is_repeatable(&self, slot: &Slot) -> bool {
        slot.standing == Standing::InDoubt && self.terms.repeats && slot.calls < self.terms.calls_max
    }

    /// How a job ends whose items are all settled.
    pub fn settled(slots: &[Slot]) -> Conclusion {
        let is_exhausted = slots.iter().any(|slot| slot.reason == Some(Reason::Exhausted));
        if is_exhausted { Conclusion::Dead } else { Conclusion::Completed }
    }

    /// What happens to a job that nobody has, now that somebody has said what became of some of its items.
    pub fn judged(slots: &[Slot]) -> Option<JobAct> {
        let tally = Tally::of(slots.iter().map(|slot| slot.standing));
        match (tally.is_settled(), Self::settled(slots)) {
            (true, Conclusion::Dead) => Some(JobAct::Bury),
            (true, _) => Some(JobAct::Complete),
            (false, _) => None,
        }
    }

    /// In how many milliseconds the provider can be asked about what is in doubt and it was not asked about yet.
    fn when_to_look(&self) -> Option<u64> {
        let after = self.terms.looks_after_ms?;
        let in_doubt = self.slots.iter().filter(|slot| slot.standing == Standing::InDoubt);
        let left = in_doubt.map(|slot| after.saturating_sub(slot.doubt_ms)).max()?;
        // Where it could not tell, it is asked again after as long.
        Some(if left == 0 { after.max(AGAIN_MS) } else { left })
    }

    fn end_open(&mut self, act: Act, reason: Reason) {
        for position in 0..self.slots.len() {
            if self.slots[position].standing.after(act).is_some() {
                self.act(position, act);
                self.slots[position].reason = Some(reason);
                self.change(position).reason = Some(reason);
            }
        }
    }

    fn store(&mut self, conclusion: Option<Conclusion>) -> Step {
        let attempts = match conclusion {
            // Whoever gives it back has not tried; nor has whoever only asks.
            Some(Conclusion::Released | Conclusion::PutOff(_) | Conclusion::Look(_) | Conclusion::Wait)
                if !self.has_progressed =>
            {
                self.attempts.saturating_sub(1)
            }
            // How often it was tried in the end is worth knowing of a job that is given up.
            Some(Conclusion::Dead) => self.attempts,
            Some(_) if self.has_progressed => 0,
            None if self.has_progressed => 1,
            _ => self.attempts,
        };
        Step::Store { changes: std::mem::take(&mut self.changes), tally: self.tally(), attempts, conclusion }
    }

    /// The last step to store is durable. Of what it reserved, another row stands for the items at `taken`.
    pub fn stored(&mut self, taken: &[usize]) {
        self.phase = match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Reserving(mut window) => {
                for &position in taken {
                    (self.slots[position].standing, self.slots[position].reason) = (Standing::Skipped, None);
                    self.has_progressed = true;
                }
                window.retain(|position| !taken.contains(position));
                Phase::Reserved(window)
            }
            Phase::Concluding => Phase::Over,
            other => unreachable!("nothing was to be stored: {other:?}"),
        };
    }

    /// What the provider answered. What it said nothing about is in doubt.
    pub fn answered(&mut self, answers: Vec<(usize, Answer)>) {
        let Phase::Calling(window) = std::mem::replace(&mut self.phase, Phase::Ready) else {
            unreachable!("nobody was called")
        };
        let mut answers: BTreeMap<usize, Answer> = answers.into_iter().collect();
        for position in window {
            let silent = || Answer::Unknown("the provider said nothing of it".into());
            self.settle(position, answers.remove(&position).unwrap_or_else(silent));
        }
    }

    fn settle(&mut self, position: usize, answer: Answer) {
        match answer {
            // It may have taken it before.
            Answer::Later(error) | Answer::Unfit(error) | Answer::Refused(error) if self.repeated[position] => {
                self.lose(position, error);
            }
            Answer::Busy(error, after_ms) if self.repeated[position] => {
                self.lose(position, error);
                self.note_busy(position, after_ms);
            }
            Answer::Accepted(message_id) => {
                self.act(position, Act::Accept);
                self.change(position).message_id = message_id;
            }
            Answer::Refused(error) => self.fail(position, Reason::Refused, error),
            Answer::Unfit(error) => self.fail(position, Reason::Unfit, error),
            Answer::Unknown(error) => self.lose(position, error),
            Answer::Later(error) => {
                self.defer(position, error);
                self.give_up_if_called_enough(position);
            }
            Answer::Busy(error, after_ms) => {
                self.defer(position, error);
                self.note_busy(position, after_ms);
            }
        }
    }

    fn lose(&mut self, position: usize, error: Text) {
        self.act(position, Act::Lose);
        // Whoever takes a key once is called again in another attempt, not in this one.
        self.deferred[position] = true;
        self.change(position).error = Some(error);
    }

    /// The provider takes nothing now, which is not this item's fault.
    fn note_busy(&mut self, position: usize, after_ms: Option<u64>) {
        self.slots[position].calls -= 1;
        let calls = self.slots[position].calls;
        self.change(position).calls = calls;
        // Whoever wants to be asked again at once has not said how long.
        self.busy = Some(self.busy.flatten().max(after_ms.filter(|ms| *ms > 0)));
    }

    fn give_up_if_called_enough(&mut self, position: usize) {
        if self.slots[position].calls >= self.terms.calls_max {
            self.act(position, Act::GiveUp);
            self.slots[position].reason = Some(Reason::Exhausted);
            self.change(position).reason = Some(Reason::Exhausted);
        }
    }

    fn fail(&mut self, position: usize, reason: Reason, error: Text) {
        self.act(position, Act::Refuse);
        self.slots[position].reason = Some(reason);
        let change = self.change(position);
        (change.reason, change.error) = (Some(reason), Some(error));
    }

    fn defer(&mut self, position: usize, error: Text) {
        self.act(position, Act::Defer);
        self.deferred[position] = true;
        self.change(position).error = Some(error);
    }

    /// What the provider knows of items that it was asked about.
    pub fn found(&mut self, found: Vec<(usize, Found)>) {
        let Phase::Looking(asked) = std::mem::replace(&mut self.phase, Phase::Ready) else {
            unreachable!("nobody was asked")
        };
        for (position, found) in found.into_iter().filter(|(position, _)| asked.contains(position)) {
            match found {
                Found::Accepted(message_id) => {
                    self.act(position, Act::Accept);
                    self.change(position).message_id = message_id;
                }
                Found::Refused(error) => self.fail(position, Reason::Refused, error),
                Found::Nothing => {
                    self.act(position, Act::Miss);
                    self.give_up_if_called_enough(position);
                }
                Found::Unsure => {}
            }
        }
    }

    /// How its items stand.
    pub fn tally(&self) -> Tally {
        Tally::of(self.slots.iter().map(|slot| slot.standing))
    }

    fn act(&mut self, position: usize, act: Act) {
        let slot = &mut self.slots[position];
        let Some(to) = slot.standing.after(act) else {
            unreachable!("{act:?} is not for an item that is {:?}", slot.standing)
        };
        slot.standing = to;
        self.has_progressed |= to.is_terminal();
        self.change(position).to = to;
    }

    /// What becomes of an item with the next step.
    fn change(&mut self, position: usize) -> &mut Change {
        let Slot { standing, calls, reason, .. } = self.slots[position];
        self.changes.entry(position).or_insert(Change { to: standing, calls, reason, error: None, message_id: None })
    }
}
