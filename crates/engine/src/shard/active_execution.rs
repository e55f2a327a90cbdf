//! An execution in memory, and how it stands in the store.

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use onward_base::{SharedText, Timestamp};
use onward_execution::{AttemptInFlight, Execution, Guest};
use onward_journal::{ExecutionId, PromiseId};
use onward_store::tables::{ExecutionRow as Row, InboxMessageRow};

use super::task_row::{self, QueuedTask};
use super::{AttemptId, FunctionCaller, TaskAttempt, owner_key};

pub(super) use crate::row_state::WAKE_NOW;

/// Events that an execution may be ahead of the store.
const UNCOMMITTED_EVENTS_MAX: usize = 1_024;

/// The version of a row that is not stored yet.
pub(super) const VERSION_UNSTORED: u64 = 0;

pub(super) struct ActiveExecution {
    pub(super) row: Row,
    pub(super) owner: SharedText,
    pub(super) version: u64,
    pub(super) execution: Execution,
    /// Absent when it was put aside: it is replayed when it is needed.
    pub(super) guest: Option<Box<dyn Guest>>,
    /// The commit under way.
    pub(super) commit_ticket: Option<u64>,
    /// Whether the guest has used up its slice of time.
    pub(super) is_paused: bool,
    /// Whether it waits for its turn, or for room.
    pub(super) is_queued: bool,
    /// What happened and is not recorded yet.
    pub(super) inputs: VecDeque<PendingInput>,
    /// What the commit under way carries, and what follows it.
    pub(super) committing: PendingEffects,
    /// What the next one will.
    pub(super) pending: PendingEffects,
    /// Why it cannot go on, found while it ran ahead.
    pub(super) stuck_reason: Option<String>,
    /// When it was last touched, for whoever puts guests aside.
    pub(super) last_used_at: Timestamp,
    /// The deadline that its shard watches.
    pub(super) watched_deadline: Option<Timestamp>,
}

/// Something that happened to an execution.
#[derive(Debug, Clone)]
pub(super) enum PendingInput {
    AttemptEnded(AttemptId, onward_journal::InvokeResult),
    Message(Box<InboxMessageRow>, u64),
}

/// What is left of an execution whose memory is thrown away.
#[derive(Default)]
pub(super) struct DiscardedState {
    /// How attempts ended that the store knows of: nobody else knows that.
    pub(super) ended_attempts: VecDeque<PendingInput>,
    /// Messages that are in the inbox still.
    pub(super) messages: Vec<i64>,
    /// Attempts that may be recorded and were not begun.
    pub(super) unstarted: Vec<AttemptId>,
    /// Tasks that may be stored as claimed by a worker that does not hear of them.
    pub(super) undelivered_claims: Vec<(AttemptId, SharedText)>,
    /// Attempts that may not be recorded and were begun. What they come to is of no use.
    pub(super) started_early: BTreeSet<AttemptId>,
}

/// What a step leads to once it is durable.
#[derive(Default)]
pub(super) struct PendingEffects {
    /// Attempts to perform.
    pub(super) attempts: Vec<TaskAttempt>,
    /// Tasks for workers.
    pub(super) tasks: Vec<QueuedTask>,
    /// Tasks that workers need not perform any more.
    pub(super) withdrawn: Vec<AttemptId>,
    /// Attempts that are performed before it is durable: they reach nobody.
    pub(super) started_early: BTreeSet<AttemptId>,
    /// Attempts that nobody waits for any more.
    pub(super) abandoned: Vec<AttemptId>,
    /// Executions that were started.
    pub(super) children: Vec<ActiveExecution>,
    /// Messages that were consumed.
    pub(super) consumed: Vec<(InboxMessageRow, u64)>,
    /// Messages that are sent.
    pub(super) sent: Vec<InboxMessageRow>,
    /// Attempts whose end it records: should it fail, nobody else knows of them.
    pub(super) ended_attempts: Vec<(AttemptId, onward_journal::InvokeResult)>,
    /// Those of them that workers wait to hear of.
    pub(super) worker_results: Vec<AttemptId>,
    /// The sequences of the events that it records.
    pub(super) recorded: Range<u64>,
    /// Whether it changes the row.
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

