//! Commits of executions and their consequences: the effects of a durable commit are performed, the
//! state of a failed one is discarded.

use std::collections::VecDeque;

use onward_base::{SharedText, Timestamp};
use onward_journal::ExecutionId;
use onward_store::{Commit, CommitConflict, CommitReceipt, Error, InvalidRequest, StoreErrorKind};

use super::active_execution::{
    ActiveExecution, CommitCertainty, PendingEffects, PendingInput, VERSION_UNSTORED,
};
use super::shard_core::{CommitSubject, ShardCore};
use super::task_row::QueuedTask;
use super::{AttemptId, ShardAction, TaskAttempt, task_row, trace_span};

impl ShardCore {
    /// Commits everything that an execution has done since its last commit.
    pub(super) fn commit_step(
        &mut self,
        active: &mut ActiveExecution,
        commit: Commit,
        actions: &mut Vec<ShardAction>,
    ) {
        active.commit_ticket =
            Some(self.begin_commit(CommitSubject::Execution(active.id()), commit, actions));
        active.committing = std::mem::take(&mut active.pending);
        self.perform_side_effect_free(&mut active.committing, actions);
    }

    /// Performs attempts without side effects before their commit is durable.
    pub(super) fn perform_side_effect_free(
        &mut self,
        pending: &mut PendingEffects,
        actions: &mut Vec<ShardAction>,
    ) {
        for attempt in pending
            .attempts
            .extract_if(.., |attempt| attempt.is_side_effect_free())
        {
            pending.started_early.insert(attempt.id);
            self.dispatch_attempt(attempt, actions);
        }
    }

