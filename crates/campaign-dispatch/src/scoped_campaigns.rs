//! What people can ask of campaign runs.

use std::sync::Arc;

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    AudienceRecipient, CampaignRunControl, CampaignRunTransition, ItemChange, ItemCounts,
    ItemReason, ItemTransition, JobStatus, JobTransition,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{
    ColumnCodec as _, Commit, Error, RecordReader as _, RowKey, Store, StoreErrorKind, TableScan,
};
use serde_json::json;

use crate::audience::{self, AudienceWriter, StoredAudience};
use crate::deploy::{self, CampaignDeployment, DeploymentResult};
use crate::entropy::EntropySource;
use crate::reached_recipients::{CampaignRunHistory, UnreachedRecipients};
use crate::resolution::{self, OperatorDecision, Resolution, ResolvedItem};
use crate::{audit, listing, retry, row_mapping, run_completion};

/// Jobs of a campaign: they are made together.
pub(crate) const JOBS_MAX: usize = 99_000;

/// Characters of an id that are enough to look for it.
const RUN_ID_PREFIX_MIN: usize = 4;

/// Whose campaigns are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignScope {
    /// The tenant.
    pub tenant: SharedText,
    /// The workspace.
    pub workspace: SharedText,
}

impl CampaignScope {
    /// Whether something of these is meant.
    pub fn contains_workspace(&self, tenant: &SharedText, workspace: &SharedText) -> bool {
        self.tenant == *tenant && self.workspace == *workspace
    }
}

/// Why something could not be done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CampaignError {
    /// There is no such campaign run.
    #[error("there is no campaign run {0}")]
    RunNotFound(String),
    /// Several campaign runs begin so.
    #[error("several campaign runs begin with {0}: give more of the id")]
    AmbiguousRunId(String),
    /// The beginning of an id that could be that of many.
    #[error("{0} is too short: give the first four characters of the id, or more")]
    RunIdTooShort(String),
    /// There is no such item.
    #[error("there is no item {0} in the outbox")]
    ItemNotFound(String),
    /// There is no such job.
    #[error("there is no job {0}")]
    JobNotFound(String),
    /// The item is not in doubt.
    #[error("{0} is not in doubt")]
    ItemNotInDoubt(String),
    /// The job is not dead.
    #[error("job {0} is not dead, and does not wait: it is worked on, or done")]
    JobNotRedrivable(String),
    /// Somebody works on the job.
    #[error("{0} is being worked on: ask again in a moment")]
    ConcurrentChange(String),
    /// A worker has the job, or had it and was not heard of again.
    #[error(
        "job {0} is held until {1}: its worker may be calling the provider, or was killed; ask again then"
    )]
    JobLocked(String, Timestamp),
    /// There is no such audience.
    #[error("there is no audience {0}")]
    AudienceNotFound(String),
    /// The audience was stored too long ago.
    #[error("the audience {0} was stored more than six days ago: store it again")]
    AudienceExpired(String),
    /// A part of an audience is missing.
    #[error("the audience {0} has no part {1}, and has others after it")]
    AudiencePartMissing(String, usize),
    /// A part of an audience has nobody, or too many.
    #[error("a part of an audience has 1 to 1000 recipients, and not {0}")]
    AudiencePartSize(u32),
    /// Another part of an audience is there.
    #[error("the audience {0} has another part {1}")]
    AudiencePartConflict(String, u32),
    /// The campaign run is not over.
    #[error("the campaign run {0} is not over: cancel it, or settle what is in doubt")]
    RunNotFinished(String),
    /// The campaign run is not over because only somebody can say what became of some items.
    #[error(
        "the campaign run {0} is not over: nobody knows what became of {1} (onward outbox in-doubt); say it, and try again"
    )]
    RunInDoubt(String, u64),
    /// Another run has taken over from the campaign run.
    #[error("those whom the campaign run {0} did not reach are for a later run to reach: {1}")]
    AlreadyRetried(String, String),
    /// The campaign run is over, or cancelled.
    #[error("the campaign run {0} is over")]
    RunFinished(String),
    /// The campaign run is cancelled.
    #[error(
        "the campaign run {0} is cancelled: say of what is in doubt that it was sent or has failed; `onward campaign retry` then reaches those who were not reached"
    )]
    RunCancelled(String),
    /// An audience without anybody.
    #[error("there is nobody to reach")]
    EmptyAudience,
    /// Everybody has what a run was to bring them.
    #[error("everybody was reached: there is nobody to try again for")]
    NothingToRetry,
    /// Earlier runs of the campaign have reached some of the audience, or are to.
    #[error(
        "{reached} of {of} were reached by earlier runs of `{campaign}`, or are to be (the last is {last})"
    )]
    AlreadyReached {
        /// The campaign.
        campaign: String,
        /// How many.
        reached: usize,
        /// Of how many.
        of: usize,
        /// The last of those runs.
        last: String,
    },
    /// More jobs than can be made together.
    #[error("a campaign has at most {JOBS_MAX} jobs, and not {0}: put more recipients into each")]
    TooManyJobs(usize),
    /// The key has deployed something else.
    #[error("the key has deployed another campaign, or the same for other people: {0}")]
    DeploymentKeyReused(String),
    /// The store.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Access to the campaign runs of a scope.
