//! What happens to whom: inputs are handed to the executions they are about, and steps are committed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use onward_execution::{Ending, Execution, Limits};
use onward_journal::{Delivery, ExecutionError, ExecutionId, Journal, JournalEvent, Payload, Timestamp};
use onward_store::tables::{Execution as Row, Message};
use onward_store::{Commit, Epoch, Error, Kind, Shard};

use super::active::{Active, News, UNSTORED};
use super::step::Halt;
use super::{Action, AttemptId, By, End, Functions, Input, message, step};
use crate::offers::Offers;

/// Messages that are remembered. Should one be forgotten too early, the commit that takes it a second time is refused.
const REMEMBERED: usize = 1 << 16;

/// How often executions that wait are looked through, in milliseconds.
const SWEEP_MS: u64 = 100;

/// How long an execution that cannot go on is left alone, in milliseconds: its code may be there by then.
const STUCK_MS: u64 = 30_000;

/// When there is room for fewer guests than this, those that only wait are put aside.
const ROOM_LOW: usize = 64;

/// How a shard works.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How much one execution may do.
    pub limits: Limits,
    /// Executions that wait stay in memory for so long, in milliseconds.
    pub idle_ms: u64,
    /// At most so many of them.
    pub idle_max: usize,
    /// Whether somebody follows executions as traces.
    pub traces: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { limits: Limits::default(), idle_ms: 10_000, idle_max: 64, traces: false }
    }
}

/// Fills bytes with what nobody can guess; with what a seed says, in a simulation.
pub type Entropy = Box<dyn FnMut(&mut [u8]) + Send>;

/// The core of one shard.
pub struct Core {
    pub(super) shard: Shard,
    pub(super) epoch: Epoch,
    pub(super) options: Options,
    pub(super) functions: Arc<dyn Functions>,
    pub(super) offers: Arc<Offers>,
    pub(super) entropy: Entropy,
    /// Boxed: they are taken out and put back at every step.
    pub(super) actives: BTreeMap<ExecutionId, Box<Active>>,
    /// Executions that are being read, and what happened to them meanwhile.
    pub(super) loading: BTreeMap<ExecutionId, VecDeque<News>>,
    /// Guests that have used up their slice, in turn.
    paused: VecDeque<ExecutionId>,
    /// Executions whose guests there is no room for, in turn.
    pub(super) crowded: VecDeque<ExecutionId>,
    /// Executions that cannot go on: when to try again, and what is known of their attempts.
    stuck: BTreeMap<ExecutionId, (Timestamp, VecDeque<News>)>,
    /// Executions that have a deadline, by when.
    deadlines: BTreeSet<(Timestamp, ExecutionId)>,
    pub(super) commits: BTreeMap<u64, Whose>,
    pub(super) next_ticket: u64,
    /// Messages that are on their way into a journal or, for a while, were: an older look into the inbox may still show them.
    pub(super) messages: BTreeSet<i64>,
    /// Attempts that are being performed, and which performance of each it is.
    pub(super) performing: BTreeMap<AttemptId, u64>,
    pub(super) performances: u64,
    /// Attempts that may be recorded and were not begun: their commit ended in a way that does not tell.
    pub(super) untouched: BTreeSet<AttemptId>,
    /// When executions that wait were last looked through.
    swept: Timestamp,
    pub(super) is_lost: bool,
    /// Whether nothing begins any more.
    pub(super) is_draining: bool,
}

/// What a commit is about.
pub(super) enum Whose {
    Execution(ExecutionId),
    /// Messages to executions that are over or never were.
    Messages(Vec<i64>),
}

impl Core {
    /// The core of a shard that was taken over at `epoch`.
    pub fn new(shard: Shard, epoch: Epoch, functions: Arc<dyn Functions>, entropy: Entropy, options: Options) -> Self {
        Self {
            shard,
            epoch,
            options,
            functions,
            offers: Arc::default(),
            entropy,
            actives: BTreeMap::new(),
            loading: BTreeMap::new(),
            paused: VecDeque::new(),
            crowded: VecDeque::new(),
            stuck: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            commits: BTreeMap::new(),
            next_ticket: 0,
            messages: BTreeSet::new(),
            performing: BTreeMap::new(),
            performances: 0,
            untouched: BTreeSet::new(),
            swept: Timestamp::MIN,
            is_lost: false,
            is_draining: false,
        }
    }

