//! Expiry of task leases: ends the tasks of workers that stopped sending heartbeats or exceeded the
//! timeout of the attempt, so that their executions can retry or fail. A lease never extends beyond
//! the timeout, which begins with the claim.

use std::collections::BTreeSet;

use onward_base::Timestamp;
use onward_journal::{DeliveryGuarantee, ErrorKind, ExecutionError};
use onward_store::tables::TaskRow;
use onward_store::{Error, RecordReader as _, ShardId, Store, TableScan};

use super::TASK_PAGE_SIZE;
use super::held_task::completion_commit;
use crate::node::node_metrics;
use crate::shard::{in_doubt_error, task_row};

/// Fails tasks whose lease has expired: as in doubt if the task is at most once, otherwise as
/// `timeout` if the timeout of the attempt has passed, or as `worker_lost`. Returns the shards that
/// have messages to read.
pub async fn expire_leases(store: &dyn Store, now: Timestamp) -> Result<BTreeSet<ShardId>, Error> {
    let mut scan = TableScan::by_index::<TaskRow>(TaskRow::BY_LEASE)
        .where_at_most(&now)
        .with_limit(TASK_PAGE_SIZE);
    let mut shards = BTreeSet::new();
    loop {
        let lost: Vec<(TaskRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = lost.last() else {
            return Ok(shards);
        };
        scan = scan.starting_after(last);
        fail_expired_tasks(store, lost, now, &mut shards).await?;
    }
}

/// Returns when the next lease expires; `None` if no worker holds a task.
pub(crate) async fn next_lease_expiry(store: &dyn Store) -> Result<Option<Timestamp>, Error> {
    let first = TableScan::by_index::<TaskRow>(TaskRow::BY_LEASE).with_limit(1);
    let found: Vec<(TaskRow, u64)> = store.list_records(first).await?;
    let expiry = found.first().map(|(row, _)| row.leased_until);
    Ok(expiry.filter(|at| *at < Timestamp::MAX))
}

async fn fail_expired_tasks(
    store: &dyn Store,
    lost: Vec<(TaskRow, u64)>,
    now: Timestamp,
    shards: &mut BTreeSet<ShardId>,
) -> Result<(), Error> {
    for (row, version) in lost {
        let worker = row.worker.as_deref().unwrap_or_default();
        let is_timeout = row.timeout_at <= now;
        let how = if is_timeout {
            let limit = row.timeout_ms.unwrap_or_default();
            format!("worker {worker} exceeded the timeout of the attempt, {limit} ms")
        } else {
            format!("worker {worker} sent no heartbeat for {} ms", row.lease_ms)
        };
        let is_at_most_once = row.delivery == DeliveryGuarantee::AtMostOnce;
        let error = if is_at_most_once {
            in_doubt_error(&how)
        } else if is_timeout {
            ExecutionError::new(ErrorKind::Timeout, how)
        } else {
            ExecutionError::from_kind_name("worker_lost", how)
        };
        tracing::warn!(execution = %row.execution_id, function = %row.function, worker, is_timeout, "task lease expired");
        match store
            .commit(completion_commit(&row, version, Err(error), now)?)
            .await
        {
            Ok(_) => {
                shards.insert(row.shard);
                if is_at_most_once {
                    node_metrics::count_in_doubt(task_row::attempt_id(&row));
                }
            }
            // A heartbeat or result of the worker arrived at the last moment.
            Err(Error::Conflict(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
