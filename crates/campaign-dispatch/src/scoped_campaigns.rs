//! The operations of users and operators on the campaign runs of one scope.

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

/// Maximum number of jobs of a campaign run: one commit creates them all.
pub(crate) const JOBS_MAX: usize = 99_000;

/// Minimum length of an id prefix that [`ScopedCampaigns::find_run`] accepts.
const RUN_ID_PREFIX_MIN: usize = 4;

/// The tenant and workspace whose campaigns an operation applies to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignScope {
    /// The tenant that owns the campaigns.
    pub tenant: SharedText,
    /// The workspace of the tenant.
    pub workspace: SharedText,
}

impl CampaignScope {
    /// Whether the scope is this tenant and workspace.
    pub fn contains_workspace(&self, tenant: &SharedText, workspace: &SharedText) -> bool {
        self.tenant == *tenant && self.workspace == *workspace
    }
}

/// The reason why an operation on campaigns failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CampaignError {
    /// The scope has no campaign run with this id.
    #[error("there is no campaign run {0}")]
    RunNotFound(String),
    /// Several campaign runs have an id with this prefix.
    #[error("several campaign runs begin with {0}: give more of the id")]
    AmbiguousRunId(String),
    /// The id prefix is too short to identify a run.
    #[error("{0} is too short: give the first four characters of the id, or more")]
    RunIdTooShort(String),
    /// The outbox has no item with this id.
    #[error("there is no item {0} in the outbox")]
    ItemNotFound(String),
    /// The scope has no job with this id.
    #[error("there is no job {0}")]
    JobNotFound(String),
    /// The item is not in doubt, so it cannot be resolved.
    #[error("{0} is not in doubt")]
    ItemNotInDoubt(String),
    /// The job is neither dead nor waiting, so it cannot be redriven.
    #[error("job {0} is not dead, and does not wait: it is worked on, or done")]
    JobNotRedrivable(String),
    /// Another client or worker changed the same run or job concurrently.
    #[error("{0} is being worked on: ask again in a moment")]
    ConcurrentChange(String),
    /// A worker holds the job's lease, or crashed and the lease has not expired yet.
    #[error(
        "job {0} is held until {1}: its worker may be calling the provider, or was killed; ask again then"
    )]
    JobLocked(String, Timestamp),
    /// The scope has no stored audience with this name.
    #[error("there is no audience {0}")]
    AudienceNotFound(String),
    /// The audience was stored too long ago to be deployed.
    #[error("the audience {0} was stored more than six days ago: store it again")]
    AudienceExpired(String),
    /// A part of the audience is missing although later parts exist.
    #[error("the audience {0} has no part {1}, and has others after it")]
    AudiencePartMissing(String, usize),
    /// A part of an audience has no recipients or too many.
    #[error("a part of an audience has 1 to 1000 recipients, and not {0}")]
    AudiencePartSize(u32),
    /// The audience already has a part with this number and other content.
    #[error("the audience {0} has another part {1}")]
    AudiencePartConflict(String, u32),
    /// The campaign run is not over, so it cannot be retried.
    #[error("the campaign run {0} is not over: cancel it, or settle what is in doubt")]
    RunNotFinished(String),
    /// The campaign run is not over because an operator has to resolve this many items in doubt.
    #[error(
        "the campaign run {0} is not over: nobody knows what became of {1} (onward outbox in-doubt); say it, and try again"
    )]
    RunInDoubt(String, u64),
    /// A later run already retries the recipients that the campaign run did not reach.
    #[error("those whom the campaign run {0} did not reach are for a later run to reach: {1}")]
    AlreadyRetried(String, String),
    /// The campaign run is over, so it cannot be paused, resumed or cancelled.
    #[error("the campaign run {0} is over")]
    RunFinished(String),
    /// The campaign run is cancelled: it cannot be resumed, and its jobs and items cannot be
    /// redriven.
    #[error(
        "the campaign run {0} is cancelled: say of what is in doubt that it was sent or has failed; `onward campaign retry` then reaches those who were not reached"
    )]
    RunCancelled(String),
    /// The audience has no recipients.
    #[error("there is nobody to reach")]
    EmptyAudience,
    /// The run has no recipient left to retry.
    #[error("everybody was reached: there is nobody to try again for")]
    NothingToRetry,
    /// Earlier runs of the campaign reached some of the audience, or still will.
    #[error(
        "{reached} of {of} were reached by earlier runs of `{campaign}`, or are to be (the last is {last})"
    )]
    AlreadyReached {
        /// The id of the campaign.
        campaign: String,
        /// Number of recipients that earlier runs reached or will reach.
        reached: usize,
        /// Number of recipients of the audience.
        of: usize,
        /// The id of the most recent of those runs.
        last: String,
    },
    /// The campaign would have more jobs than one commit can create.
    #[error("a campaign has at most {JOBS_MAX} jobs, and not {0}: put more recipients into each")]
    TooManyJobs(usize),
    /// The idempotency key was already used for another campaign document or audience.
    #[error("the key has deployed another campaign, or the same for other people: {0}")]
    DeploymentKeyReused(String),
    /// The store reported an error.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The campaign runs of one scope, and the operations on them.
#[derive(Clone)]
pub struct ScopedCampaigns {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) scope: CampaignScope,
}

/// Maximum number of locked jobs that are counted.
const LOCKED_JOBS_COUNT_MAX: usize = 1_000;

