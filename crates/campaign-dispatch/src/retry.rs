//! Retries a campaign run with a new run for the recipients that it did not reach. Each run has at
//! most one retry run, so that no recipient is sent to by two; recipients that the retry does not
//! reach either are left to a retry of the retry run.

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    AudienceRecipient, CampaignRunControl, CampaignRunStatus, ItemReason, ItemState,
};
use onward_store::tables::{CampaignRunRow, OutboxItemRow};
use onward_store::{
    ColumnCodec as _, Commit, CommitConflict, Error, RecordReader as _, RowKey, Store,
    StoreErrorKind,
};

use crate::audience::{self, AudienceWriter, StoredAudience};
use crate::deploy::{
    DEPLOY_ATTEMPTS_MAX, DeploymentResult, commit_run, deployment_result, derived_id,
};
use crate::entropy::EntropySource;
use crate::reached_recipients::{CampaignRunHistory, UnreachedRecipients};
use crate::scoped_campaigns::{CampaignError, CampaignScope};
use crate::{row_mapping, run_completion};

/// The id of the run that retries `run`. It is derived from `run`, so that there is at most one.
fn retry_run_id(run: &CampaignRunRow) -> SharedText {
    derived_id(&[&run.tenant_id, &run.workspace_id, &run.id, "retry"])
}

/// Returns the run that retries this run, if there is one.
pub(crate) async fn find_retry_run(
    store: &dyn Store,
    run: &CampaignRunRow,
) -> Result<Option<CampaignRunRow>, Error> {
    let found: Option<(CampaignRunRow, u64)> = store
        .read_record(RowKey(vec![retry_run_id(run).to_value()]))
        .await?;
    Ok(found.map(|(run, _)| run))
}

/// Retries a campaign run that is over. A second call returns the same retry run.
pub(crate) async fn retry_run(
    store: &dyn Store,
    scope: &CampaignScope,
    (run, version): (CampaignRunRow, u64),
    by: &str,
    entropy: &EntropySource,
) -> Result<DeploymentResult, CampaignError> {
    if let Some(existing) = find_retry_run(store, &run).await? {
        return Ok(deployment_result(&existing, true));
    }
    if !row_mapping::run_status(&run).is_terminal() {
        let tally = run_completion::count_run_items(store, &run.id).await?;
        let is_undecided = tally.open_items() == 0 && tally.in_doubt > 0;
        let id = run.id.to_string();
        return Err(if is_undecided {
            CampaignError::RunInDoubt(id, tally.in_doubt)
        } else {
            CampaignError::RunNotFinished(id)
        });
    }
    let unserved = store_undelivered(store, scope, &run, entropy).await?;
    let runs = CampaignRunHistory {
        store,
        scope,
        campaign_id: &run.campaign_id,
    };
    for _ in 0..DEPLOY_ATTEMPTS_MAX {
        let last = runs.last_ordinal().await?;
        let mut unreached = UnreachedRecipients::default();
        if last > run.ordinal {
            unreached = UnreachedRecipients::from_audience(store, &unserved).await?;
            runs.remove_targeted(&mut unreached, run.ordinal).await?;
        }
        let by_later = |later: &SharedText| {
            CampaignError::AlreadyRetried(run.id.to_string(), later.to_string())
        };
        if let Some(later) = unreached.last_run().filter(|_| unreached.is_empty()) {
            return Err(by_later(later));
        }
        let audience = unreached
            .store_audience(store, scope, &unserved, entropy)
            .await?;
        let next = new_retry_run(&run, last + 1, &audience, store.now().await?);
        // A concurrent redrive of one of its jobs updates the run as well, so that one of the two
        // commits conflicts.
        let commit = Commit::new().update(&run, version);
        let refused = match commit_run(store, commit, &next, &audience, by).await {
            Ok(()) => return stored_retry_result(store, &run, &audience).await,
            Err(refused) => refused,
        };
        if find_retry_run(store, &run).await?.is_some() {
            return stored_retry_result(store, &run, &audience).await;
        }
        match &refused {
            CampaignError::Store(Error::Conflict(CommitConflict::NotUnique { .. })) => {}
            CampaignError::Store(error) if error.kind() == StoreErrorKind::Conflict => break,
            _ => return Err(refused),
        }
    }
    Err(CampaignError::ConcurrentChange(run.id.to_string()))
}

/// The result for the stored retry run, whether this call or a concurrent one created it.
async fn stored_retry_result(
    store: &dyn Store,
    run: &CampaignRunRow,
    audience: &StoredAudience,
) -> Result<DeploymentResult, CampaignError> {
    let made = find_retry_run(store, run)
        .await?
        .ok_or_else(|| CampaignError::RunNotFound(retry_run_id(run).to_string()))?;
    Ok(deployment_result(&made, made.audience_id != audience.id))
}

fn new_retry_run(
    run: &CampaignRunRow,
    ordinal: u32,
    audience: &StoredAudience,
    now: Timestamp,
) -> CampaignRunRow {
    CampaignRunRow {
        id: retry_run_id(run),
        ordinal,
        status: CampaignRunStatus::Queued.as_str().into(),
        control: CampaignRunControl::Active.as_str().into(),
        audience_id: audience.id.clone(),
        audience_digest: audience.digest.clone(),
        items: audience.recipient_count(),
        jobs: audience.part_numbers().end,
        scheduled_for: now,
        retry_of: Some(run.id.clone()),
        wake_at: now,
        created_at: now,
        ended_at: None,
        ..run.clone()
    }
}

/// An empty audience of a retry means that the run has no recipient left to retry.
fn map_empty_audience(refused: CampaignError) -> CampaignError {
    if refused == CampaignError::EmptyAudience {
        CampaignError::NothingToRetry
    } else {
        refused
    }
}

/// Stores an audience of the recipients whose items failed or were skipped because the run was
/// cancelled.
async fn store_undelivered(
    store: &dyn Store,
    scope: &CampaignScope,
    run: &CampaignRunRow,
    entropy: &EntropySource,
) -> Result<StoredAudience, CampaignError> {
    let first = audience::read_audience_part(store, &run.audience_id, 0).await?;
    let part_items = u32::try_from(first.len()).unwrap_or(u32::MAX);
    let mut gathering = AudienceWriter::new(store, scope.clone(), part_items, entropy);
    for number in 0..run.jobs {
        let recipients = audience::read_audience_part(store, &run.audience_id, number).await?;
        let job = row_mapping::job_id(&run.id, number);
        for recipient in
            undelivered_recipients(recipients, &row_mapping::read_job_items(store, &job).await?)
        {
            gathering.add_recipient(recipient).await?;
        }
    }
    gathering.finish().await.map_err(map_empty_audience)
}

/// The recipients of a job that were not reached. A recipient without a row is a duplicate of
/// another one.
fn undelivered_recipients(
    recipients: Vec<AudienceRecipient>,
    items: &[(OutboxItemRow, u64)],
) -> Vec<AudienceRecipient> {
    let mut recipients: Vec<Option<AudienceRecipient>> = recipients.into_iter().map(Some).collect();
    let is_missed = |row: &OutboxItemRow| match row_mapping::item_state(row) {
        ItemState::Failed => true,
        ItemState::Skipped => row.reason.as_deref() == Some(ItemReason::Cancelled.as_str()),
        _ => false,
    };
    let missed = items
        .iter()
        .filter(|(row, _)| is_missed(row))
        .filter_map(|(row, _)| row_mapping::item_position(&row.id));
    missed
        .filter_map(|position| recipients.get_mut(position)?.take())
        .collect()
}
