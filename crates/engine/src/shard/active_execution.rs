//! An execution in memory, with its uncommitted effects and its stored version.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use onward_base::{SharedText, Timestamp};
use onward_execution::{AttemptInFlight, Execution, Guest};
use onward_journal::{ExecutionId, ExecutionState, PromiseId};
use onward_store::tables::{ExecutionRow as Row, InboxMessageRow};
use onward_store::{Error, StoreErrorKind};

use super::task_row::{self, QueuedTask};
use super::{AttemptId, FunctionCaller, TaskAttempt, message, owner_key};

pub(super) use crate::row_state::WAKE_NOW;

/// Maximum number of uncommitted events with which an execution still runs ahead of the store.
const UNCOMMITTED_EVENTS_MAX: usize = 1_024;

/// Version of a row that is not stored yet.
pub(super) const VERSION_UNSTORED: u64 = 0;

pub(super) struct ActiveExecution {
    pub(super) row: Row,
    pub(super) owner: SharedText,
    pub(super) version: u64,
    pub(super) execution: Execution,
    /// `None` if no guest exists: one is created and replayed when it is needed.
    pub(super) guest: Option<Box<dyn Guest>>,
    /// Ticket of the commit in flight.
    pub(super) commit_ticket: Option<u64>,
    /// Whether the guest has to continue before it receives new inputs, because it used up its time
    /// slice, filled a batch or waits for capacity.
    pub(super) is_paused: bool,
    /// Whether it is queued as paused or waiting for capacity.
    pub(super) is_queued: bool,
    /// Inputs that are not recorded yet.
    pub(super) inputs: VecDeque<PendingInput>,
    /// Effects of the commit in flight.
    pub(super) committing: PendingEffects,
    /// Effects of the next commit.
    pub(super) pending: PendingEffects,
    /// Whether it fails because the store refused its last step.
    pub(super) is_step_refused: bool,
    /// Why it cannot make progress, found while it ran ahead.
    pub(super) stuck_reason: Option<String>,
    /// When it was last used, to evict the longest unused first.
    pub(super) last_used_at: Timestamp,
    /// The deadline that is registered with its shard.
    pub(super) watched_deadline: Option<Timestamp>,
}

/// An input for an execution that is not recorded yet.
#[derive(Debug, Clone)]
pub(super) enum PendingInput {
    AttemptEnded(AttemptId, onward_journal::InvokeResult),
    Message(Box<InboxMessageRow>, u64),
    /// The store refused the last step because of its size: the execution fails.
    StepRefused(String),
}

impl PendingInput {
    pub(super) fn is_cancel(&self) -> bool {
        matches!(self, Self::Message(message, _) if message::is_cancel(message))
    }
}

/// Whether the outcome of the commit in flight is known when its execution is discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitCertainty {
    /// The commit failed, or none is in flight: the attempts that it starts are not recorded.
    Settled,
    /// The commit may have been stored: the attempts that it starts may be recorded.
    Unknown,
}

impl CommitCertainty {
    /// The certainty after a commit failed with this error.
    pub(super) fn of_error(error: &Error) -> Self {
        match error.kind() {
            StoreErrorKind::Unknown => Self::Unknown,
            _ => Self::Settled,
        }
    }
}

/// What remains to be handled of an execution whose uncommitted state is discarded.
#[derive(Default)]
pub(super) struct DiscardedState {
    /// Ends of attempts whose start is stored: this knowledge exists only here.
    pub(super) ended_attempts: VecDeque<PendingInput>,
    /// Ids of messages that are still in the inbox.
    pub(super) messages: Vec<i64>,
    /// Attempts that may be recorded as started but were not started.
    pub(super) unstarted: Vec<AttemptId>,
    /// Tasks that may be stored as claimed by workers that do not learn of it, with their claim
    /// tokens.
    pub(super) undelivered_claims: Vec<(AttemptId, SharedText)>,
    /// Attempts that were started but may not be recorded. Their results are discarded.
    pub(super) started_early: BTreeSet<AttemptId>,
}

