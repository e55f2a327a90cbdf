//! Who owns a shard. A lease is a row with an epoch; taking over raises the epoch, and from then on the former owner's
//! commits are refused. Time only decides when somebody may *try*: safety is the epoch alone.

use onward_base::{SharedText, Timestamp};

use crate::tables::ShardLeaseRow;
use crate::{
    ColumnCodec, Commit, Error, RecordReader, RowKey, ShardEpoch, ShardId, Store, StoreErrorKind,
};

/// Ownership of a shard, until another takes over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLease {
    /// The shard.
    pub shard: ShardId,
    /// What commits are fenced with.
    pub epoch: ShardEpoch,
    /// When others may take over, unless renewed.
    pub until: Timestamp,
    holder: LeaseHolder,
    version: u64,
}

/// Who holds a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseHolder {
    /// What people call it.
    pub name: SharedText,
    /// What it is called in the table of nodes.
    pub id: SharedText,
}

impl From<&str> for LeaseHolder {
    /// One that people call by its id.
    fn from(name: &str) -> Self {
        Self {
            name: name.into(),
            id: name.into(),
        }
    }
}

/// Takes over a shard that is free, whose lease has run out, or whose holder is known to be gone. `None` when another owns it, or was faster.
///
/// Whoever holds the lease, even a node of the same name: names do not identify, epochs do.
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
    // Whoever is known to be gone need not be waited for.
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
    write_lease(store, row, current.map(|(_, version)| version)).await
}

/// Extends a lease. `None` when another has taken over; a lease that ran out unnoticed is still extended.
pub async fn renew_lease(
    store: &(impl Store + ?Sized),
    lease: &HeldLease,
    lease_ms: u64,
) -> Result<Option<HeldLease>, Error> {
    let until = store.now().await?.plus_ms(lease_ms).max(lease.until);
    write_lease(store, lease.to_lease_row(until), Some(lease.version)).await
}

/// Gives a shard up, so that others need not wait. Does nothing when another has taken over already.
pub async fn release_lease(store: &(impl Store + ?Sized), lease: &HeldLease) -> Result<(), Error> {
    write_lease(
        store,
        lease.to_lease_row(Timestamp::MIN),
        Some(lease.version),
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
            holder,
            version: version.unwrap_or(0) + 1,
        })),
        Err(error) if error.kind() == StoreErrorKind::Conflict => Ok(None),
        Err(error) => Err(error),
    }
}
