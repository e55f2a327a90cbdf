//! Who owns which shard.

use onward_journal::{Text, Timestamp};

use crate::{Epoch, Error, Record as _, Shard, Stored, record};

record! {
    /// The lease on a shard. [`lease`](crate::lease) reads and writes it; fences compare its epoch.
    "shards", key 1;
    pub struct ShardLease {
        /// The shard.
        pub shard: Shard = "shard",
        /// The last owner, for people.
        pub node: Text = "node",
        /// The same, as it is called in [`nodes`](super::Node).
        pub node_id: Text = "node_id",
        /// How often the shard has changed hands.
        pub epoch: Epoch = "epoch",
        /// When others may take over.
        pub lease_until: Timestamp = "lease_until",
    }
}

impl ShardLease {
    /// The epoch that a shard is at by its row; [`Epoch::NONE`] when nobody ever owned it.
    pub fn epoch_of(stored: Option<&Stored>) -> Result<Epoch, Error> {
        stored.map_or(Ok(Epoch::NONE), |stored| {
            Self::from_row(&stored.row).map(|lease| lease.epoch).map_err(Error::Corrupt)
        })
    }
}
