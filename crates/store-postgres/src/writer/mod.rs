//! Writing. A commit waits in a [`queue`]; a writer takes all that wait and performs them as one group: one
//! transaction, one wait for the disk. A commit that is refused is answered alone, its neighbours go on.
//!
//! - [`quick`]: a group that only appends run events takes one statement, if what is believed of the runs is true.
//! - [`careful`]: any group. [`load`] locks and reads what the commits are about, [`decided`] lets the rules decide,
//!   and [`flush`] writes what they decided.
//! - [`fate`]: what became of a transaction whose end was not heard.
//!
//! The transaction belongs to the writer: whoever waits for an answer may go away at any time.

mod careful;
mod decided;
mod fate;
mod flush;
mod heads;
mod load;
mod mark;
mod queue;
mod quick;
mod seen;
mod wish;

use std::sync::Arc;
use std::time::Duration;

use deadpool_postgres::Pool;
use onward_store::{Admitted, Care, Clock, Commit, Error, Receipt, measure};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

pub(crate) use mark::tidy;
pub(crate) use queue::{Start, Writers};

use crate::writer::heads::Heads;
use crate::writer::mark::Mark;
use crate::writer::queue::{Waiting, too_late};

/// What one commit came to.
type Answer = Result<Receipt, Error>;

/// Commits that are performed together, at most.
const GROUP_MAX: usize = 1_024;
/// A group that carries so much is not made larger. What it saves by then is lost in the noise.
const GROUP_BYTES: usize = 1 << 20;

/// One connection, and the commits that wait for it.
struct Writer {
    queue: mpsc::Receiver<Waiting>,
    pool: Pool,
    clock: Option<Arc<dyn Clock>>,
    deadline: Duration,
    heads: Heads,
    /// The last transaction.
    mark: Mark,
}

impl Writer {
    async fn run(mut self) {
        while let Some(group) = self.gather().await {
            let (late, group): (Vec<Waiting>, Vec<Waiting>) =
                group.into_iter().partition(|waiting| waiting.since.elapsed() > self.deadline);
            late.into_iter().for_each(|waiting| reply(waiting.answer, Err(too_late())));
            if group.is_empty() {
                continue;
            }
            let bytes = group.iter().map(|waiting| waiting.bytes).sum();
            let (commits, waiting): (Vec<Admitted>, Vec<oneshot::Sender<Answer>>) =
                group.into_iter().map(|waiting| (waiting.commit, waiting.answer)).unzip();
            let begun = Instant::now();
            let answers = self.perform(&commits, bytes).await;
            if answers.iter().any(Result::is_ok) {
                measure::transaction(commits.len(), begun.elapsed());
            }
            waiting.into_iter().zip(answers).for_each(|(waiting, answer)| reply(waiting, answer));
        }
    }

    /// All commits that wait, up to a limit. `None` when no more will come.
    async fn gather(&mut self) -> Option<Vec<Waiting>> {
        let first = self.queue.recv().await?;
        let mut bytes = first.bytes;
        let mut group = vec![first];
        while bytes < GROUP_BYTES && group.len() < GROUP_MAX {
            let Ok(next) = self.queue.try_recv() else { break };
            bytes += next.bytes;
            group.push(next);
        }
        Some(group)
    }

    async fn perform(&mut self, commits: &[Admitted], bytes: usize) -> Vec<Answer> {
        let commits: Vec<&Admitted> = commits.iter().collect();
        match self.quickly(&commits, bytes).await {
            quick::Attempt::Done(receipts) => receipts.into_iter().map(Ok).collect(),
            quick::Attempt::Untried => self.carefully(&commits, Care::Trust, None).await,
            quick::Attempt::Undone => self.carefully(&commits, Care::Look, None).await,
            quick::Attempt::Unknown(why) => self.carefully(&commits, Care::Look, Some(why)).await,
        }
    }
}

/// Whoever waited may be gone.
fn reply(waiting: oneshot::Sender<Answer>, answer: Answer) {
    let _ = waiting.send(answer);
}

/// Whether performing the commit again does nothing if it was performed: idempotency keys see to that.
fn is_idempotent(commit: &Commit) -> bool {
    let Commit { fences, journals, changes, moves, events: _, is_unhurried: _ } = commit;
    fences.is_empty() && journals.is_empty() && changes.is_empty() && moves.is_empty()
}