/// What a campaign run that is not over is doing now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunActivity {
    /// Workers hold leases on jobs of the run. A worker that crashed cannot be distinguished from
    /// one at work before its lease expires.
    InProgress {
        /// Number of jobs with a lease, counted up to 1000.
        jobs: u64,
        /// When the first of the leases expires, unless its worker renews it; another worker then
        /// takes the job over.
        lease_until: Timestamp,
    },
    /// The run waits until this time; carries the error that caused the wait, if there is one.
    WaitingUntil(Timestamp, Option<SharedText>),
}

impl ScopedCampaigns {
    /// Creates access to the campaign runs of a scope.
    pub fn new(store: Arc<dyn Store>, scope: CampaignScope) -> Self {
        Self { store, scope }
    }

    /// The tenant and workspace that own the campaign runs.
    pub const fn scope(&self) -> &CampaignScope {
        &self.scope
    }

    /// Reads a campaign run by its full id.
    pub async fn read_run(&self, id: &str) -> Result<CampaignRunRow, CampaignError> {
        Ok(self.read_run_row(id).await?.0)
    }

    /// Finds a campaign run by its id or by a unique prefix of at least four characters.
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

    /// Counts the items of a campaign run by state.
    pub async fn count_run_items(&self, id: &str) -> Result<ItemCounts, CampaignError> {
        let run = self.read_run(id).await?;
        Ok(run_completion::count_run_items(&*self.store, &run.id).await?)
    }

    /// Resolves an item in doubt. `by` names the operator and `why` the reason, for the audit
    /// trail.
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

    /// Resolves several items in doubt in the same way. Items of one job are settled in one commit.
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

    /// Pauses a run: no new sends start until it is resumed. Sends in progress are settled.
    pub async fn pause_run(&self, id: &str, by: &str) -> Result<CampaignRunRow, CampaignError> {
        self.set_control(id, CampaignRunControl::Paused, by).await
    }

    /// Resumes a paused run.
    pub async fn resume_run(&self, id: &str, by: &str) -> Result<CampaignRunRow, CampaignError> {
        self.set_control(id, CampaignRunControl::Active, by).await
    }

    /// Cancels a run for good: no new sends start, and open items are skipped.
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

    /// Retries a campaign run that is over: a new run sends to the recipients that it did not
    /// reach.
    pub async fn retry_run(
        &self,
        id: &str,
        by: &str,
        entropy: &EntropySource,
    ) -> Result<DeploymentResult, CampaignError> {
        let run = self.read_run_row(id).await?;
        retry::retry_run(&*self.store, &self.scope, run, by, entropy).await
    }

    /// Returns the run that retries this run, if there is one.
    pub async fn find_retry_run(
        &self,
        run: &CampaignRunRow,
    ) -> Result<Option<CampaignRunRow>, CampaignError> {
        Ok(retry::find_retry_run(&*self.store, run).await?)
    }

    /// Returns the run that was already deployed under the deployment's idempotency key, if there
    /// is one.
    pub async fn find_deployed_run(
        &self,
        deployment: &CampaignDeployment,
        audience: &StoredAudience,
    ) -> Result<Option<DeploymentResult>, CampaignError> {
        deploy::find_deployed_run(&*self.store, &self.scope, deployment, audience).await
    }

    /// Deploys a campaign for a stored audience.
    pub async fn deploy_campaign(
        &self,
        deployment: &CampaignDeployment,
        audience: &StoredAudience,
        entropy: &EntropySource,
    ) -> Result<DeploymentResult, CampaignError> {
        deploy::deploy_campaign(&*self.store, &self.scope, deployment, audience, entropy).await
    }

    /// Starts to store an audience in parts of `part_items` recipients.
    pub fn begin_audience(&self, part_items: u32, entropy: &EntropySource) -> AudienceWriter<'_> {
        AudienceWriter::new(&*self.store, self.scope.clone(), part_items, entropy)
    }

    /// Stores a part of an audience. Storing the same part again has no effect.
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

    /// Reads the part sizes and the digest of a stored audience.
    pub async fn read_audience(&self, id: &str) -> Result<StoredAudience, CampaignError> {
        StoredAudience::read_stored(&*self.store, &self.scope, id).await
    }

    /// What the campaign run is doing now, or until when it waits. `None` if it is over, or if it
    /// neither has a locked job nor waits for a known time.
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

    /// Makes a waiting job due now.
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

    /// Commits the change of a job. Fails if the job or its run was changed concurrently.
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

    /// Redrives a dead job: its exhausted items are retried. A job that only waits becomes due now.
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
        // A concurrent retry of the run updates its row as well, so that one of the two commits
        // conflicts.
        if let Some(next) = retry::find_retry_run(&*self.store, &run).await? {
            return Err(CampaignError::AlreadyRetried(
                run.id.to_string(),
                next.id.to_string(),
            ));
        }
        let now = self.store.now().await?;
        let (mut commit, reopened) = self.reopen_exhausted_items(&run, &job, now).await?;
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
        // The update makes a concurrent commit conflict that would finish the run because all of
        // its jobs are over.
        commit = commit.update(&run, run_version);
        let detail = json!({ "job": &*job.id, "items": reopened, "by": by });
        commit = audit::append_entry(commit, &run, "job.redriven", &detail, now);
        self.commit_job_change(commit, job).await
    }

    /// Prepares the commit that reopens the exhausted items of a job, except those whose recipients
    /// a later run targets. Returns it with the number of reopened items. Fails if later runs
    /// target all of them.
    async fn reopen_exhausted_items(
        &self,
        run: &CampaignRunRow,
        job: &JobRow,
        now: Timestamp,
    ) -> Result<(Commit, u32), CampaignError> {
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
                    &row_mapping::apply_change(row, &change, row_mapping::run_channel(run), now),
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
        Ok((commit, reopened))
    }
}