    /// The same, with workers that wait for tasks.
    #[must_use]
    pub fn with_offers(mut self, offers: Arc<Offers>) -> Self {
        self.offers = offers;
        self
    }

    /// Whether an execution is in memory, on its way there, or known to be of no use there.
    pub fn knows(&self, execution: &ExecutionId) -> bool {
        self.actives.contains_key(execution)
            || self.loading.contains_key(execution)
            || self.stuck.contains_key(execution)
    }

    /// How many executions are in memory.
    pub fn len(&self) -> usize {
        self.actives.len()
    }

    /// Whether no execution is in memory.
    pub fn is_empty(&self) -> bool {
        self.actives.is_empty()
    }

    /// Whether guests wait for their turn: hand over [`Input::Time`] soon.
    pub fn has_paused(&self) -> bool {
        !self.paused.is_empty()
    }

    /// When something is due next: hand over [`Input::Time`] then.
    pub fn deadline(&self) -> Option<Timestamp> {
        if self.is_draining {
            return None;
        }
        let stuck = self.stuck.values().map(|(at, _)| *at).min();
        self.deadlines.first().map(|(at, _)| *at).into_iter().chain(stuck).min()
    }

    /// Takes in what happened, and answers with what to do.
    pub fn handle(&mut self, input: Input, now: Timestamp) -> Vec<Action> {
        let mut actions = Vec::new();
        if self.is_lost {
            return actions;
        }
        match input {
            Input::Loaded { row, version, events } => self.loaded(*row, version, events, now, &mut actions),
            Input::Begin { row, execution } => self.begin(*row, *execution, now, &mut actions),
            Input::Absent(execution) => self.absent(execution, &mut actions),
            Input::NotLoaded { execution, error } => self.not_loaded(execution, &error, now, &mut actions),
            Input::Messages(messages) => self.messages(messages, now, &mut actions),
            Input::Ended(ends) => self.ended(ends, now, &mut actions),
            Input::Committed { ticket, result } => self.committed(ticket, &result, now, &mut actions),
            Input::Time => self.time(now, &mut actions),
        }
        actions
    }

    fn loaded(&mut self, row: Row, version: u64, events: Vec<JournalEvent>, now: Timestamp, actions: &mut Vec<Action>) {
        let id = row.execution_id;
        if self.actives.contains_key(&id) {
            return;
        }
        let news = self.loading.remove(&id).unwrap_or_default();
        if self.is_draining && !self.is_needed(&id, &news) {
            return;
        }
        let journal = match Journal::recover(id, events) {
            Ok(journal) => journal,
            Err(violation) => {
                let reason = format!("its journal is not valid: {violation}");
                return self.leave(id, reason, news, now, actions);
            }
        };
        let execution = Execution::recover(journal, self.options.limits);
        if let Some(ending) = execution.ending() {
            return self.deal_with(news, &ending, actions);
        }
        let mut active = Box::new(Active::new(row, version, execution, now));
        // A step that was too much for one commit ends in the middle of a turn: the guest goes on before it is told anything.
        active.is_paused = active.execution.is_in_turn();
        active.news = news;
        self.resume_attempts(&mut active, actions);
        self.advance(active, now, actions);
    }

    /// Starts an execution with its first step, if that is a short one.
    fn begin(&mut self, row: Row, execution: Execution, now: Timestamp, actions: &mut Vec<Action>) {
        let id = execution.id();
        let mut active = Box::new(Active::new(row, UNSTORED, execution, now));
        let mut said = Vec::new();
        let Some(commit) = self.first_step(&mut active, now, &mut said) else {
            return actions.push(Action::Begun { execution: id, result: None });
        };
        actions.append(&mut said);
        self.commit_step(&mut active, commit, actions);
        self.keep(active, now);
    }

