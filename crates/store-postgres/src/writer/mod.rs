//! Writing. A commit waits in a [`queue`]; a writer takes all that wait and performs them as one group: one
//! transaction, one wait for the disk. A commit that is refused is answered alone, its neighbours go on.
//!
//! - [`quick`]: a group that only appends run events takes one statement, if what is believed of the runs is true.
//! - [`careful`]: any group. [`load`] locks and reads what the commits are about, [`decided`] lets the rules decide,
//!   and [`flush`] writes what they decided.
//! - [`fate`]: what became of a transaction whose end was not heard.
//!
//! The transaction belongs to the writer: whoever waits for an answer may go away at any time.

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

/// What one commit came to.
type CommitResult = Result<CommitReceipt, Error>;

/// Commits that are performed together, at most.
const GROUP_COMMITS_MAX: usize = 1_024;
/// A group that carries so much is not made larger. What it saves by then is lost in the noise.
const GROUP_BYTES_MAX: usize = 1 << 20;

/// One connection, and the commits that wait for it.
struct PostgresWriter {
    queue: mpsc::Receiver<QueuedCommit>,
    pool: Pool,
    clock: Option<Arc<dyn StoreClock>>,
    call_timeout: Duration,
    head_cache: RunHeadCache,
    /// The last transaction.
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

    /// All commits that wait, up to a limit. `None` when no more will come.
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

/// Whoever waited may be gone.
fn send_reply(waiting: oneshot::Sender<CommitResult>, answer: CommitResult) {
    let _ = waiting.send(answer);
}

/// Whether performing the commit again does nothing if it was performed: idempotency keys see to that.
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
