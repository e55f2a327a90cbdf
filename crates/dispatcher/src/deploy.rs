//! Deploying a campaign: its audience is stored before, where nobody looks for it; then one commit makes the run, its jobs and
//! the first entry of its audit trail. Until then there is nothing, and after that there is everything.

use onward_dispatch::{Channel, Control, JobStatus, RunStatus, digest};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{CampaignRun, Job};
use onward_store::{Commit, Error, Field as _, Key, Kind, Records as _, Store};
use serde_json::json;

use crate::audience::Audience;
use crate::campaigns::{JOBS_MAX, Refused, Scope};
use crate::entropy::Entropy;
use crate::reached::{Reached, Runs, Unreached};
use crate::{audit, rows};

/// How often it is looked again whom earlier runs have reached, when another run is made at the same moment.
pub(crate) const TRIES: usize = 20;

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
    /// What is to happen with those whom earlier runs of the campaign have reached.
    pub reached: Reached,
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
    /// Rows of the audience that it was made without, because earlier runs have reached those people.
    pub left_out: u32,
}

/// Deploys a campaign for an audience that is stored.
pub(crate) async fn deploy(
    store: &dyn Store,
    scope: &Scope,
    deployment: &Deployment,
    audience: &Audience,
    entropy: &Entropy,
) -> Result<Deployed, Refused> {
    let campaign = &deployment.campaign;
    let id = id_by_key(scope, deployment).unwrap_or_else(|| entropy.id());
    let runs = Runs { store, scope, campaign };
    for _ in 0..TRIES {
        let last = runs.last().await?;
        // Looked for after that: whatever is looked at from here on, this run is not taken for an earlier one.
        if let Some(existing) = stored(store, &id).await? {
            return same(&existing, deployment, audience);
        }
        let (commit, chosen, left_out) = choose(&runs, deployment, audience, last, entropy).await?;
        let run = new_run(scope, deployment, (&id, last + 1), (audience, &chosen), store.now().await?);
        let error = match launch(store, commit, &run, &chosen, &deployment.by).await {
            Ok(()) => return Ok(Deployed { left_out, ..deployed(&run, false) }),
            Err(Refused::Store(error)) => error,
            Err(refused) => return Err(refused),
        };
        match (stored(store, &id).await?, error.kind()) {
            // The answer to our own commit was lost.
            (Some(made), Kind::Unknown) if made.audience_id == run.audience_id => {
                return Ok(Deployed { left_out, ..deployed(&run, false) });
            }
            (Some(existing), _) => return same(&existing, deployment, audience),
            // Another run was made at the same moment, or a job redriven: it is to be looked at as well.
            (None, Kind::Conflict) => {}
            (None, _) => return Err(error.into()),
        }
    }
    Err(Refused::AtWork(format!("the campaign {campaign}")))
}

/// The id of the run that a key deploys.
fn id_by_key(scope: &Scope, Deployment { campaign, key, .. }: &Deployment) -> Option<Text> {
    key.as_ref().map(|key| derived_id(&[&scope.tenant, &scope.workspace, campaign, key]))
}

/// What the key of a deployment has deployed, if anything.
pub(crate) async fn before(
    store: &dyn Store,
    scope: &Scope,
    deployment: &Deployment,
    audience: &Audience,
) -> Result<Option<Deployed>, Refused> {
    let Some(id) = id_by_key(scope, deployment) else { return Ok(None) };
    let existing = stored(store, &id).await?;
    existing.map(|existing| same(&existing, deployment, audience)).transpose()
}

/// Whom of the audience to reach, and how many not; with a commit that is refused if that does not hold any more.
async fn choose(
    runs: &Runs<'_>,
    deployment: &Deployment,
    audience: &Audience,
    last: u32,
    entropy: &Entropy,
) -> Result<(Commit, Audience, u32), Refused> {
    let Deployment { reached, .. } = deployment;
    if last == 0 || *reached == Reached::Again {
        return Ok((Commit::new(), audience.clone(), 0));
    }
    let mut unreached = Unreached::of_audience(runs.store, audience).await?;
    runs.take_reached(&mut unreached, last).await?;
    if *reached == Reached::Refuse || unreached.is_empty() {
        unreached.refuse(runs.campaign)?;
    }
    let chosen = unreached.gather(runs.store, runs.scope, audience, entropy).await?;
    let left_out = audience.items() - chosen.items();
    Ok((unreached.guard(Commit::new()), chosen, left_out))
}

/// A run that is there already, if it is of the same campaign and for the same people.
fn same(existing: &CampaignRun, deployment: &Deployment, audience: &Audience) -> Result<Deployed, Refused> {
    if existing.document != deployment.document || existing.audience_digest != audience.digest {
        return Err(Refused::KeyTaken(existing.id.to_string()));
    }
    Ok(deployed(existing, true))
}

fn new_run(
    scope: &Scope,
    deployment: &Deployment,
    (id, ordinal): (&Text, u32),
    (given, chosen): (&Audience, &Audience),
    now: Timestamp,
) -> CampaignRun {
    let Deployment { campaign, channel, asset, document, scheduled_for, .. } = deployment;
    let scheduled_for = scheduled_for.unwrap_or(now);
    CampaignRun {
        id: id.clone(),
        campaign_id: campaign.clone(),
        tenant_id: scope.tenant.clone(),
        workspace_id: scope.workspace.clone(),
        ordinal,
        channel: channel.as_str().into(),
        status: RunStatus::Queued.as_str().into(),
        control: Control::Active.as_str().into(),
        document: document.clone(),
        audience_id: chosen.id.clone(),
        audience_digest: given.digest.clone(),
        items: chosen.items(),
        jobs: chosen.numbers().end,
        scheduled_for,
        asset: asset.clone(),
        retry_of: None,
        wake_at: scheduled_for,
        created_at: now,
        ended_at: None,
    }
}

async fn stored(store: &dyn Store, id: &Text) -> Result<Option<CampaignRun>, Error> {
    let found: Option<(CampaignRun, u64)> = store.get(Key(vec![id.to_value()])).await?;
    Ok(found.map(|(run, _)| run))
}

/// Adds the run, its jobs and the first entry of its audit trail to a commit, and stores all of it or nothing.
pub(crate) async fn launch(
    store: &dyn Store,
    mut commit: Commit,
    run: &CampaignRun,
    audience: &Audience,
    by: &str,
) -> Result<(), Refused> {
    if audience.parts.len() > JOBS_MAX {
        return Err(Refused::TooManyJobs(audience.parts.len()));
    }
    commit = commit.insert(run);
    for (number, items) in (0..).zip(&audience.parts) {
        commit = commit.insert(&job(run, number, *items));
    }
    let detail = json!({ "by": by, "items": run.items, "jobs": run.jobs, "retryOf": run.retry_of.as_deref() });
    commit = audit::entry(commit, run, "run.deployed", &detail, run.created_at);
    store.commit(commit).await?;
    Ok(())
}

pub(crate) fn deployed(run: &CampaignRun, existed: bool) -> Deployed {
    Deployed { run: run.id.clone(), existed, items: run.items, jobs: run.jobs, left_out: 0 }
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