    fn first_step(&mut self, active: &mut Active, now: Timestamp, said: &mut Vec<Action>) -> Option<Commit> {
        let is_refused = self.is_draining || self.knows(&active.id());
        if is_refused || step::step(self, active, now, said).ok()? == step::Stepped::Paused {
            return None;
        }
        step::compose(self, active, now).ok()?
    }

    /// Attempts that were under way when the execution left memory: those that may be repeated are, the others are in doubt.
    fn resume_attempts(&mut self, active: &mut Active, actions: &mut Vec<Action>) {
        let execution = active.id();
        for flight in active.execution.in_flight().filter(|flight| flight.performer.is_owner()).collect::<Vec<_>>() {
            let id = AttemptId { execution, number: flight.number, attempt: flight.attempt };
            let Some(attempt) = step::attempt(self, active, id, step::resolve(self, active, id.number)) else {
                continue;
            };
            if self.is_performing(&id) || active.has_ended(id) {
                continue;
            }
            let is_untouched = self.untouched.remove(&id);
            if self.is_draining && !is_untouched {
                continue;
            }
            match attempt.delivery {
                Delivery::AtMostOnce if !is_untouched => {
                    active.news.push_back(News::Ended(id, Err(in_doubt("it was started before a crash"))));
                    actions.push(Action::InDoubt(id));
                }
                // Its start is recorded, perhaps by another owner that has performed it. A commit tells whether there was one.
                Delivery::AtMostOnce => active.pending.attempts.push(attempt),
                Delivery::AtLeastOnce => self.perform(attempt, actions),
            }
        }
    }

    pub(super) fn is_performing(&self, attempt: &AttemptId) -> bool {
        self.performing.contains_key(attempt)
    }

    /// What cannot be read now may be read later; what is stored and makes no sense stays so.
    fn not_loaded(&mut self, execution: ExecutionId, error: &Error, now: Timestamp, actions: &mut Vec<Action>) {
        match error.kind() {
            Kind::Corrupt | Kind::Invalid => {
                let news = self.loading.remove(&execution).unwrap_or_default();
                self.leave(execution, error.to_string(), news, now, actions);
            }
            _ => actions.push(Action::LoadLater(execution)),
        }
    }

    /// Leaves an execution that cannot go on alone for a while. What is in the inbox stays there.
    pub(super) fn leave(
        &mut self,
        execution: ExecutionId,
        reason: String,
        news: VecDeque<News>,
        now: Timestamp,
        actions: &mut Vec<Action>,
    ) {
        self.forget(&news);
        let ends = news.into_iter().filter(|news| matches!(news, News::Ended(..))).collect();
        self.stuck.insert(execution, (now.plus_ms(STUCK_MS), ends));
        actions.push(Action::Stuck { execution, reason });
    }

    /// What waits for an execution that takes nothing any more goes to whoever took its place, or out of the way.
    pub(super) fn deal_with(&mut self, news: VecDeque<News>, ending: &Ending, actions: &mut Vec<Action>) {
        let mut commit = Commit::new().fence(self.shard, self.epoch);
        let mut ids = Vec::new();
        for item in news {
            if let News::Ended(attempt, _) = item {
                actions.push(Action::Reported { attempt, is_taken: false });
            } else if let News::Message(sent, version) = item {
                let next = match ending {
                    Ending::Continued(next) => message::forward(&sent, *next).ok().flatten(),
                    Ending::Result(_) => None,
                };
                commit = match next {
                    Some(next) => message::take(commit, &sent, version).insert_or_keep(&next),
                    None => commit.delete(&*sent, version),
                };
                ids.extend(sent.message_id.0);
            }
        }
        if !ids.is_empty() {
            self.commit(Whose::Messages(ids), commit, actions);
        }
    }

    fn forget(&mut self, news: &VecDeque<News>) {
        for item in news {
            if let News::Message(message, _) = item
                && let Some(id) = message.message_id.0
            {
                self.messages.remove(&id);
            }
        }
    }

    fn absent(&mut self, execution: ExecutionId, actions: &mut Vec<Action>) {
        let news = self.loading.remove(&execution).unwrap_or_default();
        self.deal_with(news, &Ending::Result(Ok(Payload::null())), actions);
    }

