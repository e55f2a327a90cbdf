//! The row that says that a node is there.

use std::time::Duration;

use onward_base::Timestamp;
use onward_store::tables::NodeRow as Row;
use onward_store::{
    ColumnCodec as _, Commit, Error, RecordReader as _, RowKey, Store, StoreErrorKind,
};
use tokio::time::Instant;

use super::store_time::StoreTime;
use super::{Node, NodeRole};

/// How long somebody is gone before others remove what is left of it, in milliseconds.
const DEAD_NODE_RETENTION_MS: u64 = 60_000;

/// A node among others.
pub(super) struct NodeMembership {
    row: Row,
    /// The version of the row, once it is stored.
    version: Option<u64>,
    /// When to say again that it is there.
    next_heartbeat_at: Instant,
}

impl NodeMembership {
    /// One that nobody has heard of.
    pub(super) fn new(node: &Node) -> Self {
        let row = Row {
            node_id: node.holder.id.clone(),
            name: node.holder.name.clone(),
            address: node.options.address.clone(),
            started_at: Timestamp::MIN,
            seen_until: Timestamp::MIN,
        };
        Self {
            row,
            version: None,
            next_heartbeat_at: Instant::now(),
        }
    }

    /// Says that it is there, if it is time to, and asks the store for the time.
    pub(super) async fn send_heartbeat(&mut self, node: &Node) -> Result<(), Error> {
        if Instant::now() < self.next_heartbeat_at {
            return Ok(());
        }
        let time = StoreTime::read_from_store(&*node.store).await?;
        node.set_store_time(time);
        if node.options.role == NodeRole::Fallback {
            self.next_heartbeat_at = Instant::now() + node.options.lease_duration / 3;
            return Ok(());
        }
        if self.row.started_at == Timestamp::MIN {
            self.row.started_at = time.now();
        }
        self.row.seen_until = time
            .now()
            .plus_ms(duration_millis(node.options.lease_duration));
        let commit = match self.version {
            Some(version) => Commit::new().update(&self.row, version),
            None => Commit::new().insert(&self.row),
        };
        match node.store.commit(commit).await {
            Ok(_) => {
                self.version = Some(self.version.unwrap_or(0) + 1);
                self.next_heartbeat_at = Instant::now() + node.options.lease_duration / 3;
                Ok(())
            }
            // It was taken for gone, or stored by a commit that did not tell.
            Err(error) if error.kind() == StoreErrorKind::Conflict => {
                self.reload_version(&*node.store).await
            }
            Err(error) => Err(error),
        }
    }

    async fn reload_version(&mut self, store: &dyn Store) -> Result<(), Error> {
        let stored: Option<(Row, u64)> = store
            .read_record(RowKey(vec![self.row.node_id.to_value()]))
            .await?;
        self.version = stored.map(|(_, version)| version);
        Ok(())
    }

    /// Says that it is no longer there: others share its shards out as it gives them up.
    pub(super) async fn deregister_node(&mut self, store: &dyn Store) -> Result<(), Error> {
        let Some(version) = self.version.take() else {
            return Ok(());
        };
        remove_node_row(store, &self.row, version).await
    }
}

/// Whether a row says that its node is there.
pub(super) fn is_live_node(row: &Row, now: Timestamp) -> bool {
    row.seen_until > now
}

/// Removes what is left of those that are long gone.
pub(super) async fn remove_dead_nodes(
    store: &dyn Store,
    rows: &[(Row, u64)],
    now: Timestamp,
) -> Result<(), Error> {
    for (row, version) in rows
        .iter()
        .filter(|(row, _)| row.seen_until.plus_ms(DEAD_NODE_RETENTION_MS) <= now)
    {
        remove_node_row(store, row, *version).await?;
    }
    Ok(())
}

/// Removes a row, unless another was faster.
async fn remove_node_row(store: &dyn Store, row: &Row, version: u64) -> Result<(), Error> {
    match store.commit(Commit::new().delete(row, version)).await {
        Err(error) if error.kind() != StoreErrorKind::Conflict => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
