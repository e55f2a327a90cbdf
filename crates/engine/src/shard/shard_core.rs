//! The state machine of a shard: routes inputs to the executions they concern and commits their
//! steps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use onward_base::{Payload, Timestamp};
use onward_execution::{Execution, ExecutionLimits, ExecutionOutcome};
use onward_journal::{DeliveryGuarantee, ExecutionError, ExecutionId, Journal, JournalEvent};
use onward_store::tables::{ExecutionRow as Row, InboxMessageRow};
use onward_store::{Commit, Error, ShardEpoch, ShardId, StoreErrorKind};

use super::active_execution::{ActiveExecution, PendingInput, VERSION_UNSTORED};
use super::step::StepBlocked;
use super::{
    AttemptEnd, AttemptId, AttemptReporter, FunctionResolver, ShardAction, ShardInput, message,
    step,
};
use crate::task_matcher::TaskMatcher;

/// Maximum number of remembered message ids. If an id is dropped too early, the store rejects the
/// commit that consumes the message a second time.
const SEEN_MESSAGES_MAX: usize = 1 << 16;

/// Interval at which idle executions are looked for, in milliseconds.
const IDLE_SWEEP_INTERVAL_MS: u64 = 100;

/// Delay before a stuck execution is retried, in milliseconds: its code may be available by then.
const STUCK_RETRY_MS: u64 = 30_000;

/// Guest capacity below which all idle executions are evicted.
const GUEST_CAPACITY_LOW: usize = 64;

/// Settings of a shard.
#[derive(Debug, Clone, Copy)]
pub struct ShardOptions {
    /// Limits of each execution.
    pub limits: ExecutionLimits,
    /// How long an idle execution stays in memory, in milliseconds; default: 10000.
    pub idle_ms: u64,
    /// Maximum number of idle executions in memory; default: 64.
    pub idle_max: usize,
    /// Whether to emit trace spans of executions; default: false.
    pub emit_spans: bool,
}

impl Default for ShardOptions {
    fn default() -> Self {
        Self {
            limits: ExecutionLimits::default(),
            idle_ms: 10_000,
            idle_max: 64,
            emit_spans: false,
        }
    }
}

/// Fills bytes with unpredictable entropy, or in a simulation with bytes from a seed.
pub type ShardEntropy = Box<dyn FnMut(&mut [u8]) + Send>;

/// The core of one shard; see the [module documentation](super).
pub struct ShardCore {
    pub(super) shard: ShardId,
    pub(super) epoch: ShardEpoch,
    pub(super) options: ShardOptions,
    pub(super) functions: Arc<dyn FunctionResolver>,
    pub(super) task_matcher: Arc<TaskMatcher>,
    pub(super) entropy: ShardEntropy,
    /// Executions in memory. Boxed, because they are taken out and put back at every step.
    pub(super) actives: BTreeMap<ExecutionId, Box<ActiveExecution>>,
    /// Executions that are being loaded, and the inputs that arrived for them meanwhile.
    pub(super) loading: BTreeMap<ExecutionId, VecDeque<PendingInput>>,
    /// Executions whose guests have used up their time slice, in FIFO order.
    paused: VecDeque<ExecutionId>,
    /// Executions that wait for guest capacity, in FIFO order.
    pub(super) waiting_for_capacity: VecDeque<ExecutionId>,
    /// Stuck executions: when to retry them, and the attempt ends that arrived for them.
    parked: BTreeMap<ExecutionId, (Timestamp, VecDeque<PendingInput>)>,
    /// Executions in memory that have a deadline, ordered by it.
    deadlines: BTreeSet<(Timestamp, ExecutionId)>,
    pub(super) commits_in_flight: BTreeMap<u64, CommitSubject>,
    pub(super) next_ticket: u64,
    /// Ids of messages that are being recorded or were recently recorded: an older read of the
    /// inbox may still return them.
    pub(super) seen_messages: BTreeSet<i64>,
    /// Attempts that are being performed, with their dispatch ids.
    pub(super) performing: BTreeMap<AttemptId, u64>,
    pub(super) last_dispatch_id: u64,
    /// Attempts that may be recorded as started but were not: the outcome of their commit is
    /// unknown.
    pub(super) unstarted: BTreeSet<AttemptId>,
    /// When idle executions were last looked for.
    last_sweep_at: Timestamp,
    pub(super) is_lost: bool,
    /// Whether the core is draining: no new work begins.
    pub(super) is_draining: bool,
}

