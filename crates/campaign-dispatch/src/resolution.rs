//! Operator decisions that settle items in doubt.

use std::collections::{BTreeMap, BTreeSet};

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    CampaignRunControl, ItemChange, ItemCounts, ItemProgress, ItemReason, ItemState,
    ItemTransition, JobAttempt, JobStatus,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{ColumnCodec as _, Commit, RecordReader as _, RowKey, Store, StoreErrorKind};
use serde_json::{Value, json};

use crate::run_completion::finish_run;
use crate::scoped_campaigns::{CampaignError, CampaignScope};
use crate::{audit, row_mapping};

/// Maximum number of attempts to commit a resolution while the same job changes concurrently.
const CONFLICT_RETRIES_MAX: u32 = 50;

/// An operator's decision on an item in doubt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resolution {
    /// The provider accepted the item; carries the provider's message id, if known.
    Sent(Option<String>),
    /// The item was not delivered and will not be.
    Failed,
    /// The item was not delivered and is to be sent again.
    Retry,
}

/// The id of an item, and its row after the resolution or the reason why it could not be settled.
pub type ResolvedItem = (String, Result<OutboxItemRow, CampaignError>);

/// A resolution with the operator who decided it and the reason.
#[derive(Clone, Copy)]
pub(crate) struct OperatorDecision<'a> {
    pub(crate) resolution: &'a Resolution,
    pub(crate) decided_by: &'a str,
    pub(crate) reason: &'a str,
}

/// Settles items in doubt, updates their jobs and possibly finishes their runs, and records the
/// operator and the reason. Items of one job are settled in one commit: a resolution may make the
/// job due, and a worker that then claims it would block the resolution of the next item.
pub(crate) async fn resolve_items(
    store: &dyn Store,
    scope: &CampaignScope,
    items: &[String],
    said: OperatorDecision<'_>,
) -> Result<Vec<ResolvedItem>, CampaignError> {
    let (mut jobs, mut settled): (
        BTreeMap<SharedText, BTreeSet<SharedText>>,
        Vec<ResolvedItem>,
    ) = Default::default();
    for item in items {
        match row_mapping::job_id_of_item(item) {
            Some(job) => drop(jobs.entry(job).or_default().insert(item.as_str().into())),
            None => settled.push((item.clone(), Err(CampaignError::ItemNotFound(item.clone())))),
        }
    }
    for (job, items) in jobs {
        let mut tries = 0;
        let outcomes = loop {
            tries += 1;
            match resolve_job_items(store, scope, &job, &items, said).await {
                // Another resolution changed the same job first: retry.
                Err(CampaignError::Store(error))
                    if error.kind() == StoreErrorKind::Conflict && tries < CONFLICT_RETRIES_MAX => {
                }
                Ok(outcomes) => break outcomes,
                // Items of other jobs may be settled already, so the error is reported per item.
                Err(refused) => {
                    break items
                        .iter()
                        .map(|item| (item.to_string(), Err(refused.clone())))
                        .collect();
                }
            }
        };
        settled.extend(outcomes);
    }
    Ok(settled)
}

/// Settles items of one job in one commit.
async fn resolve_job_items(
    store: &dyn Store,
    scope: &CampaignScope,
    id: &SharedText,
    wanted: &BTreeSet<SharedText>,
    said: OperatorDecision<'_>,
) -> Result<Vec<ResolvedItem>, CampaignError> {
    let OperatorDecision {
        resolution: verdict,
        decided_by: by,
        reason: why,
    } = said;
    let refused = |item: &SharedText, refused: CampaignError| (item.to_string(), Err(refused));
    let none = |item: &SharedText| refused(item, CampaignError::ItemNotFound(item.to_string()));
    let job: Option<(JobRow, u64)> = store.read_record(RowKey(vec![id.to_value()])).await?;
    let job = job.filter(|(job, _)| scope.contains_workspace(&job.tenant_id, &job.workspace_id));
    let Some((mut job, job_version)) = job else {
        return Ok(wanted.iter().map(none).collect());
    };
    let stored = row_mapping::read_job_items(store, id).await?;
    let known: BTreeSet<&SharedText> = stored.iter().map(|(row, _)| &row.id).collect();
    let (items, absent): (Vec<&SharedText>, Vec<&SharedText>) =
        wanted.iter().partition(|item| known.contains(item));
    let mut settled: Vec<ResolvedItem> = absent.into_iter().map(none).collect();
    let run: Option<(CampaignRunRow, u64)> = store
        .read_record(RowKey(vec![job.run_id.to_value()]))
        .await?;
    let Some((run, _)) = run else {
        return Err(CampaignError::RunNotFound(job.run_id.to_string()));
    };
    if let Some(error) = resolution_refusal(verdict, &run, &job) {
        settled.extend(items.into_iter().map(|item| refused(item, error.clone())));
        return Ok(settled);
    }
    let now = store.now().await?;
    let mut slots = job_progress(&job, &stored, now);
    let mut commit = Commit::new();
    for (row, version) in stored
        .into_iter()
        .filter(|(row, _)| wanted.contains(&row.id))
    {
        let Some(change) = resolution_change(&row, verdict, why) else {
            settled.push(refused(
                &row.id,
                CampaignError::ItemNotInDoubt(row.id.to_string()),
            ));
            continue;
        };
        let row = row_mapping::apply_change(row, &change, row_mapping::run_channel(&run), now);
        if let Some(slot) =
            row_mapping::item_position(&row.id).and_then(|position| slots.get_mut(position))
        {
            (slot.state, slot.reason) = (change.new_state, change.reason);
        }
        let detail =
            json!({ "item": &*row.id, "verdict": resolution_name(verdict), "by": by, "why": why });
        commit = audit::append_entry(
            commit.update(&row, version),
            &run,
            "item.settled",
            &detail,
            now,
        );
        settled.push((row.id.to_string(), Ok(row)));
    }
    if settled.iter().all(|(_, outcome)| outcome.is_err()) {
        return Ok(settled);
    }
    conclude_job(&mut job, &slots, verdict, now);
    commit = commit.update(&job, job_version);
    commit_resolved_job(store, &run, &job, commit, (by, now)).await?;
    Ok(settled)
}

