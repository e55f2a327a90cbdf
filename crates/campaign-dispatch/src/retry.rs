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
use crate::campaign_error::CampaignError;
use crate::deploy::{
    DEPLOY_ATTEMPTS_MAX, DeploymentResult, RunOrigin, commit_run, deployment_result, derived_id,
};
use crate::entropy::EntropySource;
use crate::reached_recipients::{CampaignRunHistory, UnreachedRecipients};
use crate::scope_columns::ScopeColumns;
use crate::{row_mapping, run_completion};

/// The id of the run that retries `run`. It is derived from `run`, so that there is at most one.
/// The form of the workspace is that of schema 2, whose retry runs are found; the id of `run` alone
/// makes the id unique.
fn retry_run_id(run: &CampaignRunRow) -> SharedText {
    let workspace = ScopeColumns::schema_2_workspace(&run.workspace_id);
    derived_id(&[&run.tenant_id, &workspace, &run.id, "retry"])
}

/// Returns the run that retries this run, if there is one.
pub(crate) async fn find_retry_run(
    store: &dyn Store,
    run: &CampaignRunRow,
) -> Result<Option<CampaignRunRow>, Error> {
    let stored: Option<(CampaignRunRow, u64)> = store
        .read_record(RowKey(vec![retry_run_id(run).to_value()]))
        .await?;
    Ok(stored.map(|(run, _)| run))
}

/// Retries a campaign run that has ended. A second call returns the same retry run.
pub(crate) async fn retry_run(
    store: &dyn Store,
    scope: &ScopeColumns,
    (run, version): (CampaignRunRow, u64),
    operator: &str,
    entropy: &EntropySource,
) -> Result<DeploymentResult, CampaignError> {
    if let Some(existing) = find_retry_run(store, &run).await? {
        return Ok(deployment_result(&existing, RunOrigin::Existing));
    }
    if !run.status.is_terminal() {
        let counts = run_completion::count_run_items(store, &run.id).await?;
        let is_in_doubt = counts.open_items() == 0 && counts.in_doubt > 0;
        let id = run.id.to_string();
        return Err(if is_in_doubt {
            CampaignError::RunInDoubt(id, counts.in_doubt)
        } else {
            CampaignError::RunNotFinished(id)
        });
    }
    let undelivered = store_undelivered(store, scope, &run, entropy).await?;
    let history = CampaignRunHistory {
        store,
        scope,
        campaign_id: &run.campaign_id,
    };
    for _ in 0..DEPLOY_ATTEMPTS_MAX {
        let last = history.last_ordinal().await?;
        let mut unreached = UnreachedRecipients::default();
        if last > run.ordinal {
            unreached = UnreachedRecipients::from_audience(store, &undelivered).await?;
            history.remove_targeted(&mut unreached, run.ordinal).await?;
        }
        if let Some(later) = unreached.last_run().filter(|_| unreached.is_empty()) {
            return Err(CampaignError::AlreadyRetried(
                run.id.to_string(),
                later.to_string(),
            ));
        }
        let audience = unreached
            .store_audience(store, scope, &undelivered, entropy)
            .await?;
        let next = new_retry_run(&run, last + 1, &audience, store.now().await?);
        // A concurrent redrive of one of its jobs updates the run as well, so that one of the two
        // commits conflicts.
        let commit = Commit::new().update(&run, version);
        let error = match commit_run(store, commit, &next, &audience, operator).await {
            Ok(()) => return stored_retry_result(store, &run, &audience).await,
            Err(error) => error,
        };
        if find_retry_run(store, &run).await?.is_some() {
            return stored_retry_result(store, &run, &audience).await;
        }
        match &error {
            CampaignError::Store(Error::Conflict(CommitConflict::NotUnique { .. })) => {}
            CampaignError::Store(cause) if cause.kind() == StoreErrorKind::Conflict => break,
            _ => return Err(error),
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
    let stored = find_retry_run(store, run)
        .await?
        .ok_or_else(|| CampaignError::RunNotFound(retry_run_id(run).to_string()))?;
    let origin = if stored.audience_id == audience.id {
        RunOrigin::Created
    } else {
        RunOrigin::Existing
    };
    Ok(deployment_result(&stored, origin))
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
        status: CampaignRunStatus::Queued,
        control: CampaignRunControl::Active,
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
fn map_empty_audience(error: CampaignError) -> CampaignError {
    if error == CampaignError::EmptyAudience {
        CampaignError::NothingToRetry
    } else {
        error
    }
}

/// Stores an audience of the recipients whose items failed or were skipped because the run was
/// cancelled.
async fn store_undelivered(
    store: &dyn Store,
    scope: &ScopeColumns,
    run: &CampaignRunRow,
    entropy: &EntropySource,
) -> Result<StoredAudience, CampaignError> {
    let first = audience::read_audience_part(store, &run.audience_id, 0).await?;
    let part_items = u32::try_from(first.len()).unwrap_or(u32::MAX);
    let mut writer = AudienceWriter::new(store, scope.clone(), part_items, entropy);
    for number in 0..run.jobs {
        let recipients = audience::read_audience_part(store, &run.audience_id, number).await?;
        let job = row_mapping::job_id(&run.id, number);
        for recipient in
            undelivered_recipients(recipients, &row_mapping::read_job_items(store, &job).await?)?
        {
            writer.add_recipient(recipient).await?;
        }
    }
    writer.finish().await.map_err(map_empty_audience)
}

/// The recipients of a job that were not reached. A recipient without a row is a duplicate of
/// another one.
fn undelivered_recipients(
    recipients: Vec<AudienceRecipient>,
    items: &[(OutboxItemRow, u64)],
) -> Result<Vec<AudienceRecipient>, Error> {
    let mut recipients: Vec<Option<AudienceRecipient>> = recipients.into_iter().map(Some).collect();
    let is_undelivered = |row: &OutboxItemRow| match row_mapping::item_state(row) {
        ItemState::Failed => true,
        ItemState::Skipped => row.reason == Some(ItemReason::Cancelled),
        _ => false,
    };
    let mut undelivered = Vec::new();
    for (row, _) in items.iter().filter(|(row, _)| is_undelivered(row)) {
        let position = row_mapping::row_position(row, recipients.len())?;
        undelivered.extend(recipients[position].take());
    }
    Ok(undelivered)
}
