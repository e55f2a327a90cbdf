//! Work that is late: counted by shard, because a store that nobody works on has much of it and one reason for all.

use std::collections::BTreeMap;
use std::time::Duration;

use onward_journal::{ExecutionId, Timestamp};
use onward_store::tables::{Message, ShardLease};
use onward_store::{Error, Shard, Store};

use super::look::Seen;
use super::{Code, Finding, LATE_MS};
use crate::explain::leases;
use crate::standing::{AT_ONCE, standing};
use onward_api::ago;

/// A process that has just come takes its shards within so long.
const MOMENT: Duration = Duration::from_secs(1);

/// An execution that should have gone on long ago.
pub(super) struct Due {
    shard: Shard,
    since: Timestamp,
    /// Whether an owner would have got to it: a task that takes long is nobody's fault.
    is_overdue: bool,
}

/// Whether an execution should have gone on long ago.
pub(super) fn due(seen: &Seen, now: Timestamp) -> Option<Due> {
    let execution = seen.execution.as_ref().ok().filter(|execution| !execution.is_over())?;
    let (_, at) = standing(execution);
    let since = at.max(seen.last.unwrap_or(seen.row.created_at));
    let is_overdue = at != AT_ONCE || execution.is_runnable() || execution.has_scheduled();
    (since.plus_ms(LATE_MS) <= now).then_some(Due { shard: seen.row.shard, since, is_overdue })
}

/// What is late in each shard.
#[derive(Default)]
pub(super) struct Lateness(BTreeMap<Shard, Late>);

#[derive(Default, Clone, Copy)]
struct Late {
    /// What is late when nobody owns the shard.
    unowned: Count,
    /// What is late even when somebody does.
    owned: Count,
}

#[derive(Default, Clone, Copy)]
struct Count {
    executions: u64,
    messages: u64,
    oldest: Option<(Timestamp, ExecutionId)>,
}

impl Count {
    fn note(&mut self, since: Timestamp, id: ExecutionId) {
        self.oldest = Some(self.oldest.map_or((since, id), |oldest| oldest.min((since, id))));
    }

    fn add(&mut self, other: &Self) {
        self.executions += other.executions;
        self.messages += other.messages;
        if let Some((since, id)) = other.oldest {
            self.note(since, id);
        }
    }

    /// `3 executions are due and 1 message waits, the oldest since …`.
    fn words(&self, now: Timestamp) -> String {
        let since = self.oldest.map_or(now, |(since, _)| since);
        let executions = match self.executions {
            1 => "1 execution is due".to_owned(),
            many => format!("{many} executions are due"),
        };
        let messages = match self.messages {
            1 => "1 message waits".to_owned(),
            many => format!("{many} messages wait"),
        };
        format!("{executions} and {messages}, the oldest since {since} ({})", ago(since, now))
    }
}

impl Lateness {
    pub(super) fn execution(&mut self, due: Option<&Due>, id: ExecutionId) {
        let Some(Due { shard, since, is_overdue }) = due else { return };
        let late = self.0.entry(*shard).or_default();
        for count in [Some(&mut late.unowned), is_overdue.then_some(&mut late.owned)].into_iter().flatten() {
            count.executions += 1;
            count.note(*since, id);
        }
    }

    pub(super) fn message(&mut self, message: &Message) {
        let late = self.0.entry(message.shard).or_default();
        for count in [&mut late.unowned, &mut late.owned] {
            count.messages += 1;
            count.note(message.sent_at, message.execution_id);
        }
    }
}

/// Whose fault it is that work is late.
pub(super) async fn findings(store: &dyn Store, late: &Lateness) -> Result<Vec<Finding>, Error> {
    if late.0.is_empty() {
        return Ok(Vec::new());
    }
    let mut now = store.now().await?;
    let mut held = leases(store, now).await?;
    let is_current = |lease: &ShardLease, now| lease.lease_until > now;
    let is_any = |held: &[ShardLease], now| held.iter().any(|lease| is_current(lease, now));
    if is_any(&held, now) {
        // Who has just come has not taken every shard yet.
        tokio::time::sleep(MOMENT).await;
        now = store.now().await?;
        held = leases(store, now).await?;
    }
    let mut findings = Vec::new();
    let mut without_anybody = Count::default();
    for (shard, late) in &late.0 {
        let owner = held.iter().find(|lease| lease.shard == *shard && is_current(lease, now));
        let finding = |count: &Count, code, words: String| {
            let id = count.oldest.map(|(_, id)| id);
            Finding::new(id, code, format!("{words}: {}", count.words(now)))
        };
        match owner {
            Some(lease) if late.owned.oldest.is_some() => {
                let words = format!("shard {shard} is behind, and belongs to {}", lease.node);
                findings.push(finding(&late.owned, Code::Late, words));
            }
            Some(_) => {}
            None if is_any(&held, now) => {
                let words = format!("nobody takes shard {shard}, although processes are there");
                findings.push(finding(&late.unowned, Code::ShardUnattended, words));
            }
            None => without_anybody.add(&late.unowned),
        }
    }
    if without_anybody.oldest.is_some() {
        let words = format!("no process works on this store: {}", without_anybody.words(now));
        findings.push(Finding::new(None, Code::NobodyWorks, words));
    }
    Ok(findings)
}
