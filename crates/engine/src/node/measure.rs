//! What a node counts, for whoever watches it.

use onward_journal::Timestamp;
use onward_store::tables::{Execution, Message, Task};
use onward_store::{Error, Scan, Shard, Store};

use crate::client::SHARDS;
use crate::shard::AttemptId;

/// Nothing is counted further than this.
const COUNT_MAX: usize = 100_000;

/// Attempts that were made because an earlier one had failed.
pub(super) fn repeated(attempts: u64) {
    if attempts > 0 {
        metrics::counter!("onward_task_retries_total").increment(attempts);
    }
}

/// An attempt of which nobody knows whether it was performed.
pub(crate) fn in_doubt(attempt: AttemptId) {
    tracing::warn!(promise = %attempt.promise(), attempt = attempt.attempt, "whether a task was performed is not known");
    metrics::counter!("onward_in_doubt_total").increment(1);
}

/// Counts what waits in the whole store: every node says the same about it. Returns how many tasks wait for a worker.
pub(super) async fn queues(store: &dyn Store, now: Timestamp) -> Result<u64, Error> {
    let mut due = 0;
    for number in 0..SHARDS {
        due += count(store, Scan::by::<Execution>(Execution::BY_WAKE).equal(&Shard(number)).until(&now)).await?;
    }
    let messages = count(store, Scan::by::<Message>(Message::BY_SHARD).until(&Shard(SHARDS - 1))).await?;
    let claimed = count(store, Scan::by::<Task>(Task::BY_LEASE).until(&now.plus_ms(u64::from(u32::MAX)))).await?;
    let tasks = count(store, Scan::all::<Task>()).await?;
    let queued = tasks.saturating_sub(claimed);
    let depths = [("executions", due), ("messages", messages), ("tasks_claimed", claimed), ("tasks_queued", queued)];
    for (queue, depth) in depths {
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        metrics::gauge!("onward_queue_depth", "queue" => queue).set(f64::from(depth));
    }
    Ok(queued)
}

async fn count(store: &dyn Store, scan: Scan) -> Result<u64, Error> {
    store.count(scan.limit(COUNT_MAX)).await
}
