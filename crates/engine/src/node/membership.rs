//! The row with which a node heartbeats that it is alive.

use std::time::Duration;

use onward_base::Timestamp;
use onward_store::tables::NodeRow as Row;
use onward_store::{
    ColumnCodec as _, Commit, Error, RecordReader as _, RowKey, Store, StoreErrorKind,
};
use tokio::time::Instant;

use super::store_time::StoreTime;
use super::{Node, NodeRole};

/// How long a node is dead before other nodes remove its row, in milliseconds.
const DEAD_NODE_RETENTION_MS: u64 = 60_000;

/// Membership of this node among the nodes of the store.
pub(super) struct NodeMembership {
    row: Row,
    /// Version of the stored row; `None` before it is stored.
    version: Option<u64>,
    /// When the next heartbeat is due.
    next_heartbeat_at: Instant,
}

impl NodeMembership {
    /// Membership that is not stored yet; the first heartbeat is due at once.
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

    /// Sends a heartbeat if one is due, and reads the time of the store.
    pub(super) async fn send_heartbeat(&mut self, node: &Node) -> Result<(), Error> {
        if Instant::now() < self.next_heartbeat_at {
            return Ok(());
        }
        node.write_health.begin_heartbeat();
        let sent = self.write_heartbeat(node).await;
        node.write_health.end_heartbeat(&sent);
        sent
    }

    async fn write_heartbeat(&mut self, node: &Node) -> Result<(), Error> {
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
            // Another node removed the row as dead, or an earlier commit stored the row without
            // reporting success.
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

    /// Removes the row of this node, so that other nodes take its shards as it releases them.
    pub(super) async fn deregister_node(&mut self, store: &dyn Store) -> Result<(), Error> {
        let Some(version) = self.version.take() else {
            return Ok(());
        };
        remove_node_row(store, &self.row, version).await
    }
}

/// Whether the heartbeat in the row is still valid.
pub(super) fn is_live_node(row: &Row, now: Timestamp) -> bool {
    row.seen_until > now
}

/// Removes the rows of nodes that have been dead for the retention time.
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

/// Removes a row; a conflict with another removal is ignored.
async fn remove_node_row(store: &dyn Store, row: &Row, version: u64) -> Result<(), Error> {
    match store.commit(Commit::new().delete(row, version)).await {
        Err(error) if error.kind() != StoreErrorKind::Conflict => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn duration_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
