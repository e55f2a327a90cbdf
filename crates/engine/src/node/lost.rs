//! What is looked at from time to time for the store as a whole: workers that are lost, and how much waits.

use std::sync::Arc;
use std::time::Duration;

use onward_store::{Error, Kind};
use tokio::sync::watch;

use super::{Node, Note, Word, measure};
use crate::work;

/// How often it looks for workers that are lost.
const LOOK: Duration = Duration::from_secs(1);

/// Every how many looks it counts what waits.
const COUNT: u32 = 10;

/// Takes tasks from lost workers until told to stop. Several nodes may do so: each task is taken once.
pub(super) async fn run(node: Arc<Node>, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
    for look in (0..COUNT).cycle() {
        let looked = tokio::select! {
            looked = self::look(&node, look == 0) => looked,
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        };
        match looked {
            Err(error) if error.kind() == Kind::Fatal => return Err(error),
            Err(error) => tracing::warn!(%error, "workers that are lost could not be looked for"),
            Ok(()) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stop.wait_for(|stop| *stop) => return Ok(()),
        }
    }
    Ok(())
}

async fn look(node: &Node, counts: bool) -> Result<(), Error> {
    let now = node.time().now();
    for shard in work::expire(&*node.store, now).await? {
        if !node.nearby.tell(shard, Note::Message) {
            node.store.tell(Word::Shard(shard).to_string());
        }
    }
    if counts && measure::queues(&*node.store, now).await? > 0 {
        // Some may have been queued, or given back, after their function was deployed.
        work::hand_over_all(&*node.store).await?;
    }
    Ok(())
}
