//! What clients and shards of one process tell each other without a way through the store. All of it is a hint: whoever
//! misses it finds the same in the store a little later.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_execution::{Ending, Execution as InMemory};
use onward_journal::{ExecutionId, InvokeResult, JournalEvent, Text};
use onward_store::tables::{Execution, Task};
use onward_store::{Error, Shard};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::Word;
use crate::offers::Offers;
use crate::shard::{AttemptId, task};

/// Something that a shard of this process may want to know.
pub(crate) enum Note {
    /// An execution is to be started; tell whether it is.
    Begin(Box<Execution>, Box<InMemory>, oneshot::Sender<Option<Result<(), Error>>>),
    /// An execution was started just now, and its first version reads so.
    Started(Box<Execution>, Vec<JournalEvent>),
    /// There is a message in the inbox.
    Message,
    /// Another process has left something: a message, or an execution that is due.
    Look,
    /// A worker has ended a task; tell whether that was news.
    Reported(AttemptId, InvokeResult, oneshot::Sender<bool>),
}

/// The shards that this process owns, and who waits for the end of which execution.
#[derive(Default)]
pub struct Nearby {
    shards: Mutex<BTreeMap<Shard, mpsc::UnboundedSender<Note>>>,
    waiting: Mutex<BTreeMap<ExecutionId, Vec<mpsc::UnboundedSender<Option<Ending>>>>>,
    /// Executions whose end another process waits for, the last one to say so at the end.
    awaited: Mutex<VecDeque<ExecutionId>>,
    /// Those that were started here last and are not known to be over, the newest at the end.
    begun: Mutex<VecDeque<ExecutionId>>,
    pub(crate) offers: Arc<Offers>,
    /// When a worker was last said to ask for a function, by owner and function.
    pub(crate) asked: Mutex<BTreeMap<(Text, Text), Instant>>,
}

/// How long the owner of a shard may take to record the end of a task, and which part of its lease. Whoever waits longer goes
/// through the store.
const REPORT: Duration = Duration::from_secs(1);
const REPORT_PART: u32 = 10;

/// How many executions that others wait for are remembered.
const AWAITED_MAX: usize = 1_024;

/// How many starts are remembered.
const BEGUN_MAX: usize = 256;

impl Nearby {
    /// Tells how an execution ends, if it ends here. It may have ended before.
    pub(crate) fn ending(&self, execution: ExecutionId) -> Listening<'_> {
        let (sender, told) = mpsc::unbounded_channel();
        lock(&self.waiting).entry(execution).or_default().push(sender);
        Listening { nearby: self, execution, told }
    }

    /// Whether an execution was started here just now and is not over: there is no use in asking the store.
    pub(crate) fn is_fresh(&self, execution: ExecutionId) -> bool {
        lock(&self.begun).contains(&execution)
    }

    /// Who starts to wait after this finds that it is no longer fresh. Tells whether others wait elsewhere.
    pub(super) fn over(&self, execution: ExecutionId, ending: &Ending) -> bool {
        self.forget(execution);
        for sender in lock(&self.waiting).remove(&execution).unwrap_or_default() {
            drop(sender.send(Some(ending.clone())));
        }
        let mut awaited = lock(&self.awaited);
        let before = awaited.len();
        awaited.retain(|it| *it != execution);
        awaited.len() < before
    }

    /// Where a shard that is owned from now on hears of things.
    pub(super) fn listen(&self, shard: Shard) -> mpsc::UnboundedReceiver<Note> {
        let (sender, receiver) = mpsc::unbounded_channel();
        lock(&self.shards).insert(shard, sender);
        receiver
    }

    /// Tells the owner of a shard, if it is in this process. Tells whether it is.
    pub(crate) fn tell(&self, shard: Shard, note: Note) -> bool {
        lock(&self.shards).get(&shard).is_some_and(|owner| owner.send(note).is_ok())
    }

    /// Whether the owner of a shard is in this process.
    pub(crate) fn owns(&self, shard: Shard) -> bool {
        lock(&self.shards).get(&shard).is_some_and(|owner| !owner.is_closed())
    }

    /// Takes in what another process has said.
    pub(super) fn heard(&self, word: Word) {
        match word {
            Word::Shard(shard) => {
                self.tell(shard, Note::Look);
            }
            Word::Task(owner, function) => {
                self.offers.offer(&owner, &[function]);
            }
            Word::Awaited(execution) => {
                let mut awaited = lock(&self.awaited);
                if awaited.len() == AWAITED_MAX {
                    awaited.pop_front();
                }
                awaited.push_back(execution);
            }
            Word::Over(execution) => {
                for sender in lock(&self.waiting).get(&execution).into_iter().flatten() {
                    drop(sender.send(None));
                }
            }
        }
    }

    /// Has the owner of its shard start an execution. Nothing if that one is elsewhere, or cannot now.
    pub(crate) async fn begin(&self, row: &Execution, execution: &InMemory) -> Option<Result<(), Error>> {
        let (told, outcome) = oneshot::channel();
        let mut remembered = Remembered { nearby: self, execution: row.execution_id, is_begun: false };
        self.remember(row.execution_id);
        self.tell(row.shard, Note::Begin(Box::new(row.clone()), Box::new(execution.clone()), told));
        let begun = outcome.await.ok().flatten();
        remembered.is_begun = matches!(begun, Some(Ok(())));
        begun
    }

    /// Has the owner of its shard record the end of a task. Tells whether it was under way; nothing if the owner is elsewhere,
    /// or cannot now.
    pub(crate) async fn report(&self, task: &Task, result: InvokeResult) -> Option<bool> {
        let (told, outcome) = oneshot::channel();
        self.tell(task.shard, Note::Reported(task::id(task), result, told));
        let patience = REPORT.min(Duration::from_millis(task.lease_ms.into()) / REPORT_PART);
        tokio::time::timeout(patience, outcome).await.ok()?.ok()
    }

    fn remember(&self, execution: ExecutionId) {
        let mut begun = lock(&self.begun);
        if begun.len() == BEGUN_MAX {
            begun.pop_front();
        }
        begun.push_back(execution);
    }

    fn forget(&self, execution: ExecutionId) {
        let mut begun = lock(&self.begun);
        if let Some(place) = begun.iter().rposition(|it| *it == execution) {
            begun.remove(place);
        }
    }
}

/// Somebody who waits for the end of an execution, and is forgotten when they stop.
pub(crate) struct Listening<'a> {
    nearby: &'a Nearby,
    execution: ExecutionId,
    /// How it ended, or nothing: then the store may know.
    pub(crate) told: mpsc::UnboundedReceiver<Option<Ending>>,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.told.close();
        let mut waiting = lock(&self.nearby.waiting);
        if let Some(its) = waiting.get_mut(&self.execution) {
            its.retain(|sender| !sender.is_closed());
            if its.is_empty() {
                waiting.remove(&self.execution);
            }
        }
    }
}

/// A start that is forgotten unless it has come about: whoever wanted it may have gone.
struct Remembered<'a> {
    nearby: &'a Nearby,
    execution: ExecutionId,
    is_begun: bool,
}

impl Drop for Remembered<'_> {
    fn drop(&mut self) {
        if !self.is_begun {
            self.nearby.forget(self.execution);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