#[derive(Clone)]
pub struct ScopedCampaigns {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) scope: CampaignScope,
}

/// Jobs under way that are counted, at most.
const LOCKED_JOBS_COUNT_MAX: usize = 1_000;

/// How a campaign run goes on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunActivity {
    /// Workers have so many of its jobs. The first is taken over then, unless its worker is heard of: a worker that was killed
    /// is not told apart from one that is at work.
    InProgress {
        /// How many.
        jobs: u64,
        /// Until when.
        lease_until: Timestamp,
    },
    /// Nothing is done until then, and why.
    WaitingUntil(Timestamp, Option<SharedText>),
}

impl ScopedCampaigns {
    /// The campaign runs of a scope.
    pub fn new(store: Arc<dyn Store>, scope: CampaignScope) -> Self {
        Self { store, scope }
    }

    /// Whose they are.
    pub const fn scope(&self) -> &CampaignScope {
        &self.scope
    }

    /// A campaign run.
    pub async fn read_run(&self, id: &str) -> Result<CampaignRunRow, CampaignError> {
        Ok(self.read_run_row(id).await?.0)
    }

    /// A campaign run by its id, or by the beginning of it if that is enough to tell it from others.
    pub async fn find_run(&self, beginning: &str) -> Result<CampaignRunRow, CampaignError> {
        match self.read_run(beginning).await {
            Err(CampaignError::RunNotFound(_)) if beginning.len() >= RUN_ID_PREFIX_MIN => {}
            Err(CampaignError::RunNotFound(_)) => {
                return Err(CampaignError::RunIdTooShort(beginning.to_owned()));
            }
            found => return found,
        }
        let mut scan = TableScan::all_rows::<CampaignRunRow>()
            .where_at_most(&SharedText::from(format!("{beginning}~")));
        scan.after = Some(vec![SharedText::from(beginning).to_value()]);
        let is_ours = |run: &CampaignRunRow| {
            self.scope
                .contains_workspace(&run.tenant_id, &run.workspace_id)
        };
        let mut found = listing::scan_filtered(&*self.store, scan, is_ours, 2).await?;
        if found.len() > 1 {
            return Err(CampaignError::AmbiguousRunId(beginning.to_owned()));
        }
        found
            .pop()
            .ok_or_else(|| CampaignError::RunNotFound(beginning.to_owned()))
    }

    async fn read_run_row(&self, id: &str) -> Result<(CampaignRunRow, u64), CampaignError> {
        let run: Option<(CampaignRunRow, u64)> = self
            .store
            .read_record(RowKey(vec![SharedText::from(id).to_value()]))
            .await?;
        let is_ours = |(run, _): &(CampaignRunRow, u64)| {
            self.scope
                .contains_workspace(&run.tenant_id, &run.workspace_id)
        };
        run.filter(is_ours)
            .ok_or_else(|| CampaignError::RunNotFound(id.to_owned()))
    }

    /// How the items of a campaign run stand.
    pub async fn count_run_items(&self, id: &str) -> Result<ItemCounts, CampaignError> {
        let run = self.read_run(id).await?;
        Ok(run_completion::count_run_items(&*self.store, &run.id).await?)
    }

