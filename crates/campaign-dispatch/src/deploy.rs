//! Deploys a campaign. The audience is stored first, where no worker reads it; then one commit
//! creates the run, its jobs and the first entry of its audit trail. A crash before the commit
//! leaves no run, and after the commit the run is complete.

use onward_base::{SharedText, Timestamp, hex};
use onward_campaign_core::{
    CampaignRunControl, CampaignRunStatus, DeliveryChannel, JobStatus, hash_parts,
};
use onward_store::tables::{CampaignRunRow, JobRow};
use onward_store::{
    ColumnCodec as _, Commit, Error, RecordReader as _, RowKey, Store, StoreErrorKind,
};
use serde_json::json;

use crate::audience::StoredAudience;
use crate::campaign_error::{CampaignError, JOBS_MAX};
use crate::entropy::EntropySource;
use crate::reached_recipients::{CampaignRunHistory, RepeatSendPolicy, UnreachedRecipients};
use crate::scope_columns::ScopeColumns;
use crate::{audit, row_mapping};

/// Maximum number of times that a deployment recomputes which recipients earlier runs reached, when
/// another run is created concurrently.
pub(crate) const DEPLOY_ATTEMPTS_MAX: usize = 20;

/// A campaign to deploy.
#[derive(Debug, Clone)]
pub struct CampaignDeployment {
    /// The id of the campaign.
    pub campaign_id: SharedText,
    /// The channel that delivers the messages.
    pub channel: DeliveryChannel,
    /// Names the content that is sent. It is part of the idempotency key: the same recipient may be
    /// sent another asset.
    pub asset: SharedText,
    /// The complete campaign document as JSON.
    pub document: SharedText,
    /// The earliest time at which items are sent. Default: at once.
    pub scheduled_for: Option<Timestamp>,
    /// Deploying again under the same key returns the same run. Default: every deployment creates a
    /// run.
    pub idempotency_key: Option<String>,
    /// How to treat recipients that earlier runs of the campaign reached.
    pub already_reached: RepeatSendPolicy,
    /// The user who deploys the campaign, for the audit trail.
    pub deployed_by: String,
}

/// The result of a deployment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeploymentResult {
    /// The id of the campaign run.
    pub run_id: SharedText,
    /// Whether the run existed before this call.
    pub already_existed: bool,
    /// Number of recipients of the run.
    pub items: u32,
    /// Number of jobs of the run.
    pub jobs: u32,
    /// Number of audience rows that were excluded because earlier runs reached their recipients.
    pub excluded: u32,
}

/// Deploys a campaign for a stored audience.
pub(crate) async fn deploy_campaign(
    store: &dyn Store,
    scope: &ScopeColumns,
    deployment: &CampaignDeployment,
    audience: &StoredAudience,
    entropy: &EntropySource,
) -> Result<DeploymentResult, CampaignError> {
    let campaign = &deployment.campaign_id;
    let id = run_id_from_key(scope, deployment).unwrap_or_else(|| entropy.random_id());
    let history = CampaignRunHistory {
        store,
        scope,
        campaign_id: campaign,
    };
    for _ in 0..DEPLOY_ATTEMPTS_MAX {
        let last = history.last_ordinal().await?;
        // Read after the last ordinal, so that the run of this deployment is never counted as an
        // earlier one.
        if let Some(existing) = read_keyed_run(store, scope, deployment).await? {
            return match_existing_run(&existing, deployment, audience);
        }
        let (commit, selected, excluded) =
            select_recipients(&history, deployment, audience, last, entropy).await?;
        let run = new_run(
            scope,
            deployment,
            (&id, last + 1),
            (audience, &selected),
            store.now().await?,
        );
        let error = match commit_run(store, commit, &run, &selected, &deployment.deployed_by).await
        {
            Ok(()) => {
                return Ok(DeploymentResult {
                    excluded,
                    ..deployment_result(&run, RunOrigin::Created)
                });
            }
            Err(CampaignError::Store(error)) => error,
            Err(error) => return Err(error),
        };
        match (read_run(store, &id).await?, error.kind()) {
            // The commit of this call succeeded, but its reply was lost.
            (Some(stored), StoreErrorKind::Unknown) if stored.audience_id == run.audience_id => {
                return Ok(DeploymentResult {
                    excluded,
                    ..deployment_result(&run, RunOrigin::Created)
                });
            }
            (Some(existing), _) => return match_existing_run(&existing, deployment, audience),
            // Another run was created or a job redriven concurrently: check again with it.
            (None, StoreErrorKind::Conflict) => {}
            (None, _) => return Err(error.into()),
        }
    }
    Err(CampaignError::ConcurrentChange(format!(
        "campaign {campaign}"
    )))
}

