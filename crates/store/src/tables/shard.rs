//! Table of the shard leases: the owner and epoch of each shard.

use onward_base::{SharedText, Timestamp};

use crate::{Error, ShardEpoch, ShardId, StoredRow, TableRecord as _, define_table};

define_table! {
    /// The lease on a shard. The functions in [`shard_lease`](crate::shard_lease) read and write
    /// it; fences compare its epoch.
    "shards", key 1;
    pub struct ShardLeaseRow {
        /// The shard that the lease covers.
        pub shard: ShardId = "shard",
        /// Display name of the last owner.
        pub node: SharedText = "node",
        /// Id of the last owner in [`NodeRow`](super::NodeRow).
        pub node_id: SharedText = "node_id",
        /// Number of times the shard has been claimed; the fencing token of its owner.
        pub epoch: ShardEpoch = "epoch",
        /// When the lease expires and other nodes may take over.
        pub lease_until: Timestamp = "lease_until",
    }
}

impl ShardLeaseRow {
    /// Returns the epoch in the row of a shard, or [`ShardEpoch::NONE`] if the shard never had an
    /// owner.
    pub fn epoch_from_row(stored: Option<&StoredRow>) -> Result<ShardEpoch, Error> {
        stored.map_or(Ok(ShardEpoch::NONE), |stored| {
            Self::from_row(&stored.row)
                .map(|lease| lease.epoch)
                .map_err(Error::corrupt)
        })
    }
}
