//! What somebody says of items in doubt.

use std::collections::{BTreeMap, BTreeSet};

use onward_dispatch::{Act, Attempt, Change, Control, JobStatus, Reason, Slot, Standing, Tally};
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

/// An item, and what it became, or why it could not be settled.
pub type Settled = (String, Result<OutboxItem, Refused>);

/// Who says what, and why.
#[derive(Clone, Copy)]
pub(crate) struct Said<'a> {
    pub(crate) verdict: &'a Verdict,
    pub(crate) by: &'a str,
    pub(crate) why: &'a str,
}

/// Settles items in doubt: they, their jobs and perhaps their runs, with who said so and why. Those of one job are settled
/// together: a verdict may make it due, and whoever has it then is in the way of the next.
pub(crate) async fn settle(
    store: &dyn Store,
    scope: &Scope,
    items: &[String],
    said: Said<'_>,
) -> Result<Vec<Settled>, Refused> {
    let (mut jobs, mut settled): (BTreeMap<Text, BTreeSet<Text>>, Vec<Settled>) = Default::default();
    for item in items {
        match rows::job_of(item) {
            Some(job) => drop(jobs.entry(job).or_default().insert(item.as_str().into())),
            None => settled.push((item.clone(), Err(Refused::NoItem(item.clone())))),
        }
    }
    for (job, items) in jobs {
        let mut tries = 0;
        let outcomes = loop {
            tries += 1;
            match settle_of(store, scope, &job, &items, said).await {
                // Another verdict on the same job was quicker.
                Err(Refused::Store(error)) if error.kind() == Kind::Conflict && tries < TRIES => {}
                Ok(outcomes) => break outcomes,
                // Those of other jobs may be settled by now, which is to be told.
                Err(refused) => break items.iter().map(|item| (item.to_string(), Err(refused.clone()))).collect(),
            }
        };
        settled.extend(outcomes);
    }
    Ok(settled)
}

/// Settles items of one job in one commit.
async fn settle_of(
    store: &dyn Store,
    scope: &Scope,
    id: &Text,
    wanted: &BTreeSet<Text>,
    said: Said<'_>,
) -> Result<Vec<Settled>, Refused> {
    let Said { verdict, by, why } = said;
    let refused = |item: &Text, refused: Refused| (item.to_string(), Err(refused));
    let none = |item: &Text| refused(item, Refused::NoItem(item.to_string()));
    let job: Option<(Job, u64)> = store.get(Key(vec![id.to_value()])).await?;
    let job = job.filter(|(job, _)| scope.has(&job.tenant_id, &job.workspace_id));
    let Some((mut job, job_version)) = job else { return Ok(wanted.iter().map(none).collect()) };
    let stored = rows::items(store, id).await?;
    let known: BTreeSet<&Text> = stored.iter().map(|(row, _)| &row.id).collect();
    let (items, absent): (Vec<&Text>, Vec<&Text>) = wanted.iter().partition(|item| known.contains(item));
    let mut settled: Vec<Settled> = absent.into_iter().map(none).collect();
    let run: Option<(CampaignRun, u64)> = store.get(Key(vec![job.run_id.to_value()])).await?;
    let Some((run, _)) = run else { return Err(Refused::NoRun(job.run_id.to_string())) };
    if *verdict == Verdict::Again && Control::parse(&run.control) == Some(Control::Cancelled) {
        settled.extend(items.into_iter().map(|item| refused(item, Refused::Cancelled(run.id.to_string()))));
        return Ok(settled);
    }
    // Whoever has it may be asking the provider just now.
    if rows::job_status(&job) == JobStatus::Locked {
        let until = job.locked_until.unwrap_or(job.run_after);
        settled.extend(items.into_iter().map(|item| refused(item, Refused::Held(id.to_string(), until))));
        return Ok(settled);
    }
    let now = store.now().await?;
    let (act, reason, message_id) = match verdict {
        Verdict::Served(message_id) => (Act::Accept, None, message_id.as_deref().map(Text::from)),
        Verdict::Failed => (Act::Refuse, Some(Reason::Verdict), None),
        Verdict::Again => (Act::Miss, None, None),
    };
    let mut slots = slots(&job, &stored, now);
    let mut commit = Commit::new();
    for (row, version) in stored.into_iter().filter(|(row, _)| wanted.contains(&row.id)) {
        let Some(to) = Some(rows::standing(&row)).filter(|it| *it == Standing::InDoubt).and_then(|it| it.after(act))
        else {
            settled.push(refused(&row.id, Refused::NotInDoubt(row.id.to_string())));
            continue;
        };
        let (error, message_id) = (Some(why.into()), message_id.clone());
        // Whoever wants it tried again wants it tried as often as any other.
        let calls = if *verdict == Verdict::Again { 0 } else { row.calls };
        let change = Change { to, calls, reason, error, message_id };
        let row = rows::changed(row, &change, rows::channel(&run), now);
        if let Some(slot) = rows::position(&row.id).and_then(|position| slots.get_mut(position)) {
            (slot.standing, slot.reason) = (to, reason);
        }
        let detail = json!({ "item": &*row.id, "verdict": word(verdict), "by": by, "why": why });
        commit = audit::entry(commit.update(&row, version), &run, "item.settled", &detail, now);
        settled.push((row.id.to_string(), Ok(row)));
    }
    if settled.iter().all(|(_, outcome)| outcome.is_err()) {
        return Ok(settled);
    }
    conclude(&mut job, &slots, verdict, now);
    commit = commit.update(&job, job_version);
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
        Verdict::Served(_) => "sent",
        Verdict::Failed => "failed",
        Verdict::Again => "again",
    }
}

/// The items of a job; those without a row are skipped, for another stands for them, if nothing is open.
fn slots(job: &Job, stored: &[(OutboxItem, u64)], now: Timestamp) -> Vec<Slot> {
    let mut slots = vec![Slot::NEW; job.items as usize];
    for (row, _) in stored {
        if let Some(slot) = rows::position(&row.id).and_then(|position| slots.get_mut(position)) {
            *slot = rows::slot(row, now);
        }
    }
    let mut missing = rows::tally(job).skipped.saturating_sub(Tally::of(slots.iter().map(|it| it.standing)).skipped);
    for slot in slots.iter_mut().filter(|slot| slot.standing == Standing::Unreserved) {
        if missing == 0 {
            break;
        }
        (slot.standing, missing) = (Standing::Skipped, missing - 1);
    }
    slots
}

/// Counts the items of a job that nobody has, now that one of them is settled, and says where it stands.
fn conclude(job: &mut Job, slots: &[Slot], verdict: &Verdict, now: Timestamp) {
    let tally = Tally::of(slots.iter().map(|slot| slot.standing));
    rows::count(job, &tally, now);
    let (act, status) = (Attempt::judged(slots), rows::job_status(job));
    job.status = act.map_or(status, |act| rows::after(status, act)).as_str().into();
    if act.is_some() {
        job.run_after = now;
    }
    // Only that gives somebody something to do. Others of the job may have to wait, for whatever reason.
    if *verdict == Verdict::Again {
        (job.run_after, job.attempts) = (now, 0);
    }
}