/// The id of the run that this idempotency key deploys, or `None` without a key.
fn run_id_from_key(
    scope: &ScopeColumns,
    CampaignDeployment {
        campaign_id: campaign,
        idempotency_key: key,
        ..
    }: &CampaignDeployment,
) -> Option<SharedText> {
    key.as_ref()
        .map(|key| derived_id(&[&scope.tenant_id, &scope.workspace_id, campaign, key]))
}

/// Reads the run of this scope that was deployed under the deployment's idempotency key. The id of
/// a run that was deployed under schema 2 is derived from another form of the workspace.
async fn read_keyed_run(
    store: &dyn Store,
    scope: &ScopeColumns,
    deployment: &CampaignDeployment,
) -> Result<Option<CampaignRunRow>, Error> {
    let scope_of_schema_2 = ScopeColumns {
        workspace_id: ScopeColumns::schema_2_workspace(&scope.workspace_id).into(),
        ..scope.clone()
    };
    for columns in [scope, &scope_of_schema_2] {
        let Some(id) = run_id_from_key(columns, deployment) else {
            return Ok(None);
        };
        let found = read_run(store, &id).await?;
        let found = found.filter(|run| scope.match_row(&run.tenant_id, &run.workspace_id));
        if found.is_some() {
            return Ok(found);
        }
    }
    Ok(None)
}

/// Finds the run that was already deployed under the deployment's idempotency key.
pub(crate) async fn find_deployed_run(
    store: &dyn Store,
    scope: &ScopeColumns,
    deployment: &CampaignDeployment,
    audience: &StoredAudience,
) -> Result<Option<DeploymentResult>, CampaignError> {
    read_keyed_run(store, scope, deployment)
        .await?
        .map(|existing| match_existing_run(&existing, deployment, audience))
        .transpose()
}

/// Selects the recipients of the audience to reach. Returns a commit that conflicts if the
/// selection is outdated, the selected audience, and the number of excluded recipients.
async fn select_recipients(
    history: &CampaignRunHistory<'_>,
    deployment: &CampaignDeployment,
    audience: &StoredAudience,
    last: u32,
    entropy: &EntropySource,
) -> Result<(Commit, StoredAudience, u32), CampaignError> {
    let policy = deployment.already_reached;
    if last == 0 || policy == RepeatSendPolicy::Resend {
        return Ok((Commit::new(), audience.clone(), 0));
    }
    let mut unreached = UnreachedRecipients::from_audience(history.store, audience).await?;
    history.remove_reached(&mut unreached, last).await?;
    if policy == RepeatSendPolicy::Refuse || unreached.is_empty() {
        unreached.refuse_if_reached(history.campaign_id)?;
    }
    let selected = unreached
        .store_audience(history.store, history.scope, audience, entropy)
        .await?;
    let excluded = audience.recipient_count() - selected.recipient_count();
    Ok((unreached.guard_commit(Commit::new()), selected, excluded))
}

/// Returns the existing run if it has the same document and audience. Fails if the key was used for
/// another deployment.
fn match_existing_run(
    existing: &CampaignRunRow,
    deployment: &CampaignDeployment,
    audience: &StoredAudience,
) -> Result<DeploymentResult, CampaignError> {
    if existing.document != deployment.document || existing.audience_digest != audience.digest {
        return Err(CampaignError::DeploymentKeyReused(existing.id.to_string()));
    }
    Ok(deployment_result(existing, RunOrigin::Existing))
}

