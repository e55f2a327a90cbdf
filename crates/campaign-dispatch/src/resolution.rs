//! Operator decisions that settle items in doubt.

use std::collections::{BTreeMap, BTreeSet};

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    CampaignRunControl, ItemChange, ItemCounts, ItemProgress, ItemReason, ItemState,
    ItemTransition, JobAttempt, JobStatus,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{
    ColumnCodec as _, Commit, Error, RecordReader as _, RowKey, Store, StoreErrorKind,
};
use serde_json::{Value, json};

use crate::campaign_error::CampaignError;
use crate::run_completion::finish_run;
use crate::scope_columns::ScopeColumns;
use crate::{audit, row_mapping};

/// Maximum number of attempts to commit a resolution while the same job changes concurrently.
const RESOLVE_ATTEMPTS_MAX: u32 = 50;

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
    pub(crate) operator: &'a str,
    pub(crate) reason: &'a str,
}

impl OperatorDecision<'_> {
    /// The details of the audit entry about an item.
    fn audit_detail(&self, item: &SharedText) -> Value {
        json!({
            "item": &**item,
            "resolution": resolution_name(self.resolution),
            "by": self.operator,
            "reason": self.reason,
        })
    }
}

/// Settles items in doubt, updates their jobs and possibly finishes their runs, and records the
/// operator and the reason. Items of one job are settled in one commit: a resolution may make the
/// job due, and a worker that then claims it would block the resolution of the next item.
pub(crate) async fn resolve_items(
    store: &dyn Store,
    scope: &ScopeColumns,
    items: &[String],
    decision: OperatorDecision<'_>,
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
        let mut attempts = 0;
        let outcomes = loop {
            attempts += 1;
            match resolve_job_items(store, scope, &job, &items, decision).await {
                // Another resolution changed the same job first: retry.
                Err(CampaignError::Store(error))
                    if error.kind() == StoreErrorKind::Conflict
                        && attempts < RESOLVE_ATTEMPTS_MAX => {}
                Ok(outcomes) => break outcomes,
                // Items of other jobs may be settled already, so the error is reported per item.
                Err(error) => {
                    break items
                        .iter()
                        .map(|item| (item.to_string(), Err(error.clone())))
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
    scope: &ScopeColumns,
    id: &SharedText,
    requested: &BTreeSet<SharedText>,
    decision: OperatorDecision<'_>,
) -> Result<Vec<ResolvedItem>, CampaignError> {
    let fail = |item: &SharedText, error: CampaignError| (item.to_string(), Err(error));
    let not_found = |item: &SharedText| fail(item, CampaignError::ItemNotFound(item.to_string()));
    let job: Option<(JobRow, u64)> = store.read_record(RowKey(vec![id.to_value()])).await?;
    let job = job.filter(|(job, _)| scope.match_row(&job.tenant_id, &job.workspace_id));
    let Some((mut job, job_version)) = job else {
        return Ok(requested.iter().map(not_found).collect());
    };
    let stored = row_mapping::read_job_items(store, id).await?;
    let known: BTreeSet<&SharedText> = stored.iter().map(|(row, _)| &row.id).collect();
    let (items, missing): (Vec<&SharedText>, Vec<&SharedText>) =
        requested.iter().partition(|item| known.contains(item));
    let mut settled: Vec<ResolvedItem> = missing.into_iter().map(not_found).collect();
    let run: Option<(CampaignRunRow, u64)> = store
        .read_record(RowKey(vec![job.run_id.to_value()]))
        .await?;
    let Some((run, _)) = run else {
        return Err(CampaignError::RunNotFound(job.run_id.to_string()));
    };
    if let Some(error) = check_resolvable(decision.resolution, &run, &job).err() {
        settled.extend(items.into_iter().map(|item| fail(item, error.clone())));
        return Ok(settled);
    }
    let now = store.now().await?;
    let mut progress = job_progress(&job, &stored, now)?;
    let mut commit = Commit::new();
    for (row, version) in stored
        .into_iter()
        .filter(|(row, _)| requested.contains(&row.id))
    {
        let Some(change) = resolution_change(&row, decision) else {
            let error = CampaignError::ItemNotInDoubt(row.id.to_string());
            settled.push(fail(&row.id, error));
            continue;
        };
        let row = row_mapping::apply_change(row, &change, run.channel, now);
        let item = &mut progress[row_mapping::row_position(&row, job.items as usize)?];
        (item.state, item.reason) = (change.new_state, change.reason);
        commit = audit::append_entry(
            commit.update(&row, version),
            &run,
            "item.settled",
            &decision.audit_detail(&row.id),
            now,
        );
        settled.push((row.id.to_string(), Ok(row)));
    }
    if settled.iter().all(|(_, outcome)| outcome.is_err()) {
        return Ok(settled);
    }
    conclude_job(&mut job, &progress, decision.resolution, now)?;
    commit = commit.update(&job, job_version);
    commit_resolved_job(store, &run, &job, commit, (decision.operator, now)).await?;
    Ok(settled)
}

/// Commits the resolution of items of a job, with the audit event if it ended the job. The run is
/// finished if this was its last job.
async fn commit_resolved_job(
    store: &dyn Store,
    run: &CampaignRunRow,
    job: &JobRow,
    mut commit: Commit,
    (operator, now): (&str, Timestamp),
) -> Result<(), CampaignError> {
    if let Some((event, detail)) = job_end_event(job, operator) {
        commit = audit::append_entry(commit, run, event, &detail, now);
    }
    store.commit(commit).await?;
    if job.status.is_terminal() {
        finish_run(store, &run.id, now).await?;
    }
    Ok(())
}

/// Fails if no item of the job can be resolved now.
fn check_resolvable(
    resolution: &Resolution,
    run: &CampaignRunRow,
    job: &JobRow,
) -> Result<(), CampaignError> {
    if *resolution == Resolution::Retry && run.control == CampaignRunControl::Cancelled {
        return Err(CampaignError::RunCancelled(run.id.to_string()));
    }
    // The worker that holds the lease may be calling the provider right now.
    if job.status == JobStatus::Locked {
        let until = job.locked_until.unwrap_or(job.run_after);
        return Err(CampaignError::JobLocked(job.id.to_string(), until));
    }
    Ok(())
}

/// The change that a decision makes to an item, or `None` if the item is not in doubt.
fn resolution_change(row: &OutboxItemRow, decision: OperatorDecision<'_>) -> Option<ItemChange> {
    let OperatorDecision {
        resolution,
        reason: error,
        ..
    } = decision;
    let (transition, reason, message_id) = match resolution {
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
        .next_state(transition)
        .filter(|_| state == ItemState::InDoubt)?;
    // A retried item gets the full number of sends again.
    let sends = if *resolution == Resolution::Retry {
        0
    } else {
        row.sends
    };
    Some(ItemChange {
        new_state,
        sends,
        reason,
        error: Some(error.into()),
        provider_message_id: message_id,
    })
}

/// The audit event of a job that the resolution ended, or `None` if the job has not ended.
fn job_end_event(job: &JobRow, operator: &str) -> Option<(&'static str, Value)> {
    let event = match job.status {
        JobStatus::Completed => "job.completed",
        JobStatus::Dead => "job.dead",
        JobStatus::Queued | JobStatus::Locked | JobStatus::Failed => return None,
    };
    let JobRow {
        id,
        sent,
        failed,
        skipped,
        error,
        ..
    } = job;
    let detail = json!({
        "job": &**id, "by": operator, "sent": sent, "failed": failed, "skipped": skipped, "inDoubt": 0,
        "error": error.as_deref(),
    });
    Some((event, detail))
}

/// The name of a resolution in audit entries.
fn resolution_name(resolution: &Resolution) -> &'static str {
    match resolution {
        Resolution::Sent(_) => "sent",
        Resolution::Failed => "failed",
        Resolution::Retry => "resend",
    }
}

/// The progress of all items of a job. Items without a row that the job counts as skipped are
/// duplicates of other items.
fn job_progress(
    job: &JobRow,
    stored: &[(OutboxItemRow, u64)],
    now: Timestamp,
) -> Result<Vec<ItemProgress>, Error> {
    let mut progress = vec![ItemProgress::NEW; job.items as usize];
    for (row, _) in stored {
        let position = row_mapping::row_position(row, progress.len())?;
        progress[position] = row_mapping::item_progress(row, now);
    }
    let skipped = ItemCounts::from_states(progress.iter().map(|item| item.state)).skipped;
    let duplicates = row_mapping::job_counts(job).skipped.saturating_sub(skipped);
    let without_row = progress
        .iter_mut()
        .filter(|item| item.state == ItemState::Unreserved);
    for item in without_row.take(usize::try_from(duplicates).unwrap_or(usize::MAX)) {
        item.state = ItemState::Skipped;
    }
    Ok(progress)
}

/// Updates the counts and the status of an unclaimed job after some of its items were resolved.
fn conclude_job(
    job: &mut JobRow,
    progress: &[ItemProgress],
    resolution: &Resolution,
    now: Timestamp,
) -> Result<(), Error> {
    let counts = ItemCounts::from_states(progress.iter().map(|item| item.state));
    row_mapping::write_job_counts(job, &counts, now);
    if let Some(transition) = JobAttempt::transition_after_resolution(progress) {
        job.status = row_mapping::next_job_status(job, job.status, transition)?;
        job.run_after = now;
    }
    // Only a retry gives a worker something to do. Other items of the job may wait for reasons of
    // their own, so no other resolution makes the job due.
    if *resolution == Resolution::Retry {
        (job.run_after, job.attempts) = (now, 0);
    }
    Ok(())
}
