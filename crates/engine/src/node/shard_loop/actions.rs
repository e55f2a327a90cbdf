//! Performs the actions that the core of a shard returns: commits, attempts, deliveries to workers,
//! replies and alerts.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use onward_base::SharedText;
use onward_execution::ExecutionOutcome;
use onward_journal::{ExecutionId, InvokeKind};
use onward_store::{Commit, Error, StoreErrorKind};

use super::{RETRY_DELAY, ShardOwner};
use crate::PendingAlert;
use crate::node::{Notification, attempt_runner, log_guest_line, node_metrics};
use crate::shard::trace_span::TraceSpan;
use crate::shard::{
    AttemptEnd, AttemptId, AttemptReporter, ResolvedFunction, ShardAction, ShardInput, TaskAttempt,
};
use crate::task_matcher::ClaimSlot;
use crate::task_queue::{self, LeasedTask};

/// Where an attempt is polled for the first time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FirstPoll {
    /// By the loop of its shard, which saves the hand-over to another thread.
    ShardLoop,
    /// In a spawned task, by any free thread.
    AnyThread,
}

impl ShardOwner<'_> {
    /// Performs the actions that the core returned.
    pub(super) fn perform_actions(&mut self, actions: Vec<ShardAction>) {
        self.update_memory_count();
        let attempts = actions
            .iter()
            .filter(|action| matches!(action, ShardAction::Perform(_)))
            .count();
        let first_poll = match attempts {
            1 => FirstPoll::ShardLoop,
            _ => FirstPoll::AnyThread,
        };
        let is_busy = actions
            .iter()
            .filter(|action| matches!(action, ShardAction::Commit { .. }))
            .count()
            > 1;
        for action in actions {
            match action {
                ShardAction::Commit { ticket, mut commit } => {
                    // The store batches several background commits instead of making them one by
                    // one.
                    commit.is_background |= is_busy;
                    self.begin_commit(ticket, *commit);
                }
                ShardAction::Load(execution) => self.begin_load(execution, Duration::ZERO),
                ShardAction::LoadLater(execution) => self.begin_load(execution, RETRY_DELAY),
                ShardAction::ReadInbox => self.needs_inbox_read = true,
                ShardAction::Perform(attempt) => self.perform_attempt(*attempt, first_poll),
                ShardAction::AbortAttempt(id) => self.abort_attempt(&id),
                ShardAction::AnnounceTasks {
                    owner,
                    functions,
                    repeated,
                } => {
                    node_metrics::count_retries(repeated);
                    self.node.announce_tasks(&owner, &functions);
                }
                ShardAction::DeliverTask { slot, task } => self.deliver_task(slot, *task),
                ShardAction::ReclaimTasks(claims) => self.reclaim_tasks(claims),
                ShardAction::WorkerResultSettled {
                    attempt,
                    is_recorded,
                } => self.reply_to_worker(&attempt, is_recorded),
                ShardAction::ExportSpans(spans) => self.export_spans(spans),
                ShardAction::InDoubt(attempt) => node_metrics::count_in_doubt(attempt),
                ShardAction::Log {
                    execution,
                    level,
                    message,
                } => log_guest_line(execution, level, &message),
                ShardAction::StartSettled { execution, result } => {
                    self.reply_to_starter(&execution, result)
                }
                ShardAction::ExecutionOver { execution, ending } => {
                    self.announce_ending(execution, &ending)
                }
                ShardAction::ExecutionStuck { execution, reason } => {
                    self.raise_stuck_alert(execution, &reason)
                }
                ShardAction::ShardLost => self.is_lost = true,
            }
        }
    }

    /// Begins the commit immediately, because the core may have tasks performed meanwhile.
    fn begin_commit(&mut self, ticket: u64, commit: Commit) {
        let node = Arc::clone(self.node);
        let mut committing: BoxFuture<'static, Result<ShardInput, Error>> = Box::pin(async move {
            let journals: Vec<ExecutionId> =
                commit.journals.iter().map(|it| it.execution).collect();
            let result = node.store.commit(commit).await;
            node.write_health.record_write(&result);
            match result {
                Err(error) if error.kind() == StoreErrorKind::Fatal => Err(error),
                result => {
                    match &result {
                        // Another writer was first, for example with the same start.
                        Err(error @ Error::Conflict(_)) => {
                            tracing::debug!(%error, "step conflicts with another commit")
                        }
                        Err(error) => {
                            tracing::warn!(%error, "step could not be stored; it is repeated")
                        }
                        Ok(_) => journals
                            .iter()
                            .for_each(|id| node.hub.journal_changes.notify_change(id)),
                    }
                    Ok(ShardInput::Committed { ticket, result })
                }
            }
        });
        match (&mut committing).now_or_never() {
            Some(committed) => self.ready_inputs.push_back(committed),
            None => self.pending_inputs.push(committing),
        }
    }

    /// Performs an attempt. A single component task is polled here first, because most end in less
    /// time than it takes to hand one to another thread; it yields soon in any case and then
    /// continues in a spawned task. If there are several, each is spawned, for any free thread.
    fn perform_attempt(&mut self, attempt: TaskAttempt, first_poll: FirstPoll) {
        let (node, ended) = (Arc::clone(self.node), self.attempt_end_sender.clone());
        let (id, performance) = (attempt.id, attempt.dispatch_id);
        node_metrics::count_retries(u64::from(id.attempt > 1));
        let is_code = matches!(
            (attempt.kind, attempt.resolved),
            (InvokeKind::Function, ResolvedFunction::Task(_))
        );
        let mut work = Box::pin(async move { attempt_runner::run_attempt(&node, &attempt).await });
        if first_poll == FirstPoll::ShardLoop
            && is_code
            && let Some(result) = (&mut work).now_or_never()
        {
            let end = AttemptEnd {
                attempt: id,
                reported_by: AttemptReporter::Owner(performance),
                result,
            };
            return self
                .ready_inputs
                .push_back(Ok(ShardInput::AttemptsEnded(vec![end])));
        }
        let task = self.node.spawn_guest_task(async move {
            let result = work.await;
            drop(ended.send(AttemptEnd {
                attempt: id,
                reported_by: AttemptReporter::Owner(performance),
                result,
            }));
        });
        self.running_attempts
            .insert(id, (performance, task.abort_handle()));
    }

    fn abort_attempt(&mut self, attempt: &AttemptId) {
        if let Some((_, task)) = self.running_attempts.remove(attempt) {
            task.abort();
        }
    }

    /// Delivers a task to the worker that it is stored for; releases the task if the worker no
    /// longer waits.
    fn deliver_task(&self, slot: ClaimSlot, task: LeasedTask) {
        if let Err(task) = slot.deliver_task(task) {
            self.reclaim_tasks(vec![(task.id, task.claim_token)]);
        }
    }

    /// Releases claimed tasks that could not be delivered to their workers.
    pub(super) fn reclaim_tasks(&self, claims: Vec<(AttemptId, SharedText)>) {
        let (store, matcher) = (
            Arc::clone(&self.node.store),
            Arc::clone(&self.node.hub.task_matcher),
        );
        tokio::spawn(async move {
            for (id, claim) in claims {
                task_queue::reclaim_task(&*store, &matcher, id, &claim).await;
            }
        });
    }

    /// Replies to the worker that reported the result of an attempt, if it waits for the reply.
    fn reply_to_worker(&mut self, attempt: &AttemptId, is_recorded: bool) {
        if let Some(reply) = self.completion_waiters.remove(attempt) {
            let _is_received = reply.send(is_recorded);
        }
    }

    /// Replies to the client that requested the start of an execution, if it waits for the reply.
    fn reply_to_starter(&mut self, execution: &ExecutionId, result: Option<Result<(), Error>>) {
        if let Some(reply) = self.start_waiters.remove(execution) {
            drop(reply.send(result));
        }
    }

    fn export_spans(&self, spans: Vec<TraceSpan>) {
        if let Some(traces) = &self.node.span_exporter {
            traces.export_spans(spans);
        }
    }

    /// Notifies the processes that wait for the end of an execution: this one directly, others
    /// through the store.
    fn announce_ending(&self, execution: ExecutionId, ending: &ExecutionOutcome) {
        if self.node.hub.notify_ending(execution, ending) {
            self.node
                .store
                .notify(Notification::ExecutionOver(execution).to_string());
        }
    }

    /// Raises an alert for an execution that cannot make progress.
    fn raise_stuck_alert(&self, execution: ExecutionId, reason: &str) {
        let (store, now) = (Arc::clone(&self.node.store), self.time.now());
        let alert = PendingAlert::execution_stuck(execution, reason);
        tokio::spawn(async move {
            if let Err(error) = alert.raise_once(&*store, now).await {
                tracing::error!(%execution, %error, "execution is stuck, and the alert could not be stored");
            }
        });
    }

    fn update_memory_count(&mut self) {
        let before = std::mem::replace(&mut self.counted_executions, self.core.len());
        if self.counted_executions > before {
            self.node
                .in_memory
                .fetch_add(self.counted_executions - before, Ordering::Relaxed);
        } else if self.counted_executions < before {
            self.node
                .in_memory
                .fetch_sub(before - self.counted_executions, Ordering::Relaxed);
        }
    }
}
