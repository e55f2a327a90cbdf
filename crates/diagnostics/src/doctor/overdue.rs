//! Overdue work, counted by shard: a store without a running process has much of it, with one
//! reason for all.

use std::collections::BTreeMap;
use std::time::Duration;

use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_store::tables::{InboxMessageRow, ShardLeaseRow};
use onward_store::{Error, ShardId, Store};

use super::inspection::InspectedExecution;
use super::{DoctorFinding, FindingCode, OVERDUE_AFTER_MS};
use crate::explain::list_leases;
use onward_api::format_relative_time;
use onward_engine::row_state::{WAKE_NOW, derive_row_state};

/// Time within which a process that has just started takes over its shards.
const TAKEOVER_GRACE: Duration = Duration::from_secs(1);

/// An execution that is overdue by at least [`OVERDUE_AFTER_MS`].
pub(super) struct OverdueExecution {
    shard: ShardId,
    since: Timestamp,
    /// Whether a shard owner should have processed it already. `false` if only an attempt in flight
    /// takes long, for which the owner is not responsible.
    is_owner_late: bool,
}

/// Returns the execution as overdue if it should have made progress by now.
pub(super) fn find_overdue(seen: &InspectedExecution, now: Timestamp) -> Option<OverdueExecution> {
    let execution = seen
        .execution
        .as_ref()
        .ok()
        .filter(|execution| !execution.is_terminal())?;
    let (_, at) = derive_row_state(execution);
    let since = at.max(seen.last_event_at.unwrap_or(seen.row.created_at));
    let is_overdue = at != WAKE_NOW || execution.is_runnable() || execution.has_scheduled_invokes();
    (since.plus_ms(OVERDUE_AFTER_MS) <= now).then_some(OverdueExecution {
        shard: seen.row.shard,
        since,
        is_owner_late: is_overdue,
    })
}

/// Overdue work of each shard.
#[derive(Default)]
pub(super) struct OverdueByShard(BTreeMap<ShardId, ShardOverdue>);

#[derive(Default, Clone, Copy)]
struct ShardOverdue {
    /// Work that is overdue if no process owns the shard.
    unowned: OverdueCount,
    /// Work that is overdue even if a process owns the shard.
    owned: OverdueCount,
}

#[derive(Default, Clone, Copy)]
struct OverdueCount {
    executions: u64,
    messages: u64,
    oldest: Option<(Timestamp, ExecutionId)>,
}

impl OverdueCount {
    fn track_oldest(&mut self, since: Timestamp, id: ExecutionId) {
        self.oldest = Some(
            self.oldest
                .map_or((since, id), |oldest| oldest.min((since, id))),
        );
    }

    fn merge_count(&mut self, other: &Self) {
        self.executions += other.executions;
        self.messages += other.messages;
        if let Some((since, id)) = other.oldest {
            self.track_oldest(since, id);
        }
    }

    /// `3 executions are due and 1 message waits, the oldest since …`.
    fn describe_count(&self, now: Timestamp) -> String {
        let since = self.oldest.map_or(now, |(since, _)| since);
        let executions = match self.executions {
            1 => "1 execution is due".to_owned(),
            many => format!("{many} executions are due"),
        };
        let messages = match self.messages {
            1 => "1 message waits".to_owned(),
            many => format!("{many} messages wait"),
        };
        format!(
            "{executions} and {messages}, the oldest since {since} ({})",
            format_relative_time(since, now)
        )
    }
}

impl OverdueByShard {
    pub(super) fn add_execution(&mut self, due: Option<&OverdueExecution>, id: ExecutionId) {
        let Some(OverdueExecution {
            shard,
            since,
            is_owner_late: is_overdue,
        }) = due
        else {
            return;
        };
        let late = self.0.entry(*shard).or_default();
        for count in [
            Some(&mut late.unowned),
            is_overdue.then_some(&mut late.owned),
        ]
        .into_iter()
        .flatten()
        {
            count.executions += 1;
            count.track_oldest(*since, id);
        }
    }

    pub(super) fn add_message(&mut self, message: &InboxMessageRow) {
        let late = self.0.entry(message.shard).or_default();
        for count in [&mut late.unowned, &mut late.owned] {
            count.messages += 1;
            count.track_oldest(message.sent_at, message.execution_id);
        }
    }
}

/// Attributes overdue work to its cause: an owner that is behind, a shard without an owner, or a
/// store without a running process.
pub(super) async fn overdue_findings(
    store: &dyn Store,
    late: &OverdueByShard,
) -> Result<Vec<DoctorFinding>, Error> {
    if late.0.is_empty() {
        return Ok(Vec::new());
    }
    let mut now = store.now().await?;
    let mut held = list_leases(store, now).await?;
    let is_current = |lease: &ShardLeaseRow, now| lease.lease_until > now;
    let is_any = |held: &[ShardLeaseRow], now| held.iter().any(|lease| is_current(lease, now));
    if is_any(&held, now) {
        // A process that has just started has not claimed all its shards yet.
        tokio::time::sleep(TAKEOVER_GRACE).await;
        now = store.now().await?;
        held = list_leases(store, now).await?;
    }
    let mut findings = Vec::new();
    let mut without_process = OverdueCount::default();
    for (shard, late) in &late.0 {
        let owner = held
            .iter()
            .find(|lease| lease.shard == *shard && is_current(lease, now));
        let finding = |count: &OverdueCount, code, cause: String| {
            let id = count.oldest.map(|(_, id)| id);
            DoctorFinding::new(id, code, format!("{cause}: {}", count.describe_count(now)))
        };
        match owner {
            Some(lease) if late.owned.oldest.is_some() => {
                let cause = format!("shard {shard}, owned by {}, is behind", lease.node);
                findings.push(finding(&late.owned, FindingCode::Overdue, cause));
            }
            Some(_) => {}
            None if is_any(&held, now) => {
                let cause =
                    format!("no process owns shard {shard}, although processes are running");
                findings.push(finding(&late.unowned, FindingCode::ShardUnowned, cause));
            }
            None => without_process.merge_count(&late.unowned),
        }
    }
    if without_process.oldest.is_some() {
        let cause = format!(
            "no process works on this store: {}",
            without_process.describe_count(now)
        );
        findings.push(DoctorFinding::new(None, FindingCode::NoLiveNode, cause));
    }
    Ok(findings)
}
