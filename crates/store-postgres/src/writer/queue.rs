//! Queues in which commits wait for a writer.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use onward_store::tables::ShardLeaseRow;
use onward_store::{
    AdmittedCommit, ColumnValue, Commit, Error, RowChange, RowKey, StoreClock, TableRecord as _,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, timeout};

use crate::run_event;
use crate::writer::run_head_cache::RunHeadCache;
use crate::writer::transaction_mark::TransactionMark;
use crate::writer::{CommitResult, PostgresWriter};

/// Commits of at least this size in bytes go to the bulk writers, so that smaller commits do not
/// wait for them.
const BULK_BYTES_MIN: usize = 128 << 10;

/// A commit in the queue of a writer.
pub(super) struct QueuedCommit {
    pub(super) commit: AdmittedCommit,
    pub(super) bytes: usize,
    pub(super) queued_at: Instant,
    pub(super) reply: oneshot::Sender<CommitResult>,
}

/// The queues, one per writer.
pub(crate) struct CommitQueues {
    small: Vec<mpsc::Sender<QueuedCommit>>,
    bulk: Vec<mpsc::Sender<QueuedCommit>>,
    call_timeout: Duration,
}

/// Options that writers are started with.
pub(crate) struct WriterOptions {
    pub(crate) pool: Pool,
    pub(crate) clock: Option<Arc<dyn StoreClock>>,
    pub(crate) writers: usize,
    pub(crate) bulk_writers: usize,
    pub(crate) queue_capacity: usize,
    pub(crate) call_timeout: Duration,
}

impl CommitQueues {
    /// Starts the writers as tasks. They stop when the queues are dropped, after the commits that
    /// are already queued.
    pub(crate) fn start_writers(start: &WriterOptions) -> Result<Self, Error> {
        let queues = |count: usize| {
            (0..count.max(1))
                .map(|_| start.spawn_writer())
                .collect::<Result<_, _>>()
        };
        Ok(Self {
            small: queues(start.writers)?,
            bulk: queues(start.bulk_writers)?,
            call_timeout: start.call_timeout,
        })
    }

    /// Queues a commit and waits for its result.
    pub(crate) async fn commit(&self, commit: AdmittedCommit) -> CommitResult {
        let bytes = commit_bytes(commit.commit());
        let queues = if bytes < BULK_BYTES_MIN {
            &self.small
        } else {
            &self.bulk
        };
        let queue = &queues[writer_index(commit.commit(), queues.len())];
        let place = timeout(self.call_timeout, queue.reserve()).await;
        let place = place
            .map_err(|_| queue_timeout_error())?
            .map_err(|_| Error::Closed)?;
        let (answer, answered) = oneshot::channel();
        place.send(QueuedCommit {
            commit,
            bytes,
            queued_at: Instant::now(),
            reply: answer,
        });
        answered.await.unwrap_or_else(|_| {
            Err(Error::OutcomeUnknown(
                "the writer stopped before the commit was answered".to_owned(),
            ))
        })
    }
}

impl WriterOptions {
    fn spawn_writer(&self) -> Result<mpsc::Sender<QueuedCommit>, Error> {
        let (sender, queue) = mpsc::channel(self.queue_capacity.max(1));
        let (pool, clock) = (self.pool.clone(), self.clock.clone());
        let (heads, mark) = (RunHeadCache::default(), TransactionMark::new()?);
        tokio::spawn(
            PostgresWriter {
                queue,
                pool,
                clock,
                call_timeout: self.call_timeout,
                head_cache: heads,
                mark,
            }
            .run_loop(),
        );
        Ok(sender)
    }
}

/// Error for a commit that waited in the queue for longer than the call timeout.
pub(super) fn queue_timeout_error() -> Error {
    Error::Unavailable(
        "the commit queue is full: too many commits wait for the database".to_owned(),
    )
}

/// Chooses the writer of a commit. All commits of a shard go to the same writer: they hold a shared
/// lock on its lease, and with several writers a renewal of the lease could find it locked by one
/// or the other forever. Appends to a run also go to the same writer, because it caches the head of
/// the run.
fn writer_index(commit: &Commit, writers: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    let lease = commit
        .changes
        .iter()
        .find(|change| change.table().name == ShardLeaseRow::TABLE.name);
    if let Some(fence) = commit.fences.first() {
        ColumnValue::Int(i64::from(fence.shard.0)).hash(&mut hasher);
    } else if let Some(RowKey(shard)) = lease.map(RowChange::key) {
        shard[0].hash(&mut hasher);
    } else if let Some(event) = commit.events.first() {
        event.run_id.hash(&mut hasher);
    } else if let Some(step) = commit.reader_advances.first() {
        step.run.hash(&mut hasher);
    } else if let Some(append) = commit.journals.first() {
        append.execution.as_bytes().hash(&mut hasher);
    } else if let Some(change) = commit.changes.first() {
        change.key().hash(&mut hasher);
    }
    let turn = hasher.finish() % writers.max(1) as u64;
    usize::try_from(turn).unwrap_or(0)
}

/// Estimates the size of a commit on the wire in bytes.
fn commit_bytes(commit: &Commit) -> usize {
    let events = commit
        .events
        .iter()
        .map(run_event::estimated_event_bytes)
        .sum::<usize>();
    let journals = commit
        .journals
        .iter()
        .map(|append| append.records.len())
        .sum::<usize>();
    let rows = commit
        .changes
        .iter()
        .filter_map(RowChange::row)
        .flat_map(|row| &row.0);
    events + journals + rows.map(ColumnValue::size_in_bytes).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use onward_base::Timestamp;
    use onward_store::{Commit, ShardEpoch, ShardId, tables::ShardLeaseRow};

    use super::writer_index;

    #[test]
    fn commits_of_a_shard_and_its_lease_have_the_same_writer() {
        let mut turns = std::collections::BTreeSet::new();
        for number in 0..100 {
            let shard = ShardId(number);
            let lease = ShardLeaseRow {
                shard,
                node: "n".into(),
                node_id: "n".into(),
                epoch: ShardEpoch(1),
                lease_until: Timestamp::EPOCH,
            };
            let fenced = writer_index(&Commit::new().fence_shard(shard, ShardEpoch(1)), 4);
            assert_eq!(writer_index(&Commit::new().update(&lease, 1), 4), fenced);
            turns.insert(fenced);
        }
        assert_eq!(turns.len(), 4);
        assert_eq!(writer_index(&Commit::new(), 1), 0);
    }
}