    /// Says what became of an item in doubt: who, and why.
    pub async fn resolve_item(
        &self,
        item: &str,
        verdict: &Resolution,
        by: &str,
        why: &str,
    ) -> Result<OutboxItemRow, CampaignError> {
        let settled = self
            .resolve_items(&[item.to_owned()], verdict, by, why)
            .await?;
        settled.into_iter().next().map_or_else(
            || Err(CampaignError::ItemNotFound(item.to_owned())),
            |(_, outcome)| outcome,
        )
    }

    /// Says the same of many items in doubt. Those of one job are settled together, or not at all.
    pub async fn resolve_items(
        &self,
        items: &[String],
        verdict: &Resolution,
        by: &str,
        why: &str,
    ) -> Result<Vec<ResolvedItem>, CampaignError> {
        resolution::resolve_items(
            &*self.store,
            &self.scope,
            items,
            OperatorDecision {
                resolution: verdict,
                decided_by: by,
                reason: why,
            },
        )
        .await
    }

    /// Begins nothing more until it is resumed. What is under way is settled.
    pub async fn pause_run(&self, id: &str, by: &str) -> Result<CampaignRunRow, CampaignError> {
        self.set_control(id, CampaignRunControl::Paused, by).await
    }

    /// Goes on.
    pub async fn resume_run(&self, id: &str, by: &str) -> Result<CampaignRunRow, CampaignError> {
        self.set_control(id, CampaignRunControl::Active, by).await
    }

    /// Begins nothing more, ever: whoever was not reached by then is skipped.
    pub async fn cancel_run(&self, id: &str, by: &str) -> Result<CampaignRunRow, CampaignError> {
        self.set_control(id, CampaignRunControl::Cancelled, by)
            .await
    }