    fn messages(&mut self, messages: Vec<(Message, u64)>, now: Timestamp, actions: &mut Vec<Action>) {
        // They stay in the inbox, for the next owner.
        if self.is_draining {
            return;
        }
        let mut touched = BTreeSet::new();
        while self.messages.len() > REMEMBERED {
            self.messages.pop_first();
        }
        for (message, version) in messages {
            let is_new = message.message_id.0.is_some_and(|id| self.messages.insert(id));
            if is_new {
                touched.insert(message.execution_id);
                self.tell(message.execution_id, News::Message(Box::new(message), version), actions);
            }
        }
        for execution in touched {
            self.go_on(execution, now, actions);
        }
    }

    /// Those of one execution go into one commit.
    fn ended(&mut self, ends: Vec<End>, now: Timestamp, actions: &mut Vec<Action>) {
        let mut touched = BTreeSet::new();
        for End { attempt, by, result } in ends {
            let is_wanted = match by {
                By::Owner(performance) => {
                    let is_its = self.performing.get(&attempt) == Some(&performance);
                    is_its && self.performing.remove(&attempt).is_some()
                }
                By::Worker => true,
            };
            if is_wanted {
                touched.insert(attempt.execution);
                self.tell(attempt.execution, News::Ended(attempt, result), actions);
            }
        }
        for execution in touched {
            self.go_on(execution, now, actions);
        }
    }

    /// Lets an execution know, as soon as it is in memory.
    fn tell(&mut self, execution: ExecutionId, news: News, actions: &mut Vec<Action>) {
        if let Some(active) = self.actives.get_mut(&execution) {
            active.news.push_back(news);
            return;
        }
        if let Some((_, ends)) = self.stuck.get_mut(&execution) {
            match news {
                News::Ended(..) => ends.push_back(news),
                News::Message(..) => self.forget(&[news].into()),
            }
            return;
        }
        let loading = self.loading.entry(execution).or_insert_with(|| {
            actions.push(Action::Load(execution));
            VecDeque::new()
        });
        loading.push_back(news);
    }

    /// Lets an execution do what it can.
    pub(super) fn go_on(&mut self, execution: ExecutionId, now: Timestamp, actions: &mut Vec<Action>) {
        if let Some(active) = self.actives.remove(&execution) {
            self.advance(active, now, actions);
        }
    }

    /// Lets an execution do what it has waited for its turn to do.
    pub(super) fn take_turn(&mut self, execution: ExecutionId, now: Timestamp, actions: &mut Vec<Action>) {
        if let Some(active) = self.actives.get_mut(&execution) {
            active.is_queued = false;
        }
        self.go_on(execution, now, actions);
    }

    fn time(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        for execution in std::mem::take(&mut self.paused) {
            self.take_turn(execution, now, actions);
        }
        if !self.is_draining {
            self.wake_due(now, actions);
            self.retry_stuck(now, actions);
        }
        self.put_aside(now);
        for execution in std::mem::take(&mut self.crowded) {
            self.take_turn(execution, now, actions);
        }
    }

    fn wake_due(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let due: Vec<ExecutionId> =
            self.deadlines.iter().take_while(|(at, _)| *at <= now).map(|(_, execution)| *execution).collect();
        for execution in due {
            self.go_on(execution, now, actions);
        }
    }

    fn retry_stuck(&mut self, now: Timestamp, actions: &mut Vec<Action>) {
        let due: Vec<ExecutionId> =
            self.stuck.iter().filter(|(_, (at, _))| *at <= now).map(|(execution, _)| *execution).collect();
        for execution in due {
            if let Some((_, ends)) = self.stuck.remove(&execution) {
                self.loading.insert(execution, ends);
                actions.push(Action::Load(execution));
            }
        }
    }

    /// Lets go of the guest that has waited longest. Tells whether there was one.
    fn make_room(&mut self) -> bool {
        let idle = self.actives.values().filter(|active| active.guest.is_some() && active.is_idle());
        match idle.min_by_key(|active| active.touched).map(|active| active.id()) {
            Some(execution) => self.remove(&execution).is_some(),
            None => false,
        }
    }