fn new_run(
    scope: &ScopeColumns,
    deployment: &CampaignDeployment,
    (id, ordinal): (&SharedText, u32),
    (requested, selected): (&StoredAudience, &StoredAudience),
    now: Timestamp,
) -> CampaignRunRow {
    let CampaignDeployment {
        campaign_id: campaign,
        channel,
        asset,
        document,
        scheduled_for,
        ..
    } = deployment;
    let scheduled_for = scheduled_for.unwrap_or(now);
    CampaignRunRow {
        id: id.clone(),
        campaign_id: campaign.clone(),
        tenant_id: scope.tenant_id.clone(),
        workspace_id: scope.workspace_id.clone(),
        ordinal,
        channel: *channel,
        status: CampaignRunStatus::Queued,
        control: CampaignRunControl::Active,
        document: document.clone(),
        audience_id: selected.id.clone(),
        audience_digest: requested.digest.clone(),
        items: selected.recipient_count(),
        jobs: selected.part_numbers().end,
        scheduled_for,
        asset: asset.clone(),
        retry_of: None,
        wake_at: scheduled_for,
        created_at: now,
        ended_at: None,
    }
}

async fn read_run(store: &dyn Store, id: &SharedText) -> Result<Option<CampaignRunRow>, Error> {
    let found: Option<(CampaignRunRow, u64)> =
        store.read_record(RowKey(vec![id.to_value()])).await?;
    Ok(found.map(|(run, _)| run))
}

/// Adds the run, its jobs and the first entry of its audit trail to a commit and stores them
/// atomically.
pub(crate) async fn commit_run(
    store: &dyn Store,
    mut commit: Commit,
    run: &CampaignRunRow,
    audience: &StoredAudience,
    operator: &str,
) -> Result<(), CampaignError> {
    if audience.part_sizes.len() > JOBS_MAX {
        return Err(CampaignError::TooManyJobs(audience.part_sizes.len()));
    }
    commit = commit.insert(run);
    for (number, items) in (0..).zip(&audience.part_sizes) {
        commit = commit.insert(&new_job(run, number, *items));
    }
    let detail = json!({ "by": operator, "items": run.items, "jobs": run.jobs, "retryOf": run.retry_of.as_deref() });
    commit = audit::append_entry(commit, run, "run.deployed", &detail, run.created_at);
    store.commit(commit).await?;
    Ok(())
}

/// Whether a call created a campaign run or found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunOrigin {
    /// This call created the run.
    Created,
    /// An earlier or concurrent call created the run.
    Existing,
}

pub(crate) fn deployment_result(run: &CampaignRunRow, origin: RunOrigin) -> DeploymentResult {
    DeploymentResult {
        run_id: run.id.clone(),
        already_existed: origin == RunOrigin::Existing,
        items: run.items,
        jobs: run.jobs,
        excluded: 0,
    }
}

fn new_job(run: &CampaignRunRow, number: u32, items: u32) -> JobRow {
    JobRow {
        id: row_mapping::job_id(&run.id, number),
        run_id: run.id.clone(),
        tenant_id: run.tenant_id.clone(),
        workspace_id: run.workspace_id.clone(),
        job_type: run.channel.job_type(),
        status: JobStatus::Queued,
        attempts: 0,
        run_after: run.scheduled_for,
        locked_until: None,
        lock_token: None,
        lock_epoch: 0,
        number,
        items,
        sent: 0,
        failed: 0,
        skipped: 0,
        in_doubt: 0,
        in_doubt_since: Timestamp::MAX,
        error: None,
        created_at: run.created_at,
    }
}

/// The id that is derived from these parts: a UUID of version 8 from their hash.
pub(crate) fn derived_id(parts: &[&str]) -> SharedText {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash_parts(parts)[..16]);
    format_uuid(bytes, 8)
}

pub(crate) fn format_uuid(mut bytes: [u8; 16], version: u8) -> SharedText {
    bytes[6] = version << 4 | bytes[6] & 0x0f;
    bytes[8] = 0x80 | bytes[8] & 0x3f;
    let digits = hex::encode_hex(&bytes);
    format!(
        "{}-{}-{}-{}-{}",
        &digits[..8],
        &digits[8..12],
        &digits[12..16],
        &digits[16..20],
        &digits[20..]
    )
    .into()
}
