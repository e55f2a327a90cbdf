//! What clients and shards of one process tell each other without a way through the store. All of it is a hint: whoever
//! misses it finds the same in the store a little later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_base::SharedText;
use onward_execution::{Execution as InMemory, ExecutionOutcome};
use onward_journal::{ExecutionId, InvokeResult, JournalEvent};
use onward_store::tables::{ExecutionRow, TaskRow};
use onward_store::{Error, ShardId};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Notification;
use crate::shard::{AttemptId, task_row};
use crate::task_matcher::TaskMatcher;

/// Something that a shard of this process may want to know.
pub(crate) enum ShardHint {
    /// An execution is to be started; tell whether it is.
    StartRequested(
        Box<ExecutionRow>,
        Box<InMemory>,
        oneshot::Sender<Option<Result<(), Error>>>,
    ),
    /// An execution was started just now, and its first version reads so.
    ExecutionStarted(Box<ExecutionRow>, Vec<JournalEvent>),
    /// There is a message in the inbox.
    MessageArrived,
    /// Another process has left something: a message, or an execution that is due.
    CheckStore,
    /// A worker has ended a task; tell whether that was news.
    TaskCompleted(AttemptId, InvokeResult, oneshot::Sender<bool>),
}

/// The shards that this process owns, and who waits for the end of which execution.
#[derive(Default)]
pub struct LocalHub {
    shards: Mutex<BTreeMap<ShardId, mpsc::UnboundedSender<ShardHint>>>,
    ending_subscribers:
        Mutex<BTreeMap<ExecutionId, Vec<mpsc::UnboundedSender<Option<ExecutionOutcome>>>>>,
    /// Executions whose end another process waits for, the last one to say so at the end.
    remotely_awaited: Mutex<VecDeque<ExecutionId>>,
    /// Those that were started here last and are not known to be over, the newest at the end.
    recent_starts: Mutex<VecDeque<ExecutionId>>,
    pub(crate) task_matcher: Arc<TaskMatcher>,
    /// When a worker was last said to ask for a function, by owner and function.
    pub(crate) registered_functions: Mutex<BTreeMap<(SharedText, SharedText), Instant>>,
}

/// How long the owner of a shard may take to record the end of a task, and which part of its lease. Whoever waits longer goes
/// through the store.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);
const REPORT_LEASE_FRACTION: u32 = 10;

/// How many executions that others wait for are remembered.
const REMOTELY_AWAITED_MAX: usize = 1_024;

/// How many starts are remembered.
const RECENT_STARTS_MAX: usize = 256;

impl LocalHub {
    /// Tells how an execution ends, if it ends here. It may have ended before.
    pub(crate) fn subscribe_ending(&self, execution: ExecutionId) -> EndingSubscription<'_> {
        let (sender, told) = mpsc::unbounded_channel();
        lock_unpoisoned(&self.ending_subscribers)
            .entry(execution)
            .or_default()
            .push(sender);
        EndingSubscription {
            hub: self,
            execution,
            receiver: told,
        }
    }

    /// Whether an execution was started here just now and is not over: there is no use in asking the store.
    pub(crate) fn is_recently_started(&self, execution: ExecutionId) -> bool {
        lock_unpoisoned(&self.recent_starts).contains(&execution)
    }

    /// Who starts to wait after this finds that it is no longer fresh. Tells whether others wait elsewhere.
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

    /// Where a shard that is owned from now on hears of things.
    pub(super) fn register_shard(&self, shard: ShardId) -> mpsc::UnboundedReceiver<ShardHint> {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock_unpoisoned(&self.shards).insert(shard, sender);
        receiver
    }

    /// Tells the owner of a shard, if it is in this process. Tells whether it is.
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

    /// Takes in what another process has said.
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

    /// Has the owner of its shard start an execution. Nothing if that one is elsewhere, or cannot now.
    pub(crate) async fn request_start(
        &self,
        row: &ExecutionRow,
        execution: &InMemory,
    ) -> Option<Result<(), Error>> {
        let (told, outcome) = oneshot::channel();
        let mut remembered = RecentStartGuard {
            hub: self,
            execution: row.execution_id,
            is_started: false,
        };
        self.remember_start(row.execution_id);
        self.send_hint(
            row.shard,
            ShardHint::StartRequested(Box::new(row.clone()), Box::new(execution.clone()), told),
        );
        let begun = outcome.await.ok().flatten();
        remembered.is_started = matches!(begun, Some(Ok(())));
        begun
    }

    /// Has the owner of its shard record the end of a task. Tells whether it was under way; nothing if the owner is elsewhere,
    /// or cannot now.
    pub(crate) async fn report_completion(
        &self,
        task: &TaskRow,
        result: InvokeResult,
    ) -> Option<bool> {
        let (told, outcome) = oneshot::channel();
        self.send_hint(
            task.shard,
            ShardHint::TaskCompleted(task_row::attempt_id(task), result, told),
        );
        let patience =
            REPORT_TIMEOUT.min(Duration::from_millis(task.lease_ms.into()) / REPORT_LEASE_FRACTION);
        tokio::time::timeout(patience, outcome).await.ok()?.ok()
    }

    fn remember_start(&self, execution: ExecutionId) {
        let mut begun = lock_unpoisoned(&self.recent_starts);
        if begun.len() == RECENT_STARTS_MAX {
            begun.pop_front();
        }
        begun.push_back(execution);
    }

    fn forget_start(&self, execution: ExecutionId) {
        let mut begun = lock_unpoisoned(&self.recent_starts);
        if let Some(place) = begun.iter().rposition(|it| *it == execution) {
            begun.remove(place);
        }
    }
}

/// Somebody who waits for the end of an execution, and is forgotten when they stop.
pub(crate) struct EndingSubscription<'a> {
    hub: &'a LocalHub,
    execution: ExecutionId,
    /// How it ended, or nothing: then the store may know.
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

/// A start that is forgotten unless it has come about: whoever wanted it may have gone.
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
