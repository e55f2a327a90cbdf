//! Deploying a campaign: its audience is stored before, where nobody looks for it; then one commit makes the run, its jobs and
//! the first entry of its audit trail. Until then there is nothing, and after that there is everything.

use onward_dispatch::{Channel, Control, JobStatus, RunStatus, digest};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{CampaignRun, Job};
use onward_store::{Commit, Conflict, Error, Field as _, Key, Records as _, Store};
use serde_json::json;

use crate::audience::Audience;
use crate::campaigns::{JOBS_MAX, Refused, Scope};
use crate::entropy::Entropy;
use crate::{audit, rows};

/// A campaign to deploy.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The campaign.
    pub campaign: Text,
    /// By which channel.
    pub channel: Channel,
    /// What is sent, for keys: the same recipient may be sent something else.
    pub asset: Text,
    /// All there is to know of it, as JSON.
    pub document: Text,
    /// Not before; at once unless told.
    pub scheduled_for: Option<Timestamp>,
    /// Deploying again under the same key returns the same run.
    pub key: Option<String>,
    /// Who deploys it, for the record.
    pub by: String,
}

/// What a deployment came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployed {
    /// The campaign run.
    pub run: Text,
    /// Whether the key had deployed it before.
    pub existed: bool,
    /// Those whom it is to reach.
    pub items: u32,
    /// In so many jobs.
    pub jobs: u32,
}

/// Deploys a campaign for an audience that is stored.
pub(crate) async fn deploy(
    store: &dyn Store,
    scope: &Scope,
    deployment: &Deployment,
    audience: &Audience,
    entropy: &Entropy,
) -> Result<Deployed, Refused> {
    let Deployment { campaign, channel, asset, document, scheduled_for, key, by } = deployment;
    let (tenant_id, workspace_id) = (scope.tenant.clone(), scope.workspace.clone());
    let id = match key {
        Some(key) => derived_id(&[&tenant_id, &workspace_id, campaign, key]),
        None => entropy.id(),
    };
    let now = store.now().await?;
    let scheduled_for = scheduled_for.unwrap_or(now);
    let run = CampaignRun {
        id,
        campaign_id: campaign.clone(),
        tenant_id,
        workspace_id,
        channel: channel.as_str().into(),
        status: RunStatus::Queued.as_str().into(),
        control: Control::Active.as_str().into(),
        document: document.clone(),
        audience_id: audience.id.clone(),
        items: audience.items(),
        jobs: u32::try_from(audience.parts.len()).unwrap_or(u32::MAX),
        scheduled_for,
        asset: asset.clone(),
        retry_of: None,
        wake_at: scheduled_for,
        created_at: now,
        ended_at: None,
    };
    launch(store, Commit::new(), &run, audience, by).await
}

/// Adds the run, its jobs and the first entry of its audit trail to a commit, and stores all of it or nothing. A run that is
/// there already is returned as it is, if it is of the same campaign and as many people.
pub(crate) async fn launch(
    store: &dyn Store,
    mut commit: Commit,
    run: &CampaignRun,
    audience: &Audience,
    by: &str,
) -> Result<Deployed, Refused> {
    if audience.parts.len() > JOBS_MAX {
        return Err(Refused::TooManyJobs(audience.parts.len()));
    }
    commit = commit.insert(run);
    for (number, items) in (0..).zip(&audience.parts) {
        commit = commit.insert(&job(run, number, *items));
    }
    let detail = json!({ "by": by, "items": run.items, "jobs": run.jobs, "retryOf": run.retry_of.as_deref() });
    commit = audit::entry(commit, run, "run.deployed", &detail, run.created_at);
    let error = match store.commit(commit).await {
        Ok(_) => return Ok(deployed(run, false)),
        Err(error) => error,
    };
    if !matches!(error, Error::Conflict(Conflict::RowExists { .. })) {
        return Err(error.into());
    }
    let existing: Option<(CampaignRun, u64)> = store.get(Key(vec![run.id.to_value()])).await?;
    let (existing, _) = existing.ok_or_else(|| Refused::NoRun(run.id.to_string()))?;
    if existing.document != run.document || existing.items != run.items {
        return Err(Refused::KeyTaken(existing.id.to_string()));
    }
    Ok(deployed(&existing, true))
}

pub(crate) fn deployed(run: &CampaignRun, existed: bool) -> Deployed {
    Deployed { run: run.id.clone(), existed, items: run.items, jobs: run.jobs }
}

fn job(run: &CampaignRun, number: u32, items: u32) -> Job {
    Job {
        id: rows::job_id(&run.id, number),
        run_id: run.id.clone(),
        tenant_id: run.tenant_id.clone(),
        workspace_id: run.workspace_id.clone(),
        job_type: rows::channel(run).job_type().into(),
        status: JobStatus::Queued.as_str().into(),
        attempts: 0,
        run_after: run.scheduled_for,
        locked_until: None,
        lock_token: None,
        lock_epoch: 0,
        number,
        items,
        served: 0,
        failed: 0,
        skipped: 0,
        in_doubt: 0,
        doubt_since: Timestamp::MAX,
        error: None,
        created_at: run.created_at,
    }
}

/// The id that these parts make.
pub(crate) fn derived_id(parts: &[&str]) -> Text {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest(parts)[..16]);
    uuid(bytes, 8)
}

pub(crate) fn uuid(mut bytes: [u8; 16], version: u8) -> Text {
    bytes[6] = version << 4 | bytes[6] & 0x0f;
    bytes[8] = 0x80 | bytes[8] & 0x3f;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]).into()
}
