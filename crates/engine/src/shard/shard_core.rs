//! The state machine of a shard: dispatches inputs, and advances and commits the executions they
//! concern.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use onward_base::Timestamp;
use onward_execution::ExecutionLimits;
use onward_journal::{ExecutionError, ExecutionId};
use onward_store::{ShardEpoch, ShardId};

use super::active_execution::{ActiveExecution, CommitCertainty, PendingInput};
use super::step::StepBlocked;
use super::{AttemptId, FunctionResolver, ShardAction, ShardInput, step, step_commit};
use crate::task_matcher::TaskMatcher;

/// Delay before a stuck execution is retried, in milliseconds: its code may be available by then.
const STUCK_RETRY_MS: u64 = 30_000;

/// Maximum number of paused guests that get a turn at once.
const PAUSED_TURNS_MAX: usize = 4;

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
    /// Number of takeovers from a crashed owner after which an attempt that was in flight each time
    /// fails instead of being performed again: it may be the cause of the crashes; default: 3.
    pub takeovers_max: u8,
}

impl Default for ShardOptions {
    fn default() -> Self {
        Self {
            limits: ExecutionLimits::default(),
            idle_ms: 10_000,
            idle_max: 64,
            emit_spans: false,
            takeovers_max: 3,
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
    pub(super) paused: VecDeque<ExecutionId>,
    /// Executions that wait for guest capacity, in FIFO order.
    pub(super) waiting_for_capacity: VecDeque<ExecutionId>,
    /// Stuck executions.
    pub(super) parked: BTreeMap<ExecutionId, ParkedExecution>,
    /// Executions in memory that have a deadline, ordered by it.
    pub(super) deadlines: BTreeSet<(Timestamp, ExecutionId)>,
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
    pub(super) last_sweep_at: Timestamp,
    pub(super) is_lost: bool,
    /// Whether the shard was taken over from an owner that had not released it.
    pub(super) is_takeover: bool,
    /// Whether the core is draining: no new work begins.
    pub(super) is_draining: bool,
}

/// A stuck execution.
pub(super) struct ParkedExecution {
    /// When to retry it.
    pub(super) retry_at: Timestamp,
    /// The attempt ends that arrived for it.
    pub(super) ended_attempts: VecDeque<PendingInput>,
    /// Whether a cancellation request did not help it, so that another one has to wait as well.
    pub(super) has_tried_cancel: bool,
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
            is_takeover: false,
            is_draining: false,
        }
    }

    /// Connects the core to the workers that wait for tasks in this process.
    #[must_use]
    pub fn with_task_matcher(mut self, matcher: Arc<TaskMatcher>) -> Self {
        self.task_matcher = matcher;
        self
    }

    /// Tells the core that the former owner of the shard crashed: attempts that were in flight then
    /// are counted, because one of them may have caused the crash.
    #[must_use]
    pub fn after_takeover(mut self, is_takeover: bool) -> Self {
        self.is_takeover = is_takeover;
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
        let stuck = self.parked.values().map(|parked| parked.retry_at).min();
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

    pub(super) fn is_performing(&self, attempt: &AttemptId) -> bool {
        self.performing.contains_key(attempt)
    }

    /// Parks a stuck execution until its retry. Its messages stay in the inbox.
    pub(super) fn park_execution(
        &mut self,
        execution: ExecutionId,
        reason: String,
        pending_inputs: VecDeque<PendingInput>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        self.forget_messages(&pending_inputs);
        let has_tried_cancel = pending_inputs.iter().any(PendingInput::is_cancel);
        let ended_attempts = pending_inputs
            .into_iter()
            .filter(|input| matches!(input, PendingInput::AttemptEnded(..)))
            .collect();
        let parked = ParkedExecution {
            retry_at: now.plus_ms(STUCK_RETRY_MS),
            ended_attempts,
            has_tried_cancel,
        };
        self.parked.insert(execution, parked);
        actions.push(ShardAction::ExecutionStuck { execution, reason });
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
        // A few at a time: each may compute for a whole time slice.
        for _ in 0..PAUSED_TURNS_MAX.min(self.paused.len()) {
            if let Some(execution) = self.paused.pop_front() {
                self.advance_queued(execution, now, actions);
            }
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
            .filter(|(_, parked)| parked.retry_at <= now)
            .map(|(execution, _)| *execution)
            .collect();
        for execution in due {
            if let Some(parked) = self.parked.remove(&execution) {
                self.loading.insert(execution, parked.ended_attempts);
                actions.push(ShardAction::Load(execution));
            }
        }
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
                self.reload_execution(active, CommitCertainty::Settled, actions);
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
            // A cancellation request is recorded although the guest still computes.
            if is_ahead || !active.must_commit() {
                return Ok(());
            }
        }
        if is_ahead {
            self.perform_side_effect_free(&mut active.pending, actions);
        } else if let Some(commit) = step_commit::compose_commit(self, active, now)? {
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
        format!("{how}; whether it took effect is unknown"),
    )
    .into_permanent()
}
