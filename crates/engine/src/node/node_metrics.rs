//! Metrics of a node, for monitoring.

use onward_base::Timestamp;
use onward_store::tables::{ExecutionRow, InboxMessageRow, TaskRow};
use onward_store::{Error, ShardId, Store, TableScan};

use crate::client::SHARD_COUNT;
use crate::shard::AttemptId;

/// Upper bound of every count of rows.
const COUNT_MAX: usize = 100_000;

/// Counts attempts that were made because an earlier one had failed.
pub(super) fn count_retries(attempts: u64) {
    if attempts > 0 {
        metrics::counter!("onward_task_retries_total").increment(attempts);
    }
}

/// Logs and counts an attempt that is in doubt: it is unknown whether it was performed.
pub(crate) fn count_in_doubt(attempt: AttemptId) {
    tracing::warn!(promise = %attempt.promise_id(), attempt = attempt.attempt, "attempt is in doubt: whether it took effect is unknown");
    metrics::counter!("onward_in_doubt_total").increment(1);
}

/// Measures the queue depths of the whole store, so that every node reports the same values.
/// Returns the number of tasks queued for workers.
pub(super) async fn measure_queue_depths(store: &dyn Store, now: Timestamp) -> Result<u64, Error> {
    let mut due = 0;
    for number in 0..SHARD_COUNT {
        due += count_rows(
            store,
            TableScan::by_index::<ExecutionRow>(ExecutionRow::BY_WAKE)
                .where_equal(&ShardId(number))
                .where_at_most(&now),
        )
        .await?;
    }
    let messages = count_rows(
        store,
        TableScan::by_index::<InboxMessageRow>(InboxMessageRow::BY_SHARD)
            .where_at_most(&ShardId(SHARD_COUNT - 1)),
    )
    .await?;
    let claimed = count_rows(
        store,
        TableScan::by_index::<TaskRow>(TaskRow::BY_LEASE)
            .where_at_most(&now.plus_ms(u64::from(u32::MAX))),
    )
    .await?;
    let tasks = count_rows(store, TableScan::all_rows::<TaskRow>()).await?;
    let queued = tasks.saturating_sub(claimed);
    let depths = [
        ("executions", due),
        ("messages", messages),
        ("tasks_claimed", claimed),
        ("tasks_queued", queued),
    ];
    for (queue, depth) in depths {
        let depth = u32::try_from(depth).unwrap_or(u32::MAX);
        metrics::gauge!("onward_queue_depth", "queue" => queue).set(f64::from(depth));
    }
    Ok(queued)
}

async fn count_rows(store: &dyn Store, scan: TableScan) -> Result<u64, Error> {
    store.count_rows(scan.with_limit(COUNT_MAX)).await
}