/// The execution or messages that a commit concerns.
pub(super) enum CommitSubject {
    Execution(ExecutionId),
    /// Messages to executions that have ended or never existed.
    Messages(Vec<i64>),
}

impl ShardCore {
    /// Creates the core of a shard that was claimed at `epoch`.
    pub fn new(
        shard: ShardId,
        epoch: ShardEpoch,
        functions: Arc<dyn FunctionResolver>,
        entropy: ShardEntropy,
        options: ShardOptions,
    ) -> Self {
        Self {
            shard,
            epoch,
            options,
            functions,
            task_matcher: Arc::default(),
            entropy,
            actives: BTreeMap::new(),
            loading: BTreeMap::new(),
            paused: VecDeque::new(),
            waiting_for_capacity: VecDeque::new(),
            parked: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            commits_in_flight: BTreeMap::new(),
            next_ticket: 0,
            seen_messages: BTreeSet::new(),
            performing: BTreeMap::new(),
            last_dispatch_id: 0,
            unstarted: BTreeSet::new(),
            last_sweep_at: Timestamp::MIN,
            is_lost: false,
            is_draining: false,
        }
    }

    /// Connects the core to the workers that wait for tasks in this process.
    #[must_use]
    pub fn with_task_matcher(mut self, offers: Arc<TaskMatcher>) -> Self {
        self.task_matcher = offers;
        self
    }

    /// Whether an execution is in memory, being loaded, or parked because it is stuck.
    pub fn is_tracking(&self, execution: &ExecutionId) -> bool {
        self.actives.contains_key(execution)
            || self.loading.contains_key(execution)
            || self.parked.contains_key(execution)
    }

    /// Number of executions in memory.
    pub fn len(&self) -> usize {
        self.actives.len()
    }

    /// Whether no execution is in memory.
    pub fn is_empty(&self) -> bool {
        self.actives.is_empty()
    }

    /// Whether paused guests wait for their turn: feed [`ShardInput::Tick`] soon.
    pub fn has_paused_guests(&self) -> bool {
        !self.paused.is_empty()
    }

    /// When the next deadline is due: feed [`ShardInput::Tick`] then.
    pub fn next_deadline(&self) -> Option<Timestamp> {
        if self.is_draining {
            return None;
        }
        let stuck = self.parked.values().map(|(at, _)| *at).min();
        self.deadlines
            .first()
            .map(|(at, _)| *at)
            .into_iter()
            .chain(stuck)
            .min()
    }

    /// Applies an input and returns the actions to perform.
    pub fn handle_input(&mut self, input: ShardInput, now: Timestamp) -> Vec<ShardAction> {
        let mut actions = Vec::new();
        if self.is_lost {
            return actions;
        }
        match input {
            ShardInput::Loaded {
                row,
                version,
                events,
            } => self.on_loaded(*row, version, events, now, &mut actions),
            ShardInput::StartRequested { row, execution } => {
                self.on_start_requested(*row, *execution, now, &mut actions)
            }
            ShardInput::NotFound(execution) => self.on_not_found(execution, &mut actions),
            ShardInput::LoadFailed { execution, error } => {
                self.on_load_failed(execution, &error, now, &mut actions)
            }
            ShardInput::Messages(messages) => self.on_messages(messages, now, &mut actions),
            ShardInput::AttemptsEnded(ends) => self.on_attempts_ended(ends, now, &mut actions),
            ShardInput::Committed { ticket, result } => {
                self.on_committed(ticket, &result, now, &mut actions)
            }
            ShardInput::Tick => self.on_tick(now, &mut actions),
        }
        actions
    }

