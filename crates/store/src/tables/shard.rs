//! Who owns which shard.

use onward_base::{SharedText, Timestamp};

use crate::{Error, ShardEpoch, ShardId, StoredRow, TableRecord as _, define_table};

define_table! {
    /// The lease on a shard. [`lease`](crate::lease) reads and writes it; fences compare its epoch.
    "shards", key 1;
    pub struct ShardLeaseRow {
        /// The shard.
        pub shard: ShardId = "shard",
        /// The last owner, for people.
        pub node: SharedText = "node",
        /// The same, as it is called in [`nodes`](super::Node).
        pub node_id: SharedText = "node_id",
        /// How often the shard has changed hands.
        pub epoch: ShardEpoch = "epoch",
        /// When others may take over.
        pub lease_until: Timestamp = "lease_until",
    }
}

impl ShardLeaseRow {
    /// The epoch that a shard is at by its row; [`Epoch::NONE`] when nobody ever owned it.
    pub fn epoch_from_row(stored: Option<&StoredRow>) -> Result<ShardEpoch, Error> {
        stored.map_or(Ok(ShardEpoch::NONE), |stored| {
            Self::from_row(&stored.row)
                .map(|lease| lease.epoch)
                .map_err(Error::Corrupt)
        })
    }
}
