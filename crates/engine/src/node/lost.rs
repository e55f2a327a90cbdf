//! Workers that are lost: what they had claimed is taken from them when their time is over.

use std::sync::Arc;
use std::time::Duration;

use onward_store::{Error, Kind};
use tokio::sync::watch;

use super::Node;
use crate::work;

/// How often it looks for them.
const LOOK: Duration = Duration::from_millis(500);

/// Takes tasks from lost workers until told to stop. Several nodes may do so: each task is taken once.
pub(super) async fn run(node: Arc<Node>, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
    while !*stop.borrow() {
        match work::expire(&*node.store).await {
            Ok(shards) => shards.into_iter().for_each(|shard| node.nearby.tell(shard, super::Note::Message)),
            Err(error) if error.kind() == Kind::Fatal => return Err(error),
            Err(error) => tracing::warn!(%error, "workers that are lost could not be looked for"),
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            changed = stop.changed() => if changed.is_err() { return Ok(()) },
        }
    }
    Ok(())
}
