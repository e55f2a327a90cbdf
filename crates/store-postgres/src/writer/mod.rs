//! The write path. Commits wait in a [`queue`]; a writer takes all waiting commits and performs
//! them as one group: one transaction, one wait for the disk. A commit that is rejected fails
//! alone; the others of its group are performed.
//!
//! - [`optimistic`]: a group that only appends run events takes one statement, if the cached heads
//!   of the runs are current.
//! - [`pessimistic`]: any group. [`load`] locks and reads the rows that the commits need,
//!   [`decision`] applies the store's rules, and [`flush`] writes the result.
//! - [`commit_outcome`]: determines the outcome of a transaction whose commit was not acknowledged.
//!
//! The writer owns the transaction: the caller that waits for the reply may disappear at any time.

mod commit_outcome;
mod decision;
mod flush;
mod load;
mod optimistic;
mod pessimistic;
mod queue;
mod read_set;
mod read_set_view;
mod run_head_cache;
mod transaction_mark;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use onward_store::{
    AdmittedCommit, Commit, CommitReceipt, Duplicates, Error, StoreClock, store_metrics,
};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

pub(crate) use queue::{CommitQueues, WriterOptions};
pub(crate) use transaction_mark::delete_stale_marks;

use crate::writer::queue::{QueuedCommit, queue_timeout_error};
use crate::writer::run_head_cache::RunHeadCache;
use crate::writer::transaction_mark::TransactionMark;

/// Result of one commit.
type CommitResult = Result<CommitReceipt, Error>;

/// Maximum number of commits performed together in one group.
const GROUP_COMMITS_MAX: usize = 1_024;
/// A group that has reached this size in bytes takes no further commits: beyond it, a larger group
/// has no measurable benefit.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// A writer: one connection and the queue of commits for it.
struct PostgresWriter {
    queue: mpsc::Receiver<QueuedCommit>,
    pool: Pool,
    clock: Option<Arc<dyn StoreClock>>,
    call_timeout: Duration,
    head_cache: RunHeadCache,
    /// Mark of the writer's last transaction.
    mark: TransactionMark,
}

impl PostgresWriter {
    async fn run_loop(mut self) {
        while let Some(group) = self.next_group().await {
            let (late, group): (Vec<QueuedCommit>, Vec<QueuedCommit>) = group
                .into_iter()
                .partition(|waiting| waiting.queued_at.elapsed() > self.call_timeout);
            late.into_iter()
                .for_each(|waiting| send_reply(waiting.reply, Err(queue_timeout_error())));
            if group.is_empty() {
                continue;
            }
            let bytes = group.iter().map(|waiting| waiting.bytes).sum();
            let (commits, waiting): (Vec<AdmittedCommit>, Vec<oneshot::Sender<CommitResult>>) =
                group
                    .into_iter()
                    .map(|waiting| (waiting.commit, waiting.reply))
                    .unzip();
            let begun = Instant::now();
            let answers = self.commit_group(&commits, bytes).await;
            if answers.iter().any(Result::is_ok) {
                store_metrics::record_transaction(commits.len(), begun.elapsed());
            }
            waiting
                .into_iter()
                .zip(answers)
                .for_each(|(waiting, answer)| send_reply(waiting, answer));
        }
    }

    /// Returns all waiting commits up to the limits of a group; `None` when the queue is closed.
    async fn next_group(&mut self) -> Option<Vec<QueuedCommit>> {
        let first = self.queue.recv().await?;
        let mut bytes = first.bytes;
        let mut group = vec![first];
        while bytes < GROUP_BYTES_MAX && group.len() < GROUP_COMMITS_MAX {
            let Ok(next) = self.queue.try_recv() else {
                break;
            };
            bytes += next.bytes;
            group.push(next);
        }
        Some(group)
    }

    async fn commit_group(
        &mut self,
        commits: &[AdmittedCommit],
        bytes: usize,
    ) -> Vec<CommitResult> {
        let commits: Vec<&AdmittedCommit> = commits.iter().collect();
        match self.commit_optimistically(&commits, bytes).await {
            optimistic::OptimisticOutcome::Committed(receipts) => {
                receipts.into_iter().map(Ok).collect()
            }
            optimistic::OptimisticOutcome::NotApplicable => {
                self.commit_pessimistically(&commits, Duplicates::Optimistic, None)
                    .await
            }
            optimistic::OptimisticOutcome::RolledBack => {
                self.commit_pessimistically(&commits, Duplicates::Checked, None)
                    .await
            }
            optimistic::OptimisticOutcome::Unknown(why) => {
                self.commit_pessimistically(&commits, Duplicates::Checked, Some(why))
                    .await
            }
        }
    }
}

/// Sends the reply; the caller may have disappeared.
fn send_reply(waiting: oneshot::Sender<CommitResult>, answer: CommitResult) {
    let _ = waiting.send(answer);
}

/// Returns `true` if performing the commit twice has no further effect, because all it contains has
/// idempotency keys.
fn is_idempotent(commit: &Commit) -> bool {
    let Commit {
        fences,
        journals,
        changes,
        reader_advances: moves,
        events: _,
        is_background: _,
    } = commit;
    fences.is_empty() && journals.is_empty() && changes.is_empty() && moves.is_empty()
}