/// Commits the resolution of items of a job, with the audit event if it ended the job. The run is
/// finished if this was its last job.
async fn commit_resolved_job(
    store: &dyn Store,
    run: &CampaignRunRow,
    job: &JobRow,
    mut commit: Commit,
    (by, now): (&str, Timestamp),
) -> Result<(), CampaignError> {
    if let Some((event, detail)) = job_end_event(job, by) {
        commit = audit::append_entry(commit, run, event, &detail, now);
    }
    store.commit(commit).await?;
    if row_mapping::job_status(job).is_terminal() {
        finish_run(store, &run.id, now).await?;
    }
    Ok(())
}

/// The reason why no item of the job can be resolved now, if there is one.
fn resolution_refusal(
    verdict: &Resolution,
    run: &CampaignRunRow,
    job: &JobRow,
) -> Option<CampaignError> {
    if *verdict == Resolution::Retry
        && CampaignRunControl::parse(&run.control) == Some(CampaignRunControl::Cancelled)
    {
        return Some(CampaignError::RunCancelled(run.id.to_string()));
    }
    // The worker that holds the lease may be calling the provider right now.
    if row_mapping::job_status(job) == JobStatus::Locked {
        let until = job.locked_until.unwrap_or(job.run_after);
        return Some(CampaignError::JobLocked(job.id.to_string(), until));
    }
    None
}

/// The change that a resolution makes to an item, or `None` if the item is not in doubt.
fn resolution_change(row: &OutboxItemRow, verdict: &Resolution, why: &str) -> Option<ItemChange> {
    let (act, reason, message_id) = match verdict {
        Resolution::Sent(message_id) => (
            ItemTransition::Accept,
            None,
            message_id.as_deref().map(SharedText::from),
        ),
        Resolution::Failed => (
            ItemTransition::Refuse,
            Some(ItemReason::OperatorResolution),
            None,
        ),
        Resolution::Retry => (ItemTransition::ConfirmNotSent, None, None),
    };
    let state = row_mapping::item_state(row);
    let new_state = state
        .next_state(act)
        .filter(|_| state == ItemState::InDoubt)?;
    // A retried item gets the full number of sends again.
    let sends = if *verdict == Resolution::Retry {
        0
    } else {
        row.calls
    };
    Some(ItemChange {
        new_state,
        sends,
        reason,
        error: Some(why.into()),
        provider_message_id: message_id,
    })
}

/// The audit event of a job that the resolution ended, or `None` if the job is not over.
fn job_end_event(job: &JobRow, by: &str) -> Option<(&'static str, Value)> {
    let event = match row_mapping::job_status(job) {
        JobStatus::Completed => "job.completed",
        JobStatus::Dead => "job.dead",
        JobStatus::Queued | JobStatus::Locked | JobStatus::Failed => return None,
    };
    let JobRow {
        id,
        served,
        failed,
        skipped,
        error,
        ..
    } = job;
    let detail = json!({
        "job": &**id, "by": by, "served": served, "failed": failed, "skipped": skipped, "inDoubt": 0,
        "error": error.as_deref(),
    });
    Some((event, detail))
}

fn resolution_name(verdict: &Resolution) -> &'static str {
    match verdict {
        Resolution::Sent(_) => "sent",
        Resolution::Failed => "failed",
        Resolution::Retry => "again",
    }
}

/// The progress of all items of a job. Items without a row that the job counts as skipped are
/// duplicates of other items.
fn job_progress(
    job: &JobRow,
    stored: &[(OutboxItemRow, u64)],
    now: Timestamp,
) -> Vec<ItemProgress> {
    let mut slots = vec![ItemProgress::NEW; job.items as usize];
    for (row, _) in stored {
        if let Some(slot) =
            row_mapping::item_position(&row.id).and_then(|position| slots.get_mut(position))
        {
            *slot = row_mapping::item_progress(row, now);
        }
    }
    let mut missing = row_mapping::job_counts(job)
        .skipped
        .saturating_sub(ItemCounts::from_states(slots.iter().map(|it| it.state)).skipped);
    for slot in slots
        .iter_mut()
        .filter(|slot| slot.state == ItemState::Unreserved)
    {
        if missing == 0 {
            break;
        }
        (slot.state, missing) = (ItemState::Skipped, missing - 1);
    }
    slots
}

/// Updates the counts and the status of an unclaimed job after some of its items were resolved.
fn conclude_job(job: &mut JobRow, slots: &[ItemProgress], verdict: &Resolution, now: Timestamp) {
    let tally = ItemCounts::from_states(slots.iter().map(|slot| slot.state));
    row_mapping::write_job_counts(job, &tally, now);
    let (act, status) = (
        JobAttempt::transition_after_resolution(slots),
        row_mapping::job_status(job),
    );
    job.status = act
        .map_or(status, |act| row_mapping::next_job_status(status, act))
        .as_str()
        .into();
    if act.is_some() {
        job.run_after = now;
    }
    // Only a retry gives a worker something to do. Other items of the job may wait for reasons of
    // their own, so no other resolution makes the job due.
    if *verdict == Resolution::Retry {
        (job.run_after, job.attempts) = (now, 0);
    }
}
