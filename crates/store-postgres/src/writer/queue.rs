//! Where commits wait for their turn.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use onward_store::tables::ShardLease;
use onward_store::{Admitted, Change, Clock, Commit, Error, Key, Record as _, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::event;
use crate::writer::heads::Heads;
use crate::writer::mark::Mark;
use crate::writer::{Answer, Writer};

/// A commit that carries so much is performed by others than the rest, which would have to wait for it.
const BULK_BYTES: usize = 128 << 10;

/// A commit that waits for its turn.
pub(super) struct Waiting {
    pub(super) commit: Admitted,
    pub(super) bytes: usize,
    pub(super) since: Instant,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// The queues, one a writer.
pub(crate) struct Writers {
    small: Vec<mpsc::Sender<Waiting>>,
    bulk: Vec<mpsc::Sender<Waiting>>,
    deadline: Duration,
}

/// What writers are started with.
pub(crate) struct Start {
    pub(crate) pool: Pool,
    pub(crate) clock: Option<Arc<dyn Clock>>,
    pub(crate) writers: usize,
    pub(crate) bulk_writers: usize,
    pub(crate) queue: usize,
    pub(crate) deadline: Duration,
}

impl Writers {
    /// Starts the writers as tasks. They end when this is dropped, after the commits that are under way.
    pub(crate) fn start(start: &Start) -> Result<Self, Error> {
        let queues = |count: usize| (0..count.max(1)).map(|_| start.writer()).collect::<Result<_, _>>();
        Ok(Self { small: queues(start.writers)?, bulk: queues(start.bulk_writers)?, deadline: start.deadline })
    }

    /// Has a commit performed.
    pub(crate) async fn commit(&self, commit: Admitted) -> Answer {
        let bytes = weight(commit.commit());
        let queues = if bytes < BULK_BYTES { &self.small } else { &self.bulk };
        let queue = &queues[turn(commit.commit(), queues.len())];
        let place = timeout(self.deadline, queue.reserve()).await;
        let place = place.map_err(|_| too_late())?.map_err(|_| Error::Closed)?;
        let (answer, answered) = oneshot::channel();
        place.send(Waiting { commit, bytes, since: Instant::now(), answer });
        answered.await.unwrap_or_else(|_| Err(Error::OutcomeUnknown("the writer has ended".to_owned())))
    }
}

impl Start {
    fn writer(&self) -> Result<mpsc::Sender<Waiting>, Error> {
        let (sender, queue) = mpsc::channel(self.queue.max(1));
        let (pool, clock) = (self.pool.clone(), self.clock.clone());
        let (heads, mark) = (Heads::default(), Mark::new()?);
        tokio::spawn(Writer { queue, pool, clock, deadline: self.deadline, heads, mark }.run());
        Ok(sender)
    }
}

/// The answer to a commit that has waited longer than anybody should.
pub(super) fn too_late() -> Error {
    Error::Unavailable("too many commits wait for the database".to_owned())
}

/// Which of so many writers performs a commit. Commits of a shard have the same: they hold a lock on it together, and
/// whoever wants to renew the lease must not find it held by one or the other for ever. So do appends to a run: the
/// writer remembers where it ends.
fn turn(commit: &Commit, writers: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    let lease = commit.changes.iter().find(|change| change.table().name == ShardLease::TABLE.name);
    if let Some(fence) = commit.fences.first() {
        Value::Int(i64::from(fence.shard.0)).hash(&mut hasher);
    } else if let Some(Key(shard)) = lease.map(Change::key) {
        shard[0].hash(&mut hasher);
    } else if let Some(event) = commit.events.first() {
        event.run_id.hash(&mut hasher);
    } else if let Some(step) = commit.moves.first() {
        step.run.hash(&mut hasher);
    } else if let Some(append) = commit.journals.first() {
        append.execution.as_bytes().hash(&mut hasher);
    } else if let Some(change) = commit.changes.first() {
        change.key().hash(&mut hasher);
    }
    let turn = hasher.finish() % writers.max(1) as u64;
    usize::try_from(turn).unwrap_or(0)
}

/// Roughly how many bytes a commit takes on its way.
fn weight(commit: &Commit) -> usize {
    let events = commit.events.iter().map(event::bytes).sum::<usize>();
    let journals = commit.journals.iter().map(|append| append.records.len()).sum::<usize>();
    let rows = commit.changes.iter().filter_map(Change::row).flat_map(|row| &row.0);
    events + journals + rows.map(Value::bytes).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use onward_journal::Timestamp;
    use onward_store::{Commit, Epoch, Shard, tables::ShardLease};

    use super::turn;

    #[test]
    fn commits_of_a_shard_and_its_lease_have_the_same_writer() {
        let mut turns = std::collections::BTreeSet::new();
        for number in 0..100 {
            let shard = Shard(number);
            let lease = ShardLease {
                shard,
                node: "n".into(),
                node_id: "n".into(),
                epoch: Epoch(1),
                lease_until: Timestamp::EPOCH,
            };
            let fenced = turn(&Commit::new().fence(shard, Epoch(1)), 4);
            assert_eq!(turn(&Commit::new().update(&lease, 1), 4), fenced);
            turns.insert(fenced);
        }
        assert_eq!(turns.len(), 4);
        assert_eq!(turn(&Commit::new(), 1), 0);
    }
}
