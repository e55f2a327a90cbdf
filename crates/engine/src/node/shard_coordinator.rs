//! Shard coordinator of a node: heartbeats the node, reads the live nodes and their leases, and
//! takes over and releases shards so that each node owns its share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onward_base::{SharedText, Timestamp};
use onward_store::tables::{InboxMessageRow, NodeRow as Row, ShardLeaseRow};
use onward_store::{
    ColumnCodec as _, ColumnValue, Error, RecordReader as _, ShardId, StoreErrorKind, TableScan,
};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::membership::{self, NodeMembership};
use super::shard_assignment::assign_shards;
use super::shard_loop::{self, ShardDirective};
use super::{Node, NodeRole, ShardHint};
use crate::client::SHARD_COUNT;

/// Number of messages read per page.
const MESSAGE_SCAN_PAGE: usize = 100;

/// Coordinates the shards of the node until `stop` is true, then releases them. Fails if the store
/// can no longer be used.
pub(super) async fn run_coordinator(
    node: Arc<Node>,
    mut stop: watch::Receiver<bool>,
) -> Result<(), Error> {
    let mut steward = ShardCoordinator::new(&node);
    // At least three polls per lease duration, so that heartbeats are in time.
    let mut poll = interval(
        node.options
            .poll_interval
            .min(node.options.lease_duration / 3),
    );
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while steward.wait_for_poll(&mut poll, &mut stop).await? {
        // A store that does not answer must not block the shutdown of the node.
        let reaped = tokio::select! {
            reaped = steward.rebalance_shards() => reaped,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match reaped {
            Ok(()) => {}
            Err(error) if error.kind() == StoreErrorKind::Fatal => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "shard leases could not be read; retrying");
                steward.claim_not_before = Instant::now() + node.options.lease_duration / 3;
            }
        }
        steward.record_metrics();
    }
    steward.release_all_shards().await
}

struct ShardCoordinator {
    node: Arc<Node>,
    membership: NodeMembership,
    /// Shards that this node owns or is about to own, with the channel to have them released.
    owned_shards: BTreeMap<ShardId, watch::Sender<ShardDirective>>,
    shard_loops: JoinSet<(ShardId, Result<(), Error>)>,
    /// No shard is claimed before this time: a store outage may have prevented the heartbeats of
    /// all nodes.
    claim_not_before: Instant,
}

/// How the loop of a shard ended.
type ShardLoopEnd = Result<(ShardId, Result<(), Error>), JoinError>;