    fn on_loaded(
        &mut self,
        row: Row,
        version: u64,
        events: Vec<JournalEvent>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        let id = row.execution_id;
        if self.actives.contains_key(&id) {
            return;
        }
        let news = self.loading.remove(&id).unwrap_or_default();
        if self.is_draining && !self.is_needed_for_drain(&id, &news) {
            return;
        }
        let journal = match Journal::recover(id, events) {
            Ok(journal) => journal,
            Err(violation) => {
                let reason = format!("its journal is not valid: {violation}");
                return self.park_execution(id, reason, news, now, actions);
            }
        };
        let execution = Execution::recover(journal, self.options.limits);
        if let Some(ending) = execution.execution_outcome() {
            return self.forward_or_discard(news, &ending, actions);
        }
        let mut active = Box::new(ActiveExecution::new(row, version, execution, now));
        // A step that was too large for one commit ends in the middle of a turn: the guest
        // continues before it receives new inputs.
        active.is_paused = active.execution.is_mid_turn();
        active.inputs = news;
        self.resume_attempts(&mut active, actions);
        self.advance_execution(active, now, actions);
    }

    /// Starts an execution together with its first step, if that step is short.
    fn on_start_requested(
        &mut self,
        row: Row,
        execution: Execution,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        let id = execution.id();
        let mut active = Box::new(ActiveExecution::new(row, VERSION_UNSTORED, execution, now));
        let mut said = Vec::new();
        let Some(commit) = self.try_first_step(&mut active, now, &mut said) else {
            return actions.push(ShardAction::StartSettled {
                execution: id,
                result: None,
            });
        };
        actions.append(&mut said);
        self.commit_step(&mut active, commit, actions);
        self.put_active(active, now);
    }

    fn try_first_step(
        &mut self,
        active: &mut ActiveExecution,
        now: Timestamp,
        said: &mut Vec<ShardAction>,
    ) -> Option<Commit> {
        let is_refused = self.is_draining || self.is_tracking(&active.id());
        if is_refused || step::run_step(self, active, now, said).ok()? == step::StepProgress::Paused
        {
            return None;
        }
        step::compose_commit(self, active, now).ok()?
    }

    /// Resumes attempts that were in flight when the execution left memory: at-least-once attempts
    /// are repeated, at-most-once attempts are in doubt.
    fn resume_attempts(&mut self, active: &mut ActiveExecution, actions: &mut Vec<ShardAction>) {
        let execution = active.id();
        for flight in active
            .execution
            .attempts_in_flight()
            .filter(|flight| flight.performer.is_owner())
            .collect::<Vec<_>>()
        {
            let id = AttemptId {
                execution,
                number: flight.number,
                attempt: flight.attempt,
            };
            let Some(attempt) = step::build_attempt(
                self,
                active,
                id,
                step::resolve_invocation(self, active, id.number),
            ) else {
                continue;
            };
            if self.is_performing(&id) || active.has_ended(id) {
                continue;
            }
            let is_untouched = self.unstarted.remove(&id);
            if self.is_draining && !is_untouched {
                continue;
            }
            match attempt.delivery {
                DeliveryGuarantee::AtMostOnce if !is_untouched => {
                    active.inputs.push_back(PendingInput::AttemptEnded(
                        id,
                        Err(in_doubt_error("it was started before a crash")),
                    ));
                    actions.push(ShardAction::InDoubt(id));
                }
                // Its start is recorded, perhaps by another owner that has performed it. A fenced
                // commit shows whether there was one.
                DeliveryGuarantee::AtMostOnce => active.pending.attempts.push(attempt),
                DeliveryGuarantee::AtLeastOnce => self.dispatch_attempt(attempt, actions),
            }
        }
    }

    pub(super) fn is_performing(&self, attempt: &AttemptId) -> bool {
        self.performing.contains_key(attempt)
    }