/// Effects of a step that follow once its commit is durable.
#[derive(Default)]
pub(super) struct PendingEffects {
    /// Attempts that the shard owner performs.
    pub(super) attempts: Vec<TaskAttempt>,
    /// Attempts that a crashed owner began: they are performed again once the takeover is counted.
    pub(super) resumed: Vec<TaskAttempt>,
    /// Tasks to store for workers.
    pub(super) tasks: Vec<QueuedTask>,
    /// Tasks to remove, because workers need not perform them any more.
    pub(super) withdrawn: Vec<AttemptId>,
    /// Attempts that are performed before the commit is durable, because they have no side effects.
    pub(super) started_early: BTreeSet<AttemptId>,
    /// Attempts to abort, because their results are no longer needed.
    pub(super) abandoned: Vec<AttemptId>,
    /// Child and successor executions to start.
    pub(super) children: Vec<ActiveExecution>,
    /// Messages that were consumed, with their versions.
    pub(super) consumed: Vec<(InboxMessageRow, u64)>,
    /// Messages to send.
    pub(super) sent: Vec<InboxMessageRow>,
    /// Attempts whose end the commit records: if it fails, this knowledge exists only here.
    pub(super) ended_attempts: Vec<(AttemptId, onward_journal::InvokeResult)>,
    /// Those of the ended attempts whose workers wait for a reply.
    pub(super) worker_results: Vec<AttemptId>,
    /// Sequences of the events that the commit records.
    pub(super) recorded: Range<u64>,
    /// Whether the body of the row is new.
    pub(super) changes_body: bool,
    /// Whether the commit changes the row, which increments its version.
    pub(super) changes_row: bool,
}

impl ActiveExecution {
    pub(super) fn new(row: Row, version: u64, execution: Execution, now: Timestamp) -> Self {
        Self {
            owner: owner_key(&row.tenant_id, &row.project_id, &row.environment_id),
            row,
            version,
            execution,
            guest: None,
            commit_ticket: None,
            is_paused: false,
            is_queued: false,
            inputs: VecDeque::new(),
            committing: PendingEffects::default(),
            pending: PendingEffects::default(),
            is_step_refused: false,
            stuck_reason: None,
            last_used_at: now,
            watched_deadline: None,
        }
    }

