//! Who owns a shard. A lease is a row with an epoch; taking over raises the epoch, and from then on the former owner's
//! commits are refused. Time only decides when somebody may *try*: safety is the epoch alone.

use onward_journal::{Text, Timestamp};

use crate::tables::ShardLease;
use crate::{Commit, Epoch, Error, Field, Key, Kind, Records, Shard, Store};

/// Ownership of a shard, until another takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The shard.
    pub shard: Shard,
    /// What commits are fenced with.
    pub epoch: Epoch,
    /// When others may take over, unless renewed.
    pub until: Timestamp,
    holder: Holder,
    version: u64,
}

/// Who holds a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holder {
    /// What people call it.
    pub name: Text,
    /// What it is called in the table of nodes.
    pub id: Text,
}

impl From<&str> for Holder {
    /// One that people call by its id.
    fn from(name: &str) -> Self {
        Self { name: name.into(), id: name.into() }
    }
}

/// Takes over a shard that is free, whose lease has run out, or whose holder is known to be gone. `None` when another owns it, or was faster.
///
/// Whoever holds the lease, even a node of the same name: names do not identify, epochs do.
pub async fn claim(
    store: &(impl Store + ?Sized),
    shard: Shard,
    holder: impl Into<Holder> + Send,
    lease_ms: u64,
) -> Result<Option<Lease>, Error> {
    let Holder { name: node, id: node_id } = holder.into();
    let now = store.now().await?;
    let current: Option<(ShardLease, u64)> = store.get(Key(vec![shard.to_value()])).await?;
    // Whoever is known to be gone need not be waited for.
    let is_held = |lease: &ShardLease| lease.lease_until > now && !store.is_gone(&lease.node_id);
    if current.as_ref().is_some_and(|(lease, _)| is_held(lease)) {
        return Ok(None);
    }
    let epoch = current.as_ref().map_or(Epoch::NONE, |(lease, _)| lease.epoch).next();
    let row = ShardLease { shard, node, node_id, epoch, lease_until: now.plus_ms(lease_ms) };
    write(store, row, current.map(|(_, version)| version)).await
}

/// Extends a lease. `None` when another has taken over; a lease that ran out unnoticed is still extended.
pub async fn renew(store: &(impl Store + ?Sized), lease: &Lease, lease_ms: u64) -> Result<Option<Lease>, Error> {
    let until = store.now().await?.plus_ms(lease_ms).max(lease.until);
    write(store, lease.row(until), Some(lease.version)).await
}

/// Gives a shard up, so that others need not wait. Does nothing when another has taken over already.
pub async fn release(store: &(impl Store + ?Sized), lease: &Lease) -> Result<(), Error> {
    write(store, lease.row(Timestamp::MIN), Some(lease.version)).await.map(drop)
}

impl Lease {
    fn row(&self, until: Timestamp) -> ShardLease {
        let Holder { name: node, id: node_id } = self.holder.clone();
        ShardLease { shard: self.shard, node, node_id, epoch: self.epoch, lease_until: until }
    }
}

async fn write(store: &(impl Store + ?Sized), row: ShardLease, version: Option<u64>) -> Result<Option<Lease>, Error> {
    let commit = match version {
        None => Commit::new().insert(&row),
        Some(version) => Commit::new().update(&row, version),
    };
    let ShardLease { shard, node: name, node_id: id, epoch, lease_until: until } = row;
    let holder = Holder { name, id };
    match store.commit(commit).await {
        Ok(_) => Ok(Some(Lease { shard, epoch, until, holder, version: version.unwrap_or(0) + 1 })),
        Err(error) if error.kind() == Kind::Conflict => Ok(None),
        Err(error) => Err(error),
    }
}
