//! Shard ownership through leases. A lease is a row with an epoch; a takeover increments the epoch,
//! and from then on the store rejects commits of the former owner. The expiry time only decides
//! when another node may *try* to take over: safety depends on the epoch alone.

use onward_base::{SharedText, Timestamp};

use crate::tables::ShardLeaseRow;
use crate::{
    ColumnCodec, Commit, Error, RecordReader, RowKey, ShardEpoch, ShardId, Store, StoreErrorKind,
};

/// Ownership of a shard until another node takes it over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// The shard that the lease covers.
    pub shard: ShardId,
    /// The fencing token for commits of this owner.
    pub epoch: ShardEpoch,
    /// When the lease expires unless it is renewed; from then on other nodes may take over.
    pub until: Timestamp,
    /// Whether the shard was taken over from an owner that had not released it: it crashed, or was
    /// cut off from the store.
    pub is_takeover: bool,
    holder: LeaseHolder,
    version: u64,
}

/// The node that holds a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    /// Display name of the node.
    pub name: SharedText,
    /// Id of the node in the table of nodes, unique per process start.
    pub id: SharedText,
}

impl From<&str> for LeaseHolder {
    /// Returns a holder that uses the same text as display name and id.
    fn from(name: &str) -> Self {
        Self {
            name: name.into(),
            id: name.into(),
        }
    }
}

/// Claims a shard that is free, whose lease has expired, or whose holder is known to be dead.
/// Returns `None` if another node owns it or claimed it first.
///
/// A valid lease blocks the claim even if a node of the same name holds it: names do not identify
/// owners, epochs do.
pub async fn claim_shard(
    store: &(impl Store + ?Sized),
    shard: ShardId,
    holder: impl Into<LeaseHolder> + Send,
    lease_ms: u64,
) -> Result<Option<HeldLease>, Error> {
    let LeaseHolder {
        name: node,
        id: node_id,
    } = holder.into();
    let now = store.now().await?;
    let current: Option<(ShardLeaseRow, u64)> =
        store.read_record(RowKey(vec![shard.to_value()])).await?;
    // If the holder is known to be dead, there is no need to wait for its lease to expire.
    let is_held =
        |lease: &ShardLeaseRow| lease.lease_until > now && !store.is_process_dead(&lease.node_id);
    if current.as_ref().is_some_and(|(lease, _)| is_held(lease)) {
        return Ok(None);
    }
    let epoch = current
        .as_ref()
        .map_or(ShardEpoch::NONE, |(lease, _)| lease.epoch)
        .next();
    let row = ShardLeaseRow {
        shard,
        node,
        node_id,
        epoch,
        lease_until: now.plus_ms(lease_ms),
    };
    let is_takeover = current
        .as_ref()
        .is_some_and(|(lease, _)| lease.lease_until != RELEASED);
    let version = current.map(|(_, version)| version);
    write_lease(store, row, version, is_takeover).await
}

/// Expiry time of a lease that its holder has released.
const RELEASED: Timestamp = Timestamp::MIN;

/// Extends a lease. Returns `None` if another node has taken over. An expired lease that no other
/// node has claimed is still extended.
pub async fn renew_lease(
    store: &(impl Store + ?Sized),
    lease: &HeldLease,
    lease_ms: u64,
) -> Result<Option<HeldLease>, Error> {
    let until = store.now().await?.plus_ms(lease_ms).max(lease.until);
    write_lease(
        store,
        lease.to_lease_row(until),
        Some(lease.version),
        lease.is_takeover,
    )
    .await
}

/// Releases a shard, so that other nodes need not wait for the lease to expire. Does nothing if
/// another node has already taken over.
pub async fn release_lease(store: &(impl Store + ?Sized), lease: &HeldLease) -> Result<(), Error> {
    write_lease(
        store,
        lease.to_lease_row(RELEASED),
        Some(lease.version),
        lease.is_takeover,
    )
    .await
    .map(drop)
}

impl HeldLease {
    fn to_lease_row(&self, until: Timestamp) -> ShardLeaseRow {
        let LeaseHolder {
            name: node,
            id: node_id,
        } = self.holder.clone();
        ShardLeaseRow {
            shard: self.shard,
            node,
            node_id,
            epoch: self.epoch,
            lease_until: until,
        }
    }
}

async fn write_lease(
    store: &(impl Store + ?Sized),
    row: ShardLeaseRow,
    version: Option<u64>,
    is_takeover: bool,
) -> Result<Option<HeldLease>, Error> {
    let commit = match version {
        None => Commit::new().insert(&row),
        Some(version) => Commit::new().update(&row, version),
    };
    let ShardLeaseRow {
        shard,
        node: name,
        node_id: id,
        epoch,
        lease_until: until,
    } = row;
    let holder = LeaseHolder { name, id };
    match store.commit(commit).await {
        Ok(_) => Ok(Some(HeldLease {
            shard,
            epoch,
            until,
            is_takeover,
            holder,
            version: version.unwrap_or(0) + 1,
        })),
        Err(error) if error.kind() == StoreErrorKind::Conflict => Ok(None),
        Err(error) => Err(error),
    }
}
