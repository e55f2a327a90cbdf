//! Notifications between the clients and shards of one process that do not go through the store.
//! All of them are hints: a receiver that misses one finds the same in the store a little later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_base::SharedText;
use onward_execution::{Execution as InMemory, ExecutionOutcome};
use onward_journal::{ExecutionId, InvokeResult, JournalEvent};
use onward_runs::RunId;
use onward_store::tables::{ExecutionRow, TaskRow};
use onward_store::{Error, ShardId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Notification;
use super::change_topics::ChangeTopics;
use crate::shard::{AttemptId, task_row};
use crate::task_matcher::TaskMatcher;

/// Notification to a shard that this process owns.
pub(crate) enum ShardHint {
    /// A client requests the start of an execution; the shard owner replies with the outcome.
    StartRequested(
        Box<ExecutionRow>,
        Box<InMemory>,
        oneshot::Sender<Option<Result<(), Error>>>,
    ),
    /// An execution was just started, with this row as its first version and these events.
    ExecutionStarted(Box<ExecutionRow>, Vec<JournalEvent>),
    /// The inbox of the shard has a new message.
    MessageArrived,
    /// Another process has stored a message for this shard or an execution that is due.
    CheckStore,
    /// A worker has completed a task; the shard owner replies whether the result was recorded.
    TaskCompleted(AttemptId, InvokeResult, oneshot::Sender<bool>),
}

/// The shards that this process owns, and the clients that wait for the end of an execution.
#[derive(Default)]
pub struct LocalHub {
    shards: Mutex<BTreeMap<ShardId, mpsc::UnboundedSender<ShardHint>>>,
    ending_subscribers:
        Mutex<BTreeMap<ExecutionId, Vec<mpsc::UnboundedSender<Option<ExecutionOutcome>>>>>,
    /// Executions whose end another process waits for, the most recent request last.
    remotely_awaited: Mutex<VecDeque<ExecutionId>>,
    /// The executions that were most recently started here and are not known to have ended, newest
    /// last.
    recent_starts: Mutex<VecDeque<ExecutionId>>,
    /// Changes of journals, by execution.
    pub(crate) journal_changes: ChangeTopics<ExecutionId>,
    /// New events of runs, by run.
    pub(crate) run_changes: ChangeTopics<RunId>,
    pub(crate) task_matcher: Arc<TaskMatcher>,
    /// When the function was last registered for workers, by owner and function.
    pub(crate) registered_functions: Mutex<BTreeMap<(SharedText, SharedText), Instant>>,
}

/// Maximum time to wait until the shard owner has recorded the end of a task: this timeout or this
/// fraction of the task's lease, whichever is shorter. After that the caller goes through the
/// store.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
const REPORT_LEASE_FRACTION: u32 = 10;

/// Maximum number of remembered executions whose end other processes wait for.
const REMOTELY_AWAITED_MAX: usize = 1_024;

/// Maximum number of remembered starts.
const RECENT_STARTS_MAX: usize = 256;

impl LocalHub {
    /// Subscribes to the end of an execution. The subscriber is notified only if the execution ends
    /// after this call; it may have ended before.
    pub(crate) fn subscribe_ending(&self, execution: ExecutionId) -> EndingSubscription<'_> {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock_unpoisoned(&self.ending_subscribers)
            .entry(execution)
            .or_default()
            .push(sender);
        EndingSubscription {
            hub: self,
            execution,
            receiver,
        }
    }

    /// Whether an execution was just started here and has not ended: reading its end from the store
    /// would be useless.
    pub(crate) fn is_recently_started(&self, execution: ExecutionId) -> bool {
        lock_unpoisoned(&self.recent_starts).contains(&execution)
    }

    /// Notifies the subscribers of this process that an execution has ended. The execution no
    /// longer counts as recently started, so a later subscriber reads the store. Returns whether
    /// another process waits for the end.
    pub(super) fn notify_ending(&self, execution: ExecutionId, ending: &ExecutionOutcome) -> bool {
        self.forget_start(execution);
        for sender in lock_unpoisoned(&self.ending_subscribers)
            .remove(&execution)
            .unwrap_or_default()
        {
            drop(sender.send(Some(ending.clone())));
        }
        let mut awaited = lock_unpoisoned(&self.remotely_awaited);
        let before = awaited.len();
        awaited.retain(|it| *it != execution);
        awaited.len() < before
    }

    /// Registers a shard that this process owns from now on. Returns the channel for its hints.
    pub(super) fn register_shard(&self, shard: ShardId) -> mpsc::UnboundedReceiver<ShardHint> {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock_unpoisoned(&self.shards).insert(shard, sender);
        receiver
    }

    /// Sends a hint to the owner of a shard. Returns whether the owner is in this process.
    pub(crate) fn send_hint(&self, shard: ShardId, note: ShardHint) -> bool {
        lock_unpoisoned(&self.shards)
            .get(&shard)
            .is_some_and(|owner| owner.send(note).is_ok())
    }

    /// Whether the owner of a shard is in this process.
    pub(crate) fn owns_shard(&self, shard: ShardId) -> bool {
        lock_unpoisoned(&self.shards)
            .get(&shard)
            .is_some_and(|owner| !owner.is_closed())
    }

    /// Handles a notification from another process.
    pub(super) fn handle_notification(&self, word: Notification) {
        match word {
            Notification::ShardWork(shard) => {
                self.send_hint(shard, ShardHint::CheckStore);
            }
            Notification::TaskQueued(owner, function) => {
                self.task_matcher.notify_waiters(&owner, &[function]);
            }
            Notification::EndingAwaited(execution) => {
                let mut awaited = lock_unpoisoned(&self.remotely_awaited);
                if awaited.len() == REMOTELY_AWAITED_MAX {
                    awaited.pop_front();
                }
                awaited.push_back(execution);
            }
            Notification::ExecutionOver(execution) => {
                for sender in lock_unpoisoned(&self.ending_subscribers)
                    .get(&execution)
                    .into_iter()
                    .flatten()
                {
                    drop(sender.send(None));
                }
            }
        }
    }

    /// Asks the owner of the shard to start an execution. Returns `None` if the owner is in another
    /// process or cannot start it now.
    pub(crate) async fn request_start(
        &self,
        row: &ExecutionRow,
        execution: &InMemory,
    ) -> Option<Result<(), Error>> {
        let (reply, outcome) = oneshot::channel();
        let mut remembered = RecentStartGuard {
            hub: self,
            execution: row.execution_id,
            is_started: false,
        };
        self.remember_start(row.execution_id);
        self.send_hint(
            row.shard,
            ShardHint::StartRequested(Box::new(row.clone()), Box::new(execution.clone()), reply),
        );
        let started = outcome.await.ok().flatten();
        remembered.is_started = matches!(started, Some(Ok(())));
        started
    }

    /// Asks the owner of the shard to record the end of a task. Returns whether the task was in
    /// flight, or `None` if the owner is in another process or does not answer in time.
    pub(crate) async fn report_completion(
        &self,
        task: &TaskRow,
        result: InvokeResult,
    ) -> Option<bool> {
        let (reply, outcome) = oneshot::channel();
        self.send_hint(
            task.shard,
            ShardHint::TaskCompleted(task_row::attempt_id(task), result, reply),
        );
        let timeout =
            REPORT_TIMEOUT.min(Duration::from_millis(task.lease_ms.into()) / REPORT_LEASE_FRACTION);
        tokio::time::timeout(timeout, outcome).await.ok()?.ok()
    }

    fn remember_start(&self, execution: ExecutionId) {
        let mut recent_starts = lock_unpoisoned(&self.recent_starts);
        if recent_starts.len() == RECENT_STARTS_MAX {
            recent_starts.pop_front();
        }
        recent_starts.push_back(execution);
    }

    fn forget_start(&self, execution: ExecutionId) {
        let mut recent_starts = lock_unpoisoned(&self.recent_starts);
        if let Some(place) = recent_starts.iter().rposition(|it| *it == execution) {
            recent_starts.remove(place);
        }
    }
}

/// Subscription to the end of an execution; dropping it unsubscribes.
pub(crate) struct EndingSubscription<'a> {
    hub: &'a LocalHub,
    execution: ExecutionId,
    /// The outcome, or `None` if another process reported the end: the outcome is then in the
    /// store.
    pub(crate) receiver: mpsc::UnboundedReceiver<Option<ExecutionOutcome>>,
}

impl Drop for EndingSubscription<'_> {
    fn drop(&mut self) {
        self.receiver.close();
        let mut waiting = lock_unpoisoned(&self.hub.ending_subscribers);
        if let Some(its) = waiting.get_mut(&self.execution) {
            its.retain(|sender| !sender.is_closed());
            if its.is_empty() {
                waiting.remove(&self.execution);
            }
        }
    }
}

/// Removes a remembered start on drop unless the execution was started, because the requesting
/// client may have gone away.
struct RecentStartGuard<'a> {
    hub: &'a LocalHub,
    execution: ExecutionId,
    is_started: bool,
}

impl Drop for RecentStartGuard<'_> {
    fn drop(&mut self) {
        if !self.is_started {
            self.hub.forget_start(self.execution);
        }
    }
}

fn lock_unpoisoned<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