    pub(super) fn function_caller(&self) -> FunctionCaller<'_> {
        FunctionCaller {
            component: self.row.component_digest,
            owner: &self.owner,
        }
    }

    pub(super) const fn id(&self) -> ExecutionId {
        self.execution.id()
    }

    /// The displayed state and the wake time of the row, derived from the journal.
    pub(super) fn row_state(&self) -> (ExecutionState, Timestamp) {
        crate::row_state::derive_row_state(&self.execution)
    }

    /// Whether the end of this attempt is known but not recorded yet.
    pub(super) fn has_ended(&self, id: AttemptId) -> bool {
        self.inputs
            .iter()
            .any(|input| matches!(input, PendingInput::AttemptEnded(ended, _) if *ended == id))
    }

    /// The operation of the parent execution that this one performs, and the attempt number.
    pub(super) fn parent_attempt(&self) -> Option<(PromiseId, u32)> {
        super::parent_attempt(self.execution.journal())
    }

    /// The id of an attempt of this execution that is in flight.
    pub(super) const fn attempt_id_of(&self, flight: AttemptInFlight) -> AttemptId {
        AttemptId {
            execution: self.id(),
            number: flight.number,
            attempt: flight.attempt,
        }
    }

    /// Withdraws a task from the workers, whether or not one has claimed it.
    pub(super) fn withdraw_task(&mut self, flight: AttemptInFlight) {
        let withdrawn = self.attempt_id_of(flight);
        let queued = self.pending.tasks.len();
        self.pending
            .tasks
            .retain(|task| task_row::attempt_id(&task.row) != withdrawn);
        // A task that no commit has stored need not be removed.
        if self.pending.tasks.len() == queued && !self.pending.withdrawn.contains(&withdrawn) {
            self.pending.withdrawn.push(withdrawn);
        }
    }

    /// Whether it can continue while a commit is in flight. Not if that might need more than what
    /// is in memory, nor without bound: a crash loses all of it.
    pub(super) fn can_run_ahead(&self) -> bool {
        let is_ready =
            self.guest.is_some() && self.stuck_reason.is_none() && !self.execution.is_terminal();
        is_ready && !self.must_commit() && self.execution.untaken_count() < UNCOMMITTED_EVENTS_MAX
    }

    /// Whether pending effects must be committed before the execution continues, because others
    /// wait for them or the batch is full.
    pub(super) fn must_commit(&self) -> bool {
        let PendingEffects {
            attempts,
            resumed,
            tasks,
            withdrawn,
            children,
            consumed,
            sent,
            ..
        } = &self.pending;
        let is_asked = !attempts.is_empty()
            || !resumed.is_empty()
            || !tasks.is_empty()
            || !withdrawn.is_empty();
        let is_awaited =
            is_asked || !children.is_empty() || !consumed.is_empty() || !sent.is_empty();
        is_awaited || self.execution.is_batch_full()
    }

    /// Discards all state that is not durable and returns what is known beyond the store.
    pub(super) fn into_discarded(mut self, certainty: CommitCertainty) -> DiscardedState {
        let is_unknown = certainty == CommitCertainty::Unknown;
        let mut remains = DiscardedState::default();
        // A commit without events concerns attempts that were recorded before.
        if is_unknown || self.committing.recorded.is_empty() {
            remains
                .unstarted
                .extend(self.committing.attempts.drain(..).map(|attempt| attempt.id));
        }
        if is_unknown {
            let claims = self
                .committing
                .tasks
                .iter()
                .map(|task| (task_row::attempt_id(&task.row), task.row.claim.clone()));
            remains
                .undelivered_claims
                .extend(claims.filter_map(|(id, claim)| Some((id, claim?))));
        }
        let started_early: BTreeSet<AttemptId> =
            &self.committing.started_early | &self.pending.started_early;
        for pending in [self.committing, self.pending] {
            remains.messages.extend(
                pending
                    .consumed
                    .into_iter()
                    .filter_map(|(message, _)| message.message_id.0),
            );
            remains.ended_attempts.extend(
                pending
                    .ended_attempts
                    .into_iter()
                    .map(|(id, result)| PendingInput::AttemptEnded(id, result)),
            );
        }
        for input in self.inputs {
            match input {
                PendingInput::AttemptEnded(..) => remains.ended_attempts.push_back(input),
                PendingInput::Message(message, _) => remains.messages.extend(message.message_id.0),
                PendingInput::StepRefused(_) => {}
            }
        }
        remains.ended_attempts.retain(
            |input| !matches!(input, PendingInput::AttemptEnded(id, _) if started_early.contains(id)),
        );
        remains.started_early = started_early;
        remains
    }

    /// Whether the start or end of an attempt is known that no commit contains yet.
    pub(super) fn has_unrecorded_attempts(&self) -> bool {
        let is_end = |input: &PendingInput| matches!(input, PendingInput::AttemptEnded(..));
        !self.pending.attempts.is_empty()
            || !self.pending.resumed.is_empty()
            || !self.pending.ended_attempts.is_empty()
            || self.inputs.iter().any(is_end)
    }

    /// Whether it can leave memory without loss.
    pub(super) fn is_idle(&self) -> bool {
        self.commit_ticket.is_none()
            && self.inputs.is_empty()
            && !self.is_paused
            && self.row_state().1 != WAKE_NOW
    }
}
