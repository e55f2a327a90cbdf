//! Writing. A commit waits in a queue; a writer takes all that wait and performs them as one group: one transaction, one
//! wait for the disk. A commit that is refused is answered alone, its neighbours go on.
//!
//! - [`quick`]: a group that only appends run events takes one statement, if what is believed of the runs is true.
//! - [`careful`]: any group. [`load`] locks and reads what the commits are about, [`decided`] lets the rules decide, and
//!   [`flush`] writes what they decided.
//! - [`fate`]: what became of a transaction whose end was not heard.
//!
//! The transaction belongs to the writer: whoever waits for an answer may go away at any time.

mod careful;
mod decided;
mod fate;
mod flush;
mod heads;
mod load;
mod quick;
mod wish;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use onward_store::tables::ShardLease;
use onward_store::{Admitted, Change, Clock, Commit, Error, Receipt, Record as _};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::event;
use crate::writer::heads::Heads;

/// What one commit came to.
type Answer = Result<Receipt, Error>;

/// Commits that are performed together, at most.
const GROUP_MAX: usize = 1_024;
/// A group that carries so much is not made larger. What it saves by then is lost in the noise.
const GROUP_BYTES: usize = 1 << 20;

/// A commit that waits for its turn.
struct Waiting {
    commit: Admitted,
    since: Instant,
    answer: oneshot::Sender<Answer>,
}

/// The queues, one a writer.
pub(crate) struct Writers {
    queues: Vec<mpsc::Sender<Waiting>>,
    deadline: Duration,
}

/// What writers are started with.
pub(crate) struct Start {
    pub(crate) pool: Pool,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) writers: usize,
    pub(crate) queue: usize,
    pub(crate) deadline: Duration,
}

impl Writers {
    /// Starts the writers as tasks. They end when this is dropped, after the commits that are under way.
    pub(crate) fn start(start: &Start) -> Self {
        let Start { pool, clock, writers, queue, deadline } = start;
        let queues = (0..(*writers).max(1)).map(|_| {
            let (sender, receiver) = mpsc::channel((*queue).max(1));
            let writer = Writer {
                queue: receiver,
                pool: pool.clone(),
                clock: clock.clone(),
                deadline: *deadline,
                heads: Heads::default(),
            };
            tokio::spawn(writer.run());
            sender
        });
        Self { queues: queues.collect(), deadline: *deadline }
    }

    /// Has a commit performed.
    pub(crate) async fn commit(&self, commit: Admitted) -> Answer {
        let queue = &self.queues[turn(commit.commit(), self.queues.len())];
        let place = timeout(self.deadline, queue.reserve()).await;
        let place = place.map_err(|_| too_late())?.map_err(|_| Error::Closed)?;
        let (answer, answered) = oneshot::channel();
        place.send(Waiting { commit, since: Instant::now(), answer });
        answered.await.unwrap_or_else(|_| Err(Error::OutcomeUnknown("the writer has ended".to_owned())))
    }
}

fn too_late() -> Error {
    Error::Unavailable("too many commits wait for the database".to_owned())
}

/// Which writer performs a commit. Commits of a shard have the same: they hold a lock on it together, and whoever wants
/// to renew the lease must not find it held by one or the other for ever. So do appends to a run: the writer remembers
/// where it ends.
fn turn(commit: &Commit, writers: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    let lease = commit.changes.iter().find(|change| change.table().name == ShardLease::TABLE.name);
    if let Some(fence) = commit.fences.first() {
        i64::from(fence.shard.0).hash(&mut hasher);
    } else if let Some(onward_store::Value::Int(shard)) = lease.and_then(|lease| lease.key().0.first().cloned()) {
        shard.hash(&mut hasher);
    } else if let Some(event) = commit.events.first() {
        event.run_id.hash(&mut hasher);
    } else if let Some(append) = commit.journals.first() {
        append.execution.as_bytes().hash(&mut hasher);
    }
    let turn = hasher.finish() % writers.max(1) as u64;
    usize::try_from(turn).unwrap_or(0)
}

/// One connection, and the commits that wait for it.
struct Writer {
    queue: mpsc::Receiver<Waiting>,
    pool: Pool,
    clock: Option<Arc<dyn Clock>>,
    deadline: Duration,
    heads: Heads,
}

impl Writer {
    async fn run(mut self) {
        while let Some(group) = self.gather().await {
            let (late, group): (Vec<Waiting>, Vec<Waiting>) =
                group.into_iter().partition(|waiting| waiting.since.elapsed() > self.deadline);
            late.into_iter().for_each(|waiting| reply(waiting.answer, Err(too_late())));
            let (commits, waiting): (Vec<Admitted>, Vec<oneshot::Sender<Answer>>) =
                group.into_iter().map(|waiting| (waiting.commit, waiting.answer)).unzip();
            let answers = self.perform(&commits).await;
            waiting.into_iter().zip(answers).for_each(|(waiting, answer)| reply(waiting, answer));
        }
    }

    /// All commits that wait, up to a limit. `None` when no more will come.
    async fn gather(&mut self) -> Option<Vec<Waiting>> {
        let first = self.queue.recv().await?;
        let mut bytes = weight(first.commit.commit());
        let mut group = vec![first];
        while bytes < GROUP_BYTES && group.len() < GROUP_MAX {
            let Ok(next) = self.queue.try_recv() else { break };
            bytes += weight(next.commit.commit());
            group.push(next);
        }
        Some(group)
    }

    async fn perform(&mut self, commits: &[Admitted]) -> Vec<Answer> {
        let commits: Vec<&Admitted> = commits.iter().collect();
        match self.quickly(&commits).await {
            quick::Attempt::Done(receipts) => receipts.into_iter().map(Ok).collect(),
            quick::Attempt::Undone => self.carefully(&commits, None).await,
            quick::Attempt::Unknown(why) => self.carefully(&commits, Some(why)).await,
        }
    }
}

/// Whoever waited may be gone.
fn reply(waiting: oneshot::Sender<Answer>, answer: Answer) {
    let _ = waiting.send(answer);
}

/// Roughly how many bytes a commit takes on its way.
fn weight(commit: &Commit) -> usize {
    let events = commit.events.iter().map(event::bytes).sum::<usize>();
    let journals = commit.journals.iter().map(|append| append.records.len()).sum::<usize>();
    let rows = commit.changes.iter().filter_map(Change::row).flat_map(|row| &row.0);
    events + journals + rows.map(onward_store::Value::bytes).sum::<usize>()
}

/// Whether performing the commit again does nothing if it was performed: idempotency keys see to that.
fn is_idempotent(commit: &Commit) -> bool {
    let Commit { fences, journals, changes, moves, events: _ } = commit;
    fences.is_empty() && journals.is_empty() && changes.is_empty() && moves.is_empty()
}
