//! The steward of a node: says that the node is there, looks who else is, and takes shards over and gives them up, so that each
//! node has its share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use onward_journal::{Text, Timestamp};
use onward_store::tables::{Message, Node as Row, ShardLease};
use onward_store::{Error, Field as _, Kind, Records as _, Scan, Shard, Value};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval};

use super::balance::balance;
use super::member::{self, Member};
use super::shard_loop::{self, Leave};
use super::{Node, Note, Role};
use crate::client::SHARDS;

/// Messages that are looked at, at a time.
const GLANCE: usize = 100;

/// Looks after shards until told to stop, and gives them up then. Fails when the store can no longer be used.
pub(super) async fn run(node: Arc<Node>, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
    let mut steward = Steward::new(&node);
    // Often enough to say in time that it is there.
    let mut poll = interval(node.options.poll.min(node.options.lease / 3));
    poll.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while steward.rest(&mut poll, &mut stop).await? {
        // A store that does not answer must not keep the node from stopping.
        let looked = tokio::select! {
            looked = steward.look() => looked,
            _ = stop.wait_for(|stop| *stop) => break,
        };
        match looked {
            Ok(()) => {}
            Err(error) if error.kind() == Kind::Fatal => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "who owns which shard could not be read; it will be tried again");
                steward.claims_from = Instant::now() + node.options.lease / 3;
            }
        }
        steward.measure();
    }
    steward.leave().await
}

struct Steward {
    node: Arc<Node>,
    member: Member,
    /// Shards that are owned here or about to be, and how to have them given up.
    owned: BTreeMap<Shard, watch::Sender<Leave>>,
    owners: JoinSet<(Shard, Result<(), Error>)>,
    /// Nothing is claimed before: a store that could not be reached may have kept everybody from saying that they are there.
    claims_from: Instant,
}

/// How an owner ended.
type Ended = Result<(Shard, Result<(), Error>), JoinError>;

impl Steward {
    fn new(node: &Arc<Node>) -> Self {
        Self {
            node: Arc::clone(node),
            member: Member::new(node),
            owned: BTreeMap::new(),
            owners: JoinSet::new(),
            claims_from: Instant::now(),
        }
    }

    /// Waits for the next turn. Tells whether there is one.
    async fn rest(&mut self, poll: &mut Interval, stop: &mut watch::Receiver<bool>) -> Result<bool, Error> {
        while !*stop.borrow() {
            tokio::select! {
                _ = poll.tick() => return Ok(true),
                changed = stop.changed() => if changed.is_err() { return Ok(false) },
                Some(ended) = self.owners.join_next() => self.ended(ended)?,
            }
        }
        Ok(false)
    }

    fn ended(&mut self, ended: Ended) -> Result<(), Error> {
        let (shard, outcome) = ended.map_err(|panic| Error::Unavailable(format!("a shard has stopped: {panic}")))?;
        self.owned.remove(&shard);
        outcome
    }

    /// Looks who is there and who has what, and does its part to make that even.
    async fn look(&mut self) -> Result<(), Error> {
        self.member.beat(&self.node).await?;
        let leases: Vec<(ShardLease, u64)> = self.node.store.list(Scan::all::<ShardLease>()).await?;
        let rows: Vec<(Row, u64)> = self.node.store.list(Scan::all::<Row>()).await?;
        let now = self.node.time().now();
        let members = self.members(&rows, now);
        self.node.alive.store(members.len(), Ordering::Relaxed);
        let held = self.held(leases, now);
        for (shard, member) in balance(&members, &held) {
            let is_free = held.get(&shard).is_none_or(Option::is_none);
            if member != self.node.holder.id {
                self.give_up(shard);
            } else if is_free && Instant::now() >= self.claims_from {
                self.take(shard);
            }
        }
        self.glance().await?;
        member::bury(&*self.node.store, &rows, now).await
    }