    /// How the row should read, as far as it follows from the journal: the state for people, and when to wake it.
    pub(super) fn row_state(&self) -> (&'static str, Timestamp) {
        crate::row_state::derive_row_state(&self.execution)
    }

    /// Whether the end of this attempt is known and not recorded yet.
    pub(super) fn has_ended(&self, id: AttemptId) -> bool {
        self.inputs
            .iter()
            .any(|news| matches!(news, PendingInput::AttemptEnded(ended, _) if *ended == id))
    }

    /// The operation of another execution that this one performs, and as which attempt.
    pub(super) fn parent_attempt(&self) -> Option<(PromiseId, u32)> {
        super::parent_attempt(self.execution.journal())
    }

    /// Which attempt is under way there.
    pub(super) const fn attempt_id_of(&self, flight: AttemptInFlight) -> AttemptId {
        AttemptId {
            execution: self.id(),
            number: flight.number,
            attempt: flight.attempt,
        }
    }

    /// Takes a task from workers, whether one has it or none.
    pub(super) fn withdraw_task(&mut self, flight: AttemptInFlight) {
        let withdrawn = self.attempt_id_of(flight);
        let queued = self.pending.tasks.len();
        self.pending
            .tasks
            .retain(|task| task_row::attempt_id(&task.row) != withdrawn);
        // What no commit has stored need not be taken back.
        if self.pending.tasks.len() == queued && !self.pending.withdrawn.contains(&withdrawn) {
            self.pending.withdrawn.push(withdrawn);
        }
    }

    /// Whether it can go on while a commit is under way. Not if that might need more than what is in memory, nor for long:
    /// all of it is lost in a crash.
    pub(super) fn can_run_ahead(&self) -> bool {
        let is_ready =
            self.guest.is_some() && self.stuck_reason.is_none() && !self.execution.is_terminal();
        is_ready && !self.must_commit() && self.execution.untaken_count() < UNCOMMITTED_EVENTS_MAX
    }

    /// Whether something others wait for goes no further before it is committed.
    pub(super) fn must_commit(&self) -> bool {
        let PendingEffects {
            attempts,
            tasks,
            withdrawn,
            children,
            consumed,
            sent,
            ..
        } = &self.pending;
        let is_asked = !attempts.is_empty() || !tasks.is_empty() || !withdrawn.is_empty();
        let is_awaited =
            is_asked || !children.is_empty() || !consumed.is_empty() || !sent.is_empty();
        is_awaited || self.execution.is_batch_full()
    }

    /// What is known besides the store when all that is not durable is thrown away. What a commit starts may be recorded if
    /// its outcome `is_unknown`; else it is not.
    pub(super) fn into_discarded(mut self, is_unknown: bool) -> DiscardedState {
        let mut remains = DiscardedState::default();
        // A commit without events is about attempts that were recorded before.
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
        let ahead: BTreeSet<AttemptId> =
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
        for news in self.inputs {
            match news {
                PendingInput::AttemptEnded(..) => remains.ended_attempts.push_back(news),
                PendingInput::Message(message, _) => remains.messages.extend(message.message_id.0),
            }
        }
        remains.ended_attempts.retain(
            |news| !matches!(news, PendingInput::AttemptEnded(id, _) if ahead.contains(id)),
        );
        remains.started_early = ahead;
        remains
    }

    /// Whether something is known of its attempts that no commit carries yet: that one has begun, or ended.
    pub(super) fn has_unrecorded_attempts(&self) -> bool {
        let is_end = |news: &PendingInput| matches!(news, PendingInput::AttemptEnded(..));
        !self.pending.attempts.is_empty()
            || !self.pending.ended_attempts.is_empty()
            || self.inputs.iter().any(is_end)
    }

    /// Whether nothing is lost when it leaves memory.
    pub(super) fn is_idle(&self) -> bool {
        self.commit_ticket.is_none()
            && self.inputs.is_empty()
            && !self.is_paused
            && self.row_state().1 != WAKE_NOW
    }
}