    /// Retries a load that failed temporarily; parks the execution if its stored data is corrupt.
    fn on_load_failed(
        &mut self,
        execution: ExecutionId,
        error: &Error,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        match error.kind() {
            StoreErrorKind::Corrupt | StoreErrorKind::Invalid => {
                let news = self.loading.remove(&execution).unwrap_or_default();
                self.park_execution(execution, error.to_string(), news, now, actions);
            }
            _ => actions.push(ShardAction::LoadLater(execution)),
        }
    }

    /// Parks a stuck execution until its retry. Its messages stay in the inbox.
    pub(super) fn park_execution(
        &mut self,
        execution: ExecutionId,
        reason: String,
        news: VecDeque<PendingInput>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        self.forget_messages(&news);
        let ends = news
            .into_iter()
            .filter(|news| matches!(news, PendingInput::AttemptEnded(..)))
            .collect();
        self.parked
            .insert(execution, (now.plus_ms(STUCK_RETRY_MS), ends));
        actions.push(ShardAction::ExecutionStuck { execution, reason });
    }

    /// Forwards the pending messages of an execution that has ended to the execution it continued
    /// as, or deletes them.
    pub(super) fn forward_or_discard(
        &mut self,
        news: VecDeque<PendingInput>,
        ending: &ExecutionOutcome,
        actions: &mut Vec<ShardAction>,
    ) {
        let mut commit = Commit::new().fence_shard(self.shard, self.epoch);
        let mut ids = Vec::new();
        for item in news {
            if let PendingInput::AttemptEnded(attempt, _) = item {
                actions.push(ShardAction::WorkerResultSettled {
                    attempt,
                    is_recorded: false,
                });
            } else if let PendingInput::Message(sent, version) = item {
                let next = match ending {
                    ExecutionOutcome::Continued(next) => {
                        message::forward_message(&sent, *next).ok().flatten()
                    }
                    ExecutionOutcome::Result(_) => None,
                };
                commit = match next {
                    Some(next) => {
                        message::consume_message(commit, &sent, version).insert_or_keep(&next)
                    }
                    None => commit.delete(&*sent, version),
                };
                ids.extend(sent.message_id.0);
            }
        }
        if !ids.is_empty() {
            self.begin_commit(CommitSubject::Messages(ids), commit, actions);
        }
    }

    fn forget_messages(&mut self, news: &VecDeque<PendingInput>) {
        for item in news {
            if let PendingInput::Message(message, _) = item
                && let Some(id) = message.message_id.0
            {
                self.seen_messages.remove(&id);
            }
        }
    }

    fn on_not_found(&mut self, execution: ExecutionId, actions: &mut Vec<ShardAction>) {
        let news = self.loading.remove(&execution).unwrap_or_default();
        self.forward_or_discard(
            news,
            &ExecutionOutcome::Result(Ok(Payload::null())),
            actions,
        );
    }

    fn on_messages(
        &mut self,
        messages: Vec<(InboxMessageRow, u64)>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        // While draining, messages stay in the inbox for the next owner.
        if self.is_draining {
            return;
        }
        let mut touched = BTreeSet::new();
        while self.seen_messages.len() > SEEN_MESSAGES_MAX {
            self.seen_messages.pop_first();
        }
        for (message, version) in messages {
            let is_new = message
                .message_id
                .0
                .is_some_and(|id| self.seen_messages.insert(id));
            if is_new {
                touched.insert(message.execution_id);
                self.enqueue_input(
                    message.execution_id,
                    PendingInput::Message(Box::new(message), version),
                    actions,
                );
            }
        }
        for execution in touched {
            self.advance_if_active(execution, now, actions);
        }
    }

    /// Enqueues all ends first, so that those of one execution go into one commit.
    fn on_attempts_ended(
        &mut self,
        ends: Vec<AttemptEnd>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        let mut touched = BTreeSet::new();
        for AttemptEnd {
            attempt,
            reported_by: by,
            result,
        } in ends
        {
            let is_wanted = match by {
                AttemptReporter::Owner(performance) => {
                    let is_its = self.performing.get(&attempt) == Some(&performance);
                    is_its && self.performing.remove(&attempt).is_some()
                }
                AttemptReporter::Worker => true,
            };
            if is_wanted {
                touched.insert(attempt.execution);
                self.enqueue_input(
                    attempt.execution,
                    PendingInput::AttemptEnded(attempt, result),
                    actions,
                );
            }
        }
        for execution in touched {
            self.advance_if_active(execution, now, actions);
        }
    }