    /// Lets go of executions that wait, when they have done so for long or are too many.
    fn put_aside(&mut self, now: Timestamp) {
        if now < self.swept.plus_ms(SWEEP_MS) {
            return;
        }
        self.swept = now;
        let mut idle: Vec<(Timestamp, ExecutionId)> = self
            .actives
            .values()
            .filter(|active| active.is_idle())
            .map(|active| (active.touched, active.id()))
            .collect();
        idle.sort_unstable();
        let idle_max = if self.functions.room() < ROOM_LOW { 0 } else { self.options.idle_max };
        let surplus = idle.len().saturating_sub(idle_max);
        for (place, (touched, execution)) in idle.into_iter().enumerate() {
            if place < surplus || touched.plus_ms(self.options.idle_ms) <= now {
                self.remove(&execution);
            }
        }
    }

    pub(super) fn remove(&mut self, execution: &ExecutionId) -> Option<Box<Active>> {
        let active = self.actives.remove(execution)?;
        self.unwatch(&active);
        Some(active)
    }

    fn unwatch(&mut self, active: &Active) {
        if let Some(at) = active.watched {
            self.deadlines.remove(&(at, active.id()));
        }
    }

    /// Puts an execution back, and remembers when it is due.
    fn keep(&mut self, mut active: Box<Active>, now: Timestamp) {
        self.unwatch(&active);
        // While a commit is under way nothing can be done about a deadline.
        active.watched = if active.ticket.is_some() || active.is_paused { None } else { active.execution.deadline() };
        if let Some(at) = active.watched {
            self.deadlines.insert((at, active.id()));
        }
        active.touched = now;
        self.actives.insert(active.id(), active);
    }

    /// Goes on as far as it can, and commits that unless a commit is under way.
    pub(super) fn advance(&mut self, mut active: Box<Active>, now: Timestamp, actions: &mut Vec<Action>) {
        match self.go(&mut active, now, actions) {
            Ok(()) => self.keep(active, now),
            // What is under way is not known to be durable yet.
            Err(Halt::Stuck(reason)) if active.ticket.is_some() => {
                active.is_stuck = Some(reason);
                self.keep(active, now);
            }
            Err(Halt::NoRoom) => {
                active.is_paused = true;
                let turn = if self.make_room() { &mut self.paused } else { &mut self.crowded };
                if !std::mem::replace(&mut active.is_queued, true) {
                    turn.push_back(active.id());
                }
                self.keep(active, now);
            }
            Err(Halt::NoCode) => {
                self.unwatch(&active);
                self.start_over(active, false, actions);
            }
            Err(Halt::Stuck(reason)) => {
                self.unwatch(&active);
                self.leave_active(active, reason, now, actions);
            }
        }
    }

    fn go(&mut self, active: &mut Active, now: Timestamp, actions: &mut Vec<Action>) -> Result<(), Halt> {
        let is_ahead = active.ticket.is_some();
        if is_ahead && !active.may_run_ahead() {
            return Ok(());
        }
        // What was done while it ran ahead comes first: the guest may compute for long.
        let is_held = active.has_to_commit();
        if !active.execution.is_over() && !is_held && step::step(self, active, now, actions)? == step::Stepped::Paused {
            active.is_paused = true;
            if !std::mem::replace(&mut active.is_queued, true) {
                self.paused.push_back(active.id());
            }
            return Ok(());
        }
        if is_ahead {
            self.perform_ahead(&mut active.pending, actions);
        } else if let Some(commit) = step::compose(self, active, now)? {
            self.commit_step(active, commit, actions);
            if is_held {
                return self.go(active, now, actions);
            }
        }
        Ok(())
    }
}

/// The kind of failure of an attempt that must not be repeated and may have been performed.
pub(crate) const IN_DOUBT: &str = "in_doubt";

/// What became of an attempt that must not be repeated and may have been performed.
pub fn in_doubt(how: &str) -> ExecutionError {
    ExecutionError::named(IN_DOUBT, format!("{how}, and whether it was done is not known")).permanent()
}
