//! Periodic maintenance of the whole store: expires the leases of lost workers and measures queue
//! depths.

use std::sync::Arc;
use std::time::Duration;

use onward_store::{Error, StoreErrorKind};
use tokio::sync::watch;

use super::{Node, Notification, ShardHint, node_metrics};
use crate::task_queue;

/// Maximum interval at which the reaper looks for expired task leases; it looks earlier if it knows
/// of one.
const REAP_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum interval, in case leases expire by the clock of the store and not yet by that of the
/// node.
const REAP_INTERVAL_MIN: Duration = Duration::from_millis(10);

/// Number of reaper passes per measurement of the queue depths.
const REAPS_PER_QUEUE_COUNT: u32 = 10;

/// Expires the leases of lost workers until `stop` is true. Several nodes may do so concurrently:
/// each task is expired once.
pub(super) async fn run_lease_reaper(
    node: Arc<Node>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    for number in (0..REAPS_PER_QUEUE_COUNT).cycle() {
        let pass = async {
            let wait = reap_expired_leases(&node).await?;
            if number == 0 {
                redirect_measured_tasks(&node).await?;
            }
            Ok::<Duration, Error>(wait)
        };
        let reaped = tokio::select! {
            reaped = pass => reaped,
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        };
        let wait = match reaped {
            Err(error) if error.kind() == StoreErrorKind::Fatal => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "task leases could not be expired; retrying");
                REAP_INTERVAL
            }
            Ok(wait) => wait,
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
    }
    Ok(())
}

/// Expires leases, and returns the time until the next one can expire.
async fn reap_expired_leases(node: &Node) -> Result<Duration, Error> {
    let now = node.store_time().now();
    for shard in task_queue::expire_leases(&*node.store, now).await? {
        if !node.hub.send_hint(shard, ShardHint::MessageArrived) {
            node.store
                .notify(Notification::ShardWork(shard).to_string());
        }
    }
    let next = task_queue::next_lease_expiry(&*node.store).await?;
    let wait = next.map_or(REAP_INTERVAL, |at| {
        let micros = at
            .as_micros()
            .saturating_sub(node.store_time().now().as_micros());
        Duration::from_micros(u64::try_from(micros).unwrap_or(0))
    });
    Ok(wait.clamp(REAP_INTERVAL_MIN, REAP_INTERVAL))
}

/// Measures the queue depths. If tasks are queued, redirects those that were queued or released
/// after their function was deployed.
async fn redirect_measured_tasks(node: &Node) -> Result<(), Error> {
    let now = node.store_time().now();
    if node_metrics::measure_queue_depths(&*node.store, now).await? > 0 {
        task_queue::redirect_all_queued_tasks(&*node.store).await?;
    }
    Ok(())
}