    /// Enqueues an input for an execution, which is loaded first if it is not in memory.
    fn enqueue_input(
        &mut self,
        execution: ExecutionId,
        news: PendingInput,
        actions: &mut Vec<ShardAction>,
    ) {
        if let Some(active) = self.actives.get_mut(&execution) {
            active.inputs.push_back(news);
            return;
        }
        if let Some((_, ends)) = self.parked.get_mut(&execution) {
            match news {
                PendingInput::AttemptEnded(..) => ends.push_back(news),
                PendingInput::Message(..) => self.forget_messages(&[news].into()),
            }
            return;
        }
        let loading = self.loading.entry(execution).or_insert_with(|| {
            actions.push(ShardAction::Load(execution));
            VecDeque::new()
        });
        loading.push_back(news);
    }

    /// Advances an execution if it is in memory.
    pub(super) fn advance_if_active(
        &mut self,
        execution: ExecutionId,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        if let Some(active) = self.actives.remove(&execution) {
            self.advance_execution(active, now, actions);
        }
    }

    /// Advances an execution that was queued as paused or waiting for capacity.
    pub(super) fn advance_queued(
        &mut self,
        execution: ExecutionId,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        if let Some(active) = self.actives.get_mut(&execution) {
            active.is_queued = false;
        }
        self.advance_if_active(execution, now, actions);
    }

    fn on_tick(&mut self, now: Timestamp, actions: &mut Vec<ShardAction>) {
        for execution in std::mem::take(&mut self.paused) {
            self.advance_queued(execution, now, actions);
        }
        if !self.is_draining {
            self.wake_due(now, actions);
            self.retry_stuck(now, actions);
        }
        self.evict_idle_executions(now);
        for execution in std::mem::take(&mut self.waiting_for_capacity) {
            self.advance_queued(execution, now, actions);
        }
    }

    fn wake_due(&mut self, now: Timestamp, actions: &mut Vec<ShardAction>) {
        let due: Vec<ExecutionId> = self
            .deadlines
            .iter()
            .take_while(|(at, _)| *at <= now)
            .map(|(_, execution)| *execution)
            .collect();
        for execution in due {
            self.advance_if_active(execution, now, actions);
        }
    }

    fn retry_stuck(&mut self, now: Timestamp, actions: &mut Vec<ShardAction>) {
        let due: Vec<ExecutionId> = self
            .parked
            .iter()
            .filter(|(_, (at, _))| *at <= now)
            .map(|(execution, _)| *execution)
            .collect();
        for execution in due {
            if let Some((_, ends)) = self.parked.remove(&execution) {
                self.loading.insert(execution, ends);
                actions.push(ShardAction::Load(execution));
            }
        }
    }

    /// Evicts the idle guest that was unused for longest. Returns whether there was one.
    fn evict_idle_guest(&mut self) -> bool {
        let idle = self
            .actives
            .values()
            .filter(|active| active.guest.is_some() && active.is_idle());
        match idle
            .min_by_key(|active| active.last_used_at)
            .map(|active| active.id())
        {
            Some(execution) => self.take_active(&execution).is_some(),
            None => false,
        }
    }

    /// Evicts executions that have been idle for too long or exceed the maximum number.
    fn evict_idle_executions(&mut self, now: Timestamp) {
        if now < self.last_sweep_at.plus_ms(IDLE_SWEEP_INTERVAL_MS) {
            return;
        }
        self.last_sweep_at = now;
        let mut idle: Vec<(Timestamp, ExecutionId)> = self
            .actives
            .values()
            .filter(|active| active.is_idle())
            .map(|active| (active.last_used_at, active.id()))
            .collect();
        idle.sort_unstable();
        let idle_max = if self.functions.guest_capacity() < GUEST_CAPACITY_LOW {
            0
        } else {
            self.options.idle_max
        };
        let surplus = idle.len().saturating_sub(idle_max);
        for (place, (touched, execution)) in idle.into_iter().enumerate() {
            if place < surplus || touched.plus_ms(self.options.idle_ms) <= now {
                self.take_active(&execution);
            }
        }
    }