    pub(super) fn begin_commit(
        &mut self,
        whose: CommitSubject,
        commit: Commit,
        actions: &mut Vec<ShardAction>,
    ) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.commits_in_flight.insert(ticket, whose);
        actions.push(ShardAction::Commit {
            ticket,
            commit: Box::new(commit),
        });
        ticket
    }

    pub(super) fn on_committed(
        &mut self,
        ticket: u64,
        result: &Result<CommitReceipt, Error>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        let whose = self.commits_in_flight.remove(&ticket);
        if let Err(Error::Conflict(CommitConflict::Fenced { .. })) = result {
            self.is_lost = true;
            return actions.push(ShardAction::ShardLost);
        }
        match whose {
            Some(CommitSubject::Messages(ids)) if result.is_err() => {
                self.seen_messages.retain(|id| !ids.contains(id))
            }
            None => {}
            // Some of the messages may have been forwarded to other executions.
            Some(CommitSubject::Messages(_)) => actions.push(ShardAction::ReadInbox),
            Some(CommitSubject::Execution(execution)) => {
                let Some(mut active) = self.take_active(&execution) else {
                    return;
                };
                active.watched_deadline = None;
                if active.version == VERSION_UNSTORED {
                    return self.on_start_committed(active, result.clone().map(drop), now, actions);
                }
                match result {
                    Ok(_) => self.on_durable(active, now, actions),
                    Err(Error::Invalid(limit @ InvalidRequest::Limit { .. }))
                        if !active.is_step_refused =>
                    {
                        self.fail_refused_step(active, limit.to_string(), actions)
                    }
                    // The store would reject the same step again in the same way.
                    Err(error)
                        if matches!(
                            error.kind(),
                            StoreErrorKind::Invalid | StoreErrorKind::Corrupt
                        ) =>
                    {
                        self.park_active_execution(
                            active,
                            format!("the store refused its step: {error}"),
                            now,
                            actions,
                        );
                    }
                    Err(error) => {
                        self.reload_execution(active, CommitCertainty::of_error(error), actions)
                    }
                }
            }
        }
    }

    /// Performs the effects of a step whose commit is durable.
    fn on_durable(
        &mut self,
        mut active: Box<ActiveExecution>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        active.commit_ticket = None;
        let done = std::mem::take(&mut active.committing);
        active.version += u64::from(done.changes_row);
        let ending = active
            .execution
            .execution_outcome()
            .filter(|_| active.execution.untaken_count() == 0);
        self.abort_attempts(&done.abandoned, actions);
        for attempt in done.attempts.into_iter().chain(done.resumed) {
            self.dispatch_attempt(attempt, actions);
        }
        if !done.sent.is_empty() {
            actions.push(ShardAction::ReadInbox);
        }
        if self.options.emit_spans {
            let spans = trace_span::ended_spans(
                &active.row.function,
                active.execution.journal(),
                done.recorded,
            );
            if !spans.is_empty() {
                actions.push(ShardAction::ExportSpans(spans));
            }
        }
        for attempt in done.worker_results {
            actions.push(ShardAction::WorkerResultSettled {
                attempt,
                is_recorded: true,
            });
        }
        hand_out_tasks(active.owner.clone(), done.tasks, actions);
        if let Some(reason) = active.stuck_reason.take() {
            self.park_active_execution(active, reason, now, actions);
        } else if let Some(ending) = ending {
            let execution = active.id();
            self.abort_all_attempts(execution, actions);
            self.forward_or_discard(active.inputs, &ending, actions);
            actions.push(ShardAction::ExecutionOver { execution, ending });
            // The ended execution has freed guest capacity.
            if let Some(next) = self.waiting_for_capacity.pop_front() {
                self.advance_queued(next, now, actions);
            }
        } else {
            self.advance_execution(active, now, actions);
        }
        if !self.is_draining {
            for child in done.children {
                self.advance_execution(Box::new(child), now, actions);
            }
        }
    }

    fn abort_all_attempts(&mut self, execution: ExecutionId, actions: &mut Vec<ShardAction>) {
        let first = AttemptId {
            execution,
            number: 0,
            attempt: 0,
        };
        let its = self
            .performing
            .range(first..)
            .map(|(id, _)| *id)
            .take_while(|id| id.execution == execution);
        let its: Vec<AttemptId> = its.collect();
        self.abort_attempts(&its, actions);
    }

    /// Discards an execution from memory and loads it again, because memory may differ from the
    /// store.
    pub(super) fn reload_execution(
        &mut self,
        active: Box<ActiveExecution>,
        certainty: CommitCertainty,
        actions: &mut Vec<ShardAction>,
    ) {
        let id = active.id();
        // Messages stay in the inbox and are read again; results of attempts exist only here.
        let ended = self.discard_uncommitted(active, certainty, actions);
        self.loading.insert(id, ended);
        actions.push(ShardAction::LoadLater(id));
        actions.push(ShardAction::ReadInbox);
    }

    /// Discards a step that is too large for the store, and loads the execution again to fail it: a
    /// repetition of the step would be as large.
    fn fail_refused_step(
        &mut self,
        active: Box<ActiveExecution>,
        reason: String,
        actions: &mut Vec<ShardAction>,
    ) {
        let id = active.id();
        let mut inputs = self.discard_uncommitted(active, CommitCertainty::Settled, actions);
        inputs.push_front(PendingInput::StepRefused(reason));
        self.loading.insert(id, inputs);
        actions.push(ShardAction::Load(id));
        actions.push(ShardAction::ReadInbox);
    }

    /// Discards the state beyond the last durable commit. Returns the ends of attempts whose start
    /// is stored.
    fn discard_uncommitted(
        &mut self,
        active: Box<ActiveExecution>,
        certainty: CommitCertainty,
        actions: &mut Vec<ShardAction>,
    ) -> VecDeque<PendingInput> {
        let remains = active.into_discarded(certainty);
        for id in remains.messages {
            self.seen_messages.remove(&id);
        }
        self.unstarted.extend(remains.unstarted);
        if !remains.undelivered_claims.is_empty() {
            actions.push(ShardAction::ReclaimTasks(remains.undelivered_claims));
        }
        self.abort_attempts(&remains.started_early, actions);
        remains.ended_attempts
    }

    /// Tasks that commits in flight store as claimed by workers that wait here. A caller that drops
    /// the core before these commits end must release the tasks.
    pub fn undelivered_claims(&self) -> Vec<(AttemptId, SharedText)> {
        let storing = self
            .actives
            .values()
            .flat_map(|active| &active.committing.tasks);
        storing
            .filter_map(|task| Some((task_row::attempt_id(&task.row), task.row.claim.clone()?)))
            .collect()
    }

    /// Aborts those of these attempts that are being performed, because their results are no longer
    /// needed.
    fn abort_attempts<'a>(
        &mut self,
        attempts: impl IntoIterator<Item = &'a AttemptId>,
        actions: &mut Vec<ShardAction>,
    ) {
        for id in attempts {
            if self.performing.remove(id).is_some() {
                actions.push(ShardAction::AbortAttempt(*id));
            }
        }
    }

    /// Handles the outcome of the commit that stores a new execution.
    fn on_start_committed(
        &mut self,
        active: Box<ActiveExecution>,
        result: Result<(), Error>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        let failure = result.as_ref().err().map(CommitCertainty::of_error);
        // A first step that is too large does not concern the client: the start alone is stored.
        let is_too_large = matches!(result, Err(Error::Invalid(InvalidRequest::Limit { .. })));
        actions.push(ShardAction::StartSettled {
            execution: active.id(),
            result: Some(result).filter(|_| !is_too_large),
        });
        match failure {
            None => self.on_durable(active, now, actions),
            Some(CommitCertainty::Unknown) => {
                self.reload_execution(active, CommitCertainty::Unknown, actions)
            }
            Some(CommitCertainty::Settled) => {
                // Messages to it may be meant for another start with the same id, which is stored.
                self.discard_uncommitted(active, CommitCertainty::Settled, actions);
                actions.push(ShardAction::ReadInbox);
            }
        }
    }

    pub(super) fn dispatch_attempt(
        &mut self,
        mut attempt: TaskAttempt,
        actions: &mut Vec<ShardAction>,
    ) {
        self.last_dispatch_id += 1;
        attempt.dispatch_id = self.last_dispatch_id;
        self.performing.insert(attempt.id, attempt.dispatch_id);
        self.unstarted.remove(&attempt.id);
        actions.push(ShardAction::Perform(Box::new(attempt)));
    }

    pub(super) fn park_active_execution(
        &mut self,
        active: Box<ActiveExecution>,
        reason: String,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        let execution = active.id();
        let ended = self.discard_uncommitted(active, CommitCertainty::Settled, actions);
        self.park_execution(execution, reason, ended, now, actions);
    }
}

/// Delivers stored tasks to the workers that wait for them, and announces the others.
fn hand_out_tasks(owner: SharedText, tasks: Vec<QueuedTask>, actions: &mut Vec<ShardAction>) {
    if tasks.is_empty() {
        return;
    }
    let repeated = tasks.iter().filter(|task| task.row.attempt > 1).count() as u64;
    let mut functions = Vec::new();
    for task in tasks {
        match task.into_leased_task() {
            Ok((slot, held)) => actions.push(ShardAction::DeliverTask {
                slot,
                task: Box::new(held),
            }),
            Err(function) => functions.push(function),
        }
    }
    actions.push(ShardAction::AnnounceTasks {
        owner,
        functions,
        repeated,
    });
}