impl ShardCoordinator {
    fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
            membership: NodeMembership::new(node),
            owned_shards: BTreeMap::new(),
            shard_loops: JoinSet::new(),
            claim_not_before: Instant::now(),
        }
    }

    /// Waits for the next poll. Returns `false` if the node is to stop; fails if a shard loop
    /// failed.
    async fn wait_for_poll(
        &mut self,
        poll: &mut Interval,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<bool, Error> {
        while !*stop.borrow() {
            tokio::select! {
                _ = poll.tick() => return Ok(true),
                changed = stop.changed() => if changed.is_err() { return Ok(false) },
                Some(ended) = self.shard_loops.join_next() => self.on_shard_loop_ended(ended)?,
            }
        }
        Ok(false)
    }

    fn on_shard_loop_ended(&mut self, ended: ShardLoopEnd) -> Result<(), Error> {
        let (shard, outcome) = ended.map_err(|panic| {
            Error::Unavailable(format!("the task of a shard panicked: {panic}"))
        })?;
        self.owned_shards.remove(&shard);
        outcome
    }

    /// Reads the live nodes and the leases, and claims or hands over shards until this node owns
    /// its share.
    async fn rebalance_shards(&mut self) -> Result<(), Error> {
        self.membership.send_heartbeat(&self.node).await?;
        let leases: Vec<(ShardLeaseRow, u64)> = self
            .node
            .store
            .list_records(TableScan::all_rows::<ShardLeaseRow>())
            .await?;
        let rows: Vec<(Row, u64)> = self
            .node
            .store
            .list_records(TableScan::all_rows::<Row>())
            .await?;
        let now = self.node.store_time().now();
        let members = self.live_members(&rows, now);
        self.node.live_nodes.store(members.len(), Ordering::Relaxed);
        let held = self.shard_holders(leases, now);
        for (shard, member) in assign_shards(&members, &held) {
            let is_free = held.get(&shard).is_none_or(Option::is_none);
            if member != self.node.holder.id {
                self.hand_over_shard(shard);
            } else if is_free && Instant::now() >= self.claim_not_before {
                self.take_shard(shard);
            }
        }
        self.hint_waiting_messages().await?;
        membership::remove_dead_nodes(&*self.node.store, &rows, now).await
    }

    /// The nodes that get a share of the shards: the live members, and this node if it is a member
    /// or if there is no other.
    fn live_members(&self, rows: &[(Row, u64)], now: Timestamp) -> BTreeSet<SharedText> {
        let is_there = |row: &Row| {
            membership::is_live_node(row, now) && !self.node.store.is_process_dead(&row.node_id)
        };
        let there = rows
            .iter()
            .filter(|(row, _)| is_there(row))
            .map(|(row, _)| row.node_id.clone());
        let mut members: BTreeSet<SharedText> = there.collect();
        if self.node.options.role == NodeRole::Member || members.is_empty() {
            members.insert(self.node.holder.id.clone());
        }
        members
    }

    /// The holder of each shard. Shards that this node has just claimed are included, although the
    /// leases read may not show them yet.
    fn shard_holders(
        &self,
        leases: Vec<(ShardLeaseRow, u64)>,
        now: Timestamp,
    ) -> BTreeMap<ShardId, Option<SharedText>> {
        let mut held: BTreeMap<ShardId, Option<SharedText>> = (0..SHARD_COUNT)
            .map(|number| (ShardId(number), None))
            .collect();
        let is_held = |lease: &ShardLeaseRow| {
            lease.lease_until > now && !self.node.store.is_process_dead(&lease.node_id)
        };
        for (lease, _) in leases.into_iter().filter(|(lease, _)| is_held(lease)) {
            if let Some(holder) = held.get_mut(&lease.shard) {
                *holder = Some(lease.node_id);
            }
        }
        for (shard, leave) in &self.owned_shards {
            if *leave.borrow() == ShardDirective::Keep {
                held.insert(*shard, Some(self.node.holder.id.clone()));
            }
        }
        held
    }

    fn take_shard(&mut self, shard: ShardId) {
        let (leave, left) = watch::channel(ShardDirective::Keep);
        if self.owned_shards.contains_key(&shard) {
            return;
        }
        self.owned_shards.insert(shard, leave);
        let node = Arc::clone(&self.node);
        self.shard_loops
            .spawn(async move { (shard, shard_loop::run_shard(&node, shard, left).await) });
    }

    /// Starts draining a shard for its release, if this node owns it.
    fn hand_over_shard(&self, shard: ShardId) {
        if let Some(leave) = self.owned_shards.get(&shard)
            && *leave.borrow() == ShardDirective::Keep
        {
            leave.send_replace(ShardDirective::HandOver);
            tracing::info!(%shard, "shard is handed over to another node");
        }
    }

    /// Notifies shard owners of waiting messages: one read for all shards, unless there are many
    /// messages.
    async fn hint_waiting_messages(&self) -> Result<(), Error> {
        let mut scan = TableScan::by_index::<InboxMessageRow>(InboxMessageRow::BY_SHARD)
            .with_limit(MESSAGE_SCAN_PAGE);
        loop {
            let messages: Vec<(InboxMessageRow, u64)> =
                self.node.store.list_records(scan.clone()).await?;
            let shards: BTreeSet<ShardId> =
                messages.iter().map(|(message, _)| message.shard).collect();
            for shard in &shards {
                self.node.hub.send_hint(*shard, ShardHint::MessageArrived);
            }
            match shards.last() {
                // The last shard may have more messages, which its owner finds; the scan continues
                // with the shards after it.
                Some(last) if messages.len() == MESSAGE_SCAN_PAGE => {
                    scan.after = Some(vec![last.to_value(), ColumnValue::Int(i64::MAX)]);
                }
                _ => return Ok(()),
            }
        }
    }

    fn record_metrics(&self) {
        for number in 0..SHARD_COUNT {
            let is_owned = self.owned_shards.contains_key(&ShardId(number));
            metrics::gauge!("onward_shard_owner", "shard" => number.to_string())
                .set(f64::from(u8::from(is_owned)));
        }
        let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        metrics::gauge!("onward_nodes_alive")
            .set(count(self.node.live_nodes.load(Ordering::Relaxed)));
        metrics::gauge!("onward_executions_in_memory").set(count(self.node.executions_in_memory()));
    }

    /// Releases all shards. The node deregisters first, so that other nodes take its shards one by
    /// one as they are released.
    async fn release_all_shards(mut self) -> Result<(), Error> {
        for leave in self.owned_shards.values() {
            leave.send_replace(ShardDirective::Stop);
        }
        // A store outage must not block the shutdown.
        let left = tokio::time::timeout(
            self.node.options.drain_timeout,
            self.membership.deregister_node(&*self.node.store),
        )
        .await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::warn!(
                "node row could not be removed: other nodes detect the shutdown when the heartbeat expires"
            );
        }
        while let Some(ended) = self.shard_loops.join_next().await {
            self.on_shard_loop_ended(ended)?;
        }
        self.record_metrics();
        Ok(())
    }
}