    /// Who has a share. This one does, as a member or if there is none.
    fn members(&self, rows: &[(Row, u64)], now: Timestamp) -> BTreeSet<Text> {
        let is_there = |row: &Row| member::is_there(row, now) && !self.node.store.is_gone(&row.node_id);
        let there = rows.iter().filter(|(row, _)| is_there(row)).map(|(row, _)| row.node_id.clone());
        let mut members: BTreeSet<Text> = there.collect();
        if self.node.options.role == Role::Member || members.is_empty() {
            members.insert(self.node.holder.id.clone());
        }
        members
    }

    /// Who holds which shard. What was taken a moment ago may not show yet.
    fn held(&self, leases: Vec<(ShardLease, u64)>, now: Timestamp) -> BTreeMap<Shard, Option<Text>> {
        let mut held: BTreeMap<Shard, Option<Text>> = (0..SHARDS).map(|number| (Shard(number), None)).collect();
        let is_held = |lease: &ShardLease| lease.lease_until > now && !self.node.store.is_gone(&lease.node_id);
        for (lease, _) in leases.into_iter().filter(|(lease, _)| is_held(lease)) {
            if let Some(holder) = held.get_mut(&lease.shard) {
                *holder = Some(lease.node_id);
            }
        }
        for (shard, leave) in &self.owned {
            if *leave.borrow() == Leave::Stay {
                held.insert(*shard, Some(self.node.holder.id.clone()));
            }
        }
        held
    }

    fn take(&mut self, shard: Shard) {
        let (leave, left) = watch::channel(Leave::Stay);
        if self.owned.contains_key(&shard) {
            return;
        }
        self.owned.insert(shard, leave);
        let node = Arc::clone(&self.node);
        self.owners.spawn(async move { (shard, shard_loop::run(&node, shard, left).await) });
    }

    /// Has a shard drained and released, if it is owned here.
    fn give_up(&self, shard: Shard) {
        if let Some(leave) = self.owned.get(&shard)
            && *leave.borrow() == Leave::Stay
        {
            leave.send_replace(Leave::HandOver);
            tracing::info!(%shard, "the shard is handed to another node");
        }
    }

    /// Tells owners that there are messages for them: one look for all of them, unless there are many.
    async fn glance(&self) -> Result<(), Error> {
        let mut scan = Scan::by::<Message>(Message::BY_SHARD).limit(GLANCE);
        loop {
            let messages: Vec<(Message, u64)> = self.node.store.list(scan.clone()).await?;
            let shards: BTreeSet<Shard> = messages.iter().map(|(message, _)| message.shard).collect();
            for shard in &shards {
                self.node.nearby.tell(*shard, Note::Message);
            }
            match shards.last() {
                // There may be more of that one's, which its owner finds; what matters is who comes after it.
                Some(last) if messages.len() == GLANCE => {
                    scan.after = Some(vec![last.to_value(), Value::Int(i64::MAX)]);
                }
                _ => return Ok(()),
            }
        }
    }

    fn measure(&self) {
        for number in 0..SHARDS {
            let is_owned = self.owned.contains_key(&Shard(number));
            metrics::gauge!("onward_shard_owner", "shard" => number.to_string()).set(f64::from(u8::from(is_owned)));
        }
        let count = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        metrics::gauge!("onward_nodes_alive").set(count(self.node.alive.load(Ordering::Relaxed)));
        metrics::gauge!("onward_executions_in_memory").set(count(self.node.in_memory()));
    }

    /// Gives everything up. Others see first that this node goes, and take its shards one by one as they are released.
    async fn leave(mut self) -> Result<(), Error> {
        for leave in self.owned.values() {
            leave.send_replace(Leave::Stop);
        }
        // A store that is away must not keep it from stopping.
        let left = tokio::time::timeout(self.node.options.drain, self.member.leave(&*self.node.store)).await;
        if !matches!(left, Ok(Ok(()))) {
            tracing::warn!("others will find out by themselves that this node is gone");
        }
        while let Some(ended) = self.owners.join_next().await {
            self.ended(ended)?;
        }
        self.measure();
        Ok(())
    }
}