    async fn set_control(
        &self,
        id: &str,
        wanted: CampaignRunControl,
        by: &str,
    ) -> Result<CampaignRunRow, CampaignError> {
        loop {
            let (mut run, version) = self.read_run_row(id).await?;
            let control =
                CampaignRunControl::parse(&run.control).unwrap_or(CampaignRunControl::Active);
            if row_mapping::run_status(&run).is_terminal() {
                return Err(CampaignError::RunFinished(id.to_owned()));
            }
            if control == wanted {
                return Ok(run);
            }
            let Some(next) = control.transition_to(wanted) else {
                return Err(CampaignError::RunCancelled(id.to_owned()));
            };
            let now = self.store.now().await?;
            run.control = next.as_str().into();
            run.wake_at = match next {
                CampaignRunControl::Active => run.scheduled_for,
                CampaignRunControl::Paused => Timestamp::MAX,
                CampaignRunControl::Cancelled => now,
            };
            let event = match next {
                CampaignRunControl::Active => "run.resumed",
                CampaignRunControl::Paused => "run.paused",
                CampaignRunControl::Cancelled => "run.cancelled",
            };
            let commit = Commit::new().update(&run, version);
            let commit = audit::append_entry(commit, &run, event, &json!({ "by": by }), now);
            match self.store.commit(commit).await {
                Ok(_) => return Ok(run),
                Err(error) if error.kind() == StoreErrorKind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Tries a campaign run again that is over: another run reaches those whom it did not.
    pub async fn retry_run(
        &self,
        id: &str,
        by: &str,
        entropy: &EntropySource,
    ) -> Result<DeploymentResult, CampaignError> {
        let run = self.read_run_row(id).await?;
        retry::retry_run(&*self.store, &self.scope, run, by, entropy).await
    }

    /// The run that tries another again.
    pub async fn find_retry_run(
        &self,
        run: &CampaignRunRow,
    ) -> Result<Option<CampaignRunRow>, CampaignError> {
        Ok(retry::find_retry_run(&*self.store, run).await?)
    }

    /// What the key of a deployment has deployed, if anything.
    pub async fn find_deployed_run(
        &self,
        deployment: &CampaignDeployment,
        audience: &StoredAudience,
    ) -> Result<Option<DeploymentResult>, CampaignError> {
        deploy::find_deployed_run(&*self.store, &self.scope, deployment, audience).await
    }

    /// Deploys a campaign for an audience that is stored.
    pub async fn deploy_campaign(
        &self,
        deployment: &CampaignDeployment,
        audience: &StoredAudience,
        entropy: &EntropySource,
    ) -> Result<DeploymentResult, CampaignError> {
        deploy::deploy_campaign(&*self.store, &self.scope, deployment, audience, entropy).await
    }

    /// Begins to store an audience, in parts of so many.
    pub fn begin_audience(&self, part_items: u32, entropy: &EntropySource) -> AudienceWriter<'_> {
        AudienceWriter::new(&*self.store, self.scope.clone(), part_items, entropy)
    }

    /// Stores a part of an audience. Storing it again does nothing.
    pub async fn put_audience_part(
        &self,
        audience: &str,
        number: u32,
        recipients: &[AudienceRecipient],
    ) -> Result<(), CampaignError> {
        let id = audience::scoped_audience_id(&self.scope, audience);
        audience::put_audience_part(&*self.store, &self.scope, (&id, number), recipients)
            .await
            .map(drop)
    }

    /// An audience that is stored.
    pub async fn read_audience(&self, id: &str) -> Result<StoredAudience, CampaignError> {
        StoredAudience::read_stored(&*self.store, &self.scope, id).await
    }

    /// What is done for a campaign run now, or until when nothing is.
    pub async fn run_activity(
        &self,
        run: &CampaignRunRow,
    ) -> Result<Option<RunActivity>, CampaignError> {
        if row_mapping::run_status(run).is_terminal() {
            return Ok(None);
        }
        let jobs = |status: JobStatus| {
            TableScan::by_index::<JobRow>(JobRow::BY_TURN)
                .where_equal(&run.id)
                .where_equal(&SharedText::from(status.as_str()))
        };
        let first = async |status: JobStatus| -> Result<Option<JobRow>, CampaignError> {
            let found: Vec<(JobRow, u64)> =
                self.store.list_records(jobs(status).with_limit(1)).await?;
            Ok(found.into_iter().next().map(|(job, _)| job))
        };
        if let Some(job) = first(JobStatus::Locked).await? {
            let jobs = self
                .store
                .count_rows(jobs(JobStatus::Locked).with_limit(LOCKED_JOBS_COUNT_MAX))
                .await?
                .max(1);
            return Ok(Some(RunActivity::InProgress {
                jobs,
                lease_until: job.run_after,
            }));
        }
        let now = self.store.now().await?;
        let is_later = |at: Timestamp| now < at && at < Timestamp::MAX;
        if CampaignRunControl::parse(&run.control) != Some(CampaignRunControl::Active) {
            return Ok(None);
        }
        if run.scheduled_for > now {
            return Ok(Some(RunActivity::WaitingUntil(run.scheduled_for, None))
                .filter(|_| is_later(run.scheduled_for)));
        }
        let waiting = [
            first(JobStatus::Queued).await?,
            first(JobStatus::Failed).await?,
        ];
        let next = waiting
            .into_iter()
            .flatten()
            .min_by_key(|job| job.run_after);
        Ok(next
            .filter(|job| is_later(job.run_after))
            .map(|job| RunActivity::WaitingUntil(job.run_after, job.error)))
    }

    /// Does not wait any longer with a job that waits.
    async fn expedite_job(
        &self,
        (mut job, version): (JobRow, u64),
        by: &str,
    ) -> Result<JobRow, CampaignError> {
        let now = self.store.now().await?;
        let waits = matches!(
            row_mapping::job_status(&job),
            JobStatus::Queued | JobStatus::Failed
        ) && job.run_after > now;
        if !waits {
            return Err(CampaignError::JobNotRedrivable(job.id.to_string()));
        }
        let run = self.read_run(&job.run_id).await?;
        job.run_after = now;
        let detail = json!({ "job": &*job.id, "items": 0, "by": by });
        let commit = audit::append_entry(
            Commit::new().update(&job, version),
            &run,
            "job.redriven",
            &detail,
            now,
        );
        self.commit_job_change(commit, job).await
    }

    /// Stores what becomes of a job, unless somebody else has changed it meanwhile.
    async fn commit_job_change(
        &self,
        commit: Commit,
        job: JobRow,
    ) -> Result<JobRow, CampaignError> {
        match self.store.commit(commit).await {
            Err(error) if error.kind() == StoreErrorKind::Conflict => {
                Err(CampaignError::ConcurrentChange(job.id.to_string()))
            }
            stored => stored.map(|_| job).map_err(CampaignError::from),
        }
    }

    /// Tries a dead job again: those of its items that nobody tried any more. One that waits is tried now.
    pub async fn redrive_job(&self, job: &str, by: &str) -> Result<JobRow, CampaignError> {
        let found: Option<(JobRow, u64)> = self
            .store
            .read_record(RowKey(vec![SharedText::from(job).to_value()]))
            .await?;
        let is_ours = |(job, _): &(JobRow, u64)| {
            self.scope
                .contains_workspace(&job.tenant_id, &job.workspace_id)
        };
        let Some((mut job, version)) = found.filter(is_ours) else {
            return Err(CampaignError::JobNotFound(job.to_owned()));
        };
        let Some(status) = row_mapping::job_status(&job).next_status(JobTransition::Redrive) else {
            return self.expedite_job((job, version), by).await;
        };
        let (mut run, run_version) = self.read_run_row(&job.run_id).await?;
        if CampaignRunControl::parse(&run.control) == Some(CampaignRunControl::Cancelled) {
            return Err(CampaignError::RunCancelled(run.id.to_string()));
        }
        // Whoever tries the run again at the same moment changes it as well: one of the two is refused.
        if let Some(next) = retry::find_retry_run(&*self.store, &run).await? {
            return Err(CampaignError::AlreadyRetried(
                run.id.to_string(),
                next.id.to_string(),
            ));
        }
        let now = self.store.now().await?;
        let mut commit = Commit::new();
        let mut reopened = 0;
        let items = row_mapping::read_job_items(&*self.store, &job.id).await?;
        let is_exhausted =
            |row: &OutboxItemRow| row.reason.as_deref() == Some(ItemReason::Exhausted.as_str());
        let exhausted = items
            .iter()
            .map(|(row, _)| row)
            .filter(|row| is_exhausted(row));
        let mut unreached =
            UnreachedRecipients::from_recipients(exhausted.map(|row| row.recipient_id.clone()));
        let runs = CampaignRunHistory {
            store: &*self.store,
            scope: &self.scope,
            campaign_id: &run.campaign_id,
        };
        runs.remove_targeted(&mut unreached, run.ordinal).await?;
        for (row, version) in items {
            let is_open = is_exhausted(&row) && unreached.contains_recipient(&row.recipient_id);
            if let Some(to) = row_mapping::item_state(&row)
                .next_state(ItemTransition::Redrive)
                .filter(|_| is_open)
            {
                let change = ItemChange {
                    new_state: to,
                    sends: 0,
                    reason: None,
                    error: None,
                    provider_message_id: None,
                };
                commit = commit.update(
                    &row_mapping::apply_change(row, &change, row_mapping::run_channel(&run), now),
                    version,
                );
                reopened += 1;
            }
        }
        if let Some(later) = unreached.last_run().filter(|_| reopened == 0) {
            return Err(CampaignError::AlreadyRetried(
                run.id.to_string(),
                later.to_string(),
            ));
        }
        job.failed -= reopened.min(job.failed);
        (job.attempts, job.run_after, job.status) = (0, now, status.as_str().into());
        commit = commit.update(&job, version);
        if let Some(status) =
            row_mapping::run_status(&run).next_status(CampaignRunTransition::Reopen)
        {
            (run.status, run.ended_at) = (status.as_str().into(), None);
        }
        if CampaignRunControl::parse(&run.control) != Some(CampaignRunControl::Paused) {
            run.wake_at = now;
        }
        // Whoever is about to end the run because all of its jobs are over finds that it has changed.
        commit = commit.update(&run, run_version);
        let detail = json!({ "job": &*job.id, "items": reopened, "by": by });
        commit = audit::append_entry(commit, &run, "job.redriven", &detail, now);
        self.commit_job_change(commit, job).await
    }
}
