//! Deploying a campaign: its audience is stored part by part, where nobody looks for it; then one commit makes the run, its
//! jobs and the first entry of its audit trail. Until then there is nothing, and after that there is everything.

use onward_dispatch::{Channel, Control, JobStatus, RunStatus, digest};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{AudiencePart, CampaignRun, Job};
use onward_store::{Commit, Conflict, Error, Field as _, Key, Records as _, Store};
use serde_json::json;

use crate::audience::{self, Recipient};
use crate::audit;
use crate::campaigns::{Refused, Scope};
use crate::entropy::Entropy;

/// Recipients of a job, at most: an item's id has four digits for its position.
const JOB_ITEMS_MAX: u32 = 1_000;

/// A campaign to deploy.
#[derive(Debug, Clone)]
pub struct Deployment {
    /// The campaign.
    pub campaign: Text,
    /// By which channel.
    pub channel: Channel,
    /// All there is to know of it, as JSON.
    pub document: Text,
    /// Not before; at once unless told.
    pub scheduled_for: Option<Timestamp>,
    /// Recipients of a job.
    pub job_items: u32,
    /// Deploying again under the same key returns the same run.
    pub key: Option<String>,
    /// The run whose unserved recipients it is to reach.
    pub retry_of: Option<Text>,
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

/// A campaign that is being deployed.
pub struct Deploying<'a> {
    store: &'a dyn Store,
    scope: Scope,
    deployment: Deployment,
    audience: Text,
    /// Recipients that do not fill a part yet.
    rest: Vec<Recipient>,
    /// How many recipients each part has.
    parts: Vec<u32>,
    entropy: Entropy,
}

impl<'a> Deploying<'a> {
    /// Begins. Nothing is to be seen of it before the end.
    pub fn begin(store: &'a dyn Store, scope: Scope, mut deployment: Deployment, entropy: Entropy) -> Self {
        deployment.job_items = deployment.job_items.clamp(1, JOB_ITEMS_MAX);
        let audience = entropy.id();
        Self { store, scope, deployment, audience, rest: Vec::new(), parts: Vec::new(), entropy }
    }

    /// Adds somebody to reach.
    pub async fn add(&mut self, recipient: Recipient) -> Result<(), Refused> {
        self.rest.push(recipient);
        if self.rest.len() == self.deployment.job_items as usize { self.store_part().await } else { Ok(()) }
    }

    async fn store_part(&mut self) -> Result<(), Refused> {
        let now = self.store.now().await?;
        let number = u32::try_from(self.parts.len()).unwrap_or(u32::MAX);
        let recipients = audience::encode(&self.rest)?.into();
        let part = AudiencePart { audience_id: self.audience.clone(), number, recipients, created_at: now };
        // Whoever hears nothing of the first time finds it there.
        self.store.commit(Commit::new().insert_or_keep(&part)).await?;
        self.parts.push(u32::try_from(self.rest.len()).unwrap_or(u32::MAX));
        self.rest.clear();
        Ok(())
    }

    /// Makes the run, its jobs and the first entry of its audit trail, all of it or nothing.
    pub async fn finish(mut self) -> Result<Deployed, Refused> {
        if !self.rest.is_empty() {
            self.store_part().await?;
        }
        if self.parts.is_empty() {
            return Err(Refused::NobodyToReach);
        }
        let now = self.store.now().await?;
        let run = self.run(now);
        let mut commit = Commit::new().insert(&run);
        for (number, items) in (0..).zip(&self.parts) {
            commit = commit.insert(&job(&run, number, *items, now));
        }
        let detail = json!({
            "by": self.deployment.by, "items": run.items, "jobs": run.jobs, "retryOf": run.retry_of.as_deref(),
        });
        commit = audit::entry(commit, &run, "run.deployed", &detail, now);
        let deployed =
            |run: &CampaignRun, existed| Deployed { run: run.id.clone(), existed, items: run.items, jobs: run.jobs };
        match self.store.commit(commit).await {
            Ok(_) => Ok(deployed(&run, false)),
            Err(Error::Conflict(Conflict::RowExists { .. })) if self.deployment.key.is_some() => {
                let existing: Option<(CampaignRun, u64)> = self.store.get(Key(vec![run.id.to_value()])).await?;
                let (existing, _) = existing.ok_or_else(|| Refused::NoRun(run.id.to_string()))?;
                if existing.document != run.document {
                    return Err(Refused::KeyTaken(existing.id.to_string()));
                }
                Ok(deployed(&existing, true))
            }
            Err(error) => Err(error.into()),
        }
    }

    fn run(&self, now: Timestamp) -> CampaignRun {
        let Deployment { campaign, channel, document, scheduled_for, key, retry_of, .. } = &self.deployment;
        let (tenant_id, workspace_id) = (self.scope.tenant.clone(), self.scope.workspace.clone());
        let id = match key {
            Some(key) => derived_id(&[&tenant_id, &workspace_id, campaign, key]),
            None => self.entropy.id(),
        };
        let scheduled_for = scheduled_for.unwrap_or(now);
        CampaignRun {
            id,
            campaign_id: campaign.clone(),
            tenant_id,
            workspace_id,
            channel: channel.as_str().into(),
            status: RunStatus::Queued.as_str().into(),
            control: Control::Active.as_str().into(),
            document: document.clone(),
            audience_id: self.audience.clone(),
            items: self.parts.iter().sum(),
            jobs: u32::try_from(self.parts.len()).unwrap_or(u32::MAX),
            scheduled_for,
            retry_of: retry_of.clone(),
            wake_at: scheduled_for,
            created_at: now,
            ended_at: None,
        }
    }
}

fn job(run: &CampaignRun, number: u32, items: u32, now: Timestamp) -> Job {
    Job {
        id: format!("{}.{number:06}", run.id).into(),
        run_id: run.id.clone(),
        tenant_id: run.tenant_id.clone(),
        workspace_id: run.workspace_id.clone(),
        job_type: crate::rows::channel(run).job_type().into(),
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
        created_at: now,
    }
}

/// The id that these parts make.
fn derived_id(parts: &[&str]) -> Text {
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