    pub(super) fn take_active(&mut self, execution: &ExecutionId) -> Option<Box<ActiveExecution>> {
        let active = self.actives.remove(execution)?;
        self.unwatch_deadline(&active);
        Some(active)
    }

    fn unwatch_deadline(&mut self, active: &ActiveExecution) {
        if let Some(at) = active.watched_deadline {
            self.deadlines.remove(&(at, active.id()));
        }
    }

    /// Puts an execution back into memory and registers its deadline.
    fn put_active(&mut self, mut active: Box<ActiveExecution>, now: Timestamp) {
        self.unwatch_deadline(&active);
        // While a commit is in flight, a deadline cannot be acted on.
        active.watched_deadline = if active.commit_ticket.is_some() || active.is_paused {
            None
        } else {
            active.execution.next_deadline()
        };
        if let Some(at) = active.watched_deadline {
            self.deadlines.insert((at, active.id()));
        }
        active.last_used_at = now;
        self.actives.insert(active.id(), active);
    }

    /// Advances an execution as far as possible and commits the result, unless a commit is in
    /// flight.
    pub(super) fn advance_execution(
        &mut self,
        mut active: Box<ActiveExecution>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        match self.step_and_commit(&mut active, now, actions) {
            Ok(()) => self.put_active(active, now),
            // The commit in flight is not known to be durable yet.
            Err(StepBlocked::Stuck(reason)) if active.commit_ticket.is_some() => {
                active.stuck_reason = Some(reason);
                self.put_active(active, now);
            }
            Err(StepBlocked::NoCapacity) => {
                active.is_paused = true;
                let turn = if self.evict_idle_guest() {
                    &mut self.paused
                } else {
                    &mut self.waiting_for_capacity
                };
                if !std::mem::replace(&mut active.is_queued, true) {
                    turn.push_back(active.id());
                }
                self.put_active(active, now);
            }
            Err(StepBlocked::CodeNotLoaded) => {
                self.unwatch_deadline(&active);
                self.reload_execution(active, false, actions);
            }
            Err(StepBlocked::Stuck(reason)) => {
                self.unwatch_deadline(&active);
                self.park_active_execution(active, reason, now, actions);
            }
        }
    }

    fn step_and_commit(
        &mut self,
        active: &mut ActiveExecution,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) -> Result<(), StepBlocked> {
        let is_ahead = active.commit_ticket.is_some();
        if is_ahead && !active.can_run_ahead() {
            return Ok(());
        }
        // What was done while running ahead is committed first, because the guest may compute for
        // long.
        let is_held = active.must_commit();
        if !active.execution.is_terminal()
            && !is_held
            && step::run_step(self, active, now, actions)? == step::StepProgress::Paused
        {
            active.is_paused = true;
            if !std::mem::replace(&mut active.is_queued, true) {
                self.paused.push_back(active.id());
            }
            return Ok(());
        }
        if is_ahead {
            self.perform_side_effect_free(&mut active.pending, actions);
        } else if let Some(commit) = step::compose_commit(self, active, now)? {
            self.commit_step(active, commit, actions);
            if is_held {
                return self.step_and_commit(active, now, actions);
            }
        }
        Ok(())
    }
}

/// Error kind of an at-most-once attempt that may have been performed.
pub(crate) const IN_DOUBT_KIND: &str = "in_doubt";

/// Permanent error of an at-most-once attempt that may have been performed; `how` describes what
/// happened to it.
pub fn in_doubt_error(how: &str) -> ExecutionError {
    ExecutionError::from_kind_name(
        IN_DOUBT_KIND,
        format!("{how}, and whether it was done is not known"),
    )
    .into_permanent()
}
