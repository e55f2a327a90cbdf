//! What somebody says of an item in doubt.

use onward_dispatch::{Act, Attempt, Change, JobStatus, Reason, Slot, Standing, Tally};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{CampaignRun, Job, OutboxItem};
use onward_store::{Commit, Field as _, Key, Kind, Records as _, Store};
use serde_json::{Value, json};

use crate::campaigns::{Refused, Scope};
use crate::finish::finish;
use crate::{audit, rows};

/// How often a verdict is tried while others change the same job.
const TRIES: u32 = 50;

/// What became of an item in doubt, as somebody has found out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The provider has taken it, and may call it something.
    Served(Option<String>),
    /// It was not delivered, and will not be.
    Failed,
    /// It was not delivered, and is to be.
    Again,
}

/// Settles an item in doubt: it, its job and perhaps its run, with who said so and why.
pub(crate) async fn settle(
    store: &dyn Store,
    scope: &Scope,
    item: &str,
    verdict: &Verdict,
    said: (&str, &str),
) -> Result<OutboxItem, Refused> {
    let mut tries = 0;
    loop {
        tries += 1;
        match settle_once(store, scope, item, verdict, said).await {
            // Another verdict on the same job was quicker.
            Err(Refused::Store(error)) if error.kind() == Kind::Conflict && tries < TRIES => {}
            outcome => return outcome,
        }
    }
}

async fn settle_once(
    store: &dyn Store,
    scope: &Scope,
    item: &str,
    verdict: &Verdict,
    (by, why): (&str, &str),
) -> Result<OutboxItem, Refused> {
    let id = Text::from(item);
    let found: Option<(OutboxItem, u64)> = store.get(Key(vec![id.to_value()])).await?;
    let is_ours = |(row, _): &(OutboxItem, u64)| scope.has(&row.tenant_id, &row.workspace_id);
    let Some((row, version)) = found.filter(is_ours) else { return Err(Refused::NoItem(item.to_owned())) };
    if rows::standing(&row) != Standing::InDoubt {
        return Err(Refused::NotInDoubt(item.to_owned()));
    }
    let job: Option<(Job, u64)> = store.get(Key(vec![row.job_id.to_value()])).await?;
    let run: Option<(CampaignRun, u64)> = store.get(Key(vec![row.run_id.to_value()])).await?;
    let (Some((mut job, job_version)), Some((run, _))) = (job, run) else {
        return Err(Refused::NoItem(item.to_owned()));
    };
    // Whoever has it may be asking the provider just now.
    if rows::job_status(&job) == JobStatus::Locked {
        return Err(Refused::AtWork(job.id.to_string()));
    }
    let now = store.now().await?;
    let (act, reason, message_id) = match verdict {
        Verdict::Served(message_id) => (Act::Accept, None, message_id.as_deref().map(Text::from)),
        Verdict::Failed => (Act::Refuse, Some(Reason::Verdict), None),
        Verdict::Again => (Act::Miss, None, None),
    };
    let to = Standing::InDoubt.after(act).unwrap_or(Standing::InDoubt);
    let change = Change { to, calls: row.calls, reason, error: Some(why.into()), message_id };
    let settled = rows::changed(row, &change, rows::channel(&run), now);
    let (position, mut slots) = (rows::position(&settled.id), slots(store, &job, now).await?);
    if let Some(slot) = position.and_then(|position| slots.get_mut(position)) {
        (slot.standing, slot.reason) = (to, reason);
    }
    conclude(&mut job, &slots, now);
    let detail = json!({ "item": item, "verdict": word(verdict), "by": by, "why": why });
    let commit = Commit::new().update(&settled, version).update(&job, job_version);
    let mut commit = audit::entry(commit, &run, "item.settled", &detail, now);
    if let Some((event, detail)) = end(&job, by) {
        commit = audit::entry(commit, &run, event, &detail, now);
    }
    store.commit(commit).await?;
    if rows::job_status(&job).is_over() {
        finish(store, &run.id, now).await?;
    }
    Ok(settled)
}

/// What the audit trail says of a job that the verdict has ended.
fn end(job: &Job, by: &str) -> Option<(&'static str, Value)> {
    let event = match rows::job_status(job) {
        JobStatus::Completed => "job.completed",
        JobStatus::Dead => "job.dead",
        JobStatus::Queued | JobStatus::Locked | JobStatus::Failed => return None,
    };
    let Job { id, served, failed, skipped, error, .. } = job;
    let detail = json!({
        "job": &**id, "by": by, "served": served, "failed": failed, "skipped": skipped, "inDoubt": 0,
        "error": error.as_deref(),
    });
    Some((event, detail))
}

fn word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Served(_) => "served",
        Verdict::Failed => "failed",
        Verdict::Again => "again",
    }
}

/// The items of a job; those without a row are skipped, for another stands for them, if nothing is open.
async fn slots(store: &dyn Store, job: &Job, now: Timestamp) -> Result<Vec<Slot>, Refused> {
    let mut slots = vec![Slot::NEW; job.items as usize];
    for (row, _) in rows::items(store, &job.id).await? {
        if let Some(slot) = rows::position(&row.id).and_then(|position| slots.get_mut(position)) {
            *slot = rows::slot(&row, now);
        }
    }
    let mut missing = rows::tally(job).skipped.saturating_sub(Tally::of(slots.iter().map(|it| it.standing)).skipped);
    for slot in slots.iter_mut().filter(|slot| slot.standing == Standing::Unreserved) {
        if missing == 0 {
            break;
        }
        (slot.standing, missing) = (Standing::Skipped, missing - 1);
    }
    Ok(slots)
}

/// Counts the items of a job that nobody has, now that one of them is settled, and says where it stands.
fn conclude(job: &mut Job, slots: &[Slot], now: Timestamp) {
    let tally = Tally::of(slots.iter().map(|slot| slot.standing));
    rows::count(job, &tally, now);
    let (act, is_due) = Attempt::judged(slots);
    let status = rows::job_status(job);
    job.status = act.and_then(|act| status.after(act)).unwrap_or(status).as_str().into();
    if is_due {
        job.run_after = now;
    }
}
