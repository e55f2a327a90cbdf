//! The operations of users and operators on the campaign runs of one scope.

use std::sync::Arc;

use onward_base::{Scope, SharedText, Timestamp};
use onward_campaign_core::{AudienceRecipient, CampaignRunControl, ItemCounts, JobStatus};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{
    ColumnCodec as _, Commit, RecordReader as _, RowKey, Store, StoreErrorKind, TableScan,
};
use serde_json::json;

use crate::audience::{self, AudienceWriter, StoredAudience};
use crate::campaign_error::CampaignError;
use crate::deploy::{self, CampaignDeployment, DeploymentResult};
use crate::entropy::EntropySource;
use crate::resolution::{self, OperatorDecision, Resolution, ResolvedItem};
use crate::scope_columns::ScopeColumns;
use crate::{audit, listing, retry, run_completion};

/// Minimum length of an id prefix that [`ScopedCampaigns::find_run`] accepts.
const RUN_ID_PREFIX_MIN: usize = 4;

/// The campaign runs of one scope, and the operations on them.
#[derive(Clone)]
pub struct ScopedCampaigns {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) columns: ScopeColumns,
    scope: Scope,
}

/// Maximum number of locked jobs that are counted.
const LOCKED_JOBS_COUNT_MAX: usize = 1_000;

/// What a campaign run that has not ended is doing now.
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
    pub fn new(store: Arc<dyn Store>, scope: Scope) -> Self {
        Self {
            store,
            columns: ScopeColumns::from_scope(&scope),
            scope,
        }
    }

    /// The scope that owns the campaign runs.
    pub const fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Reads a campaign run by its full id.
    pub async fn read_run(&self, id: &str) -> Result<CampaignRunRow, CampaignError> {
        Ok(self.read_run_row(id).await?.0)
    }

    /// Finds a campaign run by its id or by a unique prefix of at least four characters.
    pub async fn find_run(&self, prefix: &str) -> Result<CampaignRunRow, CampaignError> {
        match self.read_run(prefix).await {
            Err(CampaignError::RunNotFound(_)) if prefix.len() >= RUN_ID_PREFIX_MIN => {}
            Err(CampaignError::RunNotFound(_)) => {
                return Err(CampaignError::RunIdTooShort(prefix.to_owned()));
            }
            found => return found,
        }
        let mut scan = TableScan::all_rows::<CampaignRunRow>()
            .where_at_most(&SharedText::from(format!("{prefix}~")));
        scan.after = Some(vec![SharedText::from(prefix).to_value()]);
        let is_in_scope =
            |run: &CampaignRunRow| self.columns.match_row(&run.tenant_id, &run.workspace_id);
        let mut found = listing::scan_filtered(&*self.store, scan, is_in_scope, 2).await?;
        if found.len() > 1 {
            return Err(CampaignError::AmbiguousRunId(prefix.to_owned()));
        }
        found
            .pop()
            .ok_or_else(|| CampaignError::RunNotFound(prefix.to_owned()))
    }

    pub(crate) async fn read_run_row(
        &self,
        id: &str,
    ) -> Result<(CampaignRunRow, u64), CampaignError> {
        let run: Option<(CampaignRunRow, u64)> = self
            .store
            .read_record(RowKey(vec![SharedText::from(id).to_value()]))
            .await?;
        let is_in_scope = |(run, _): &(CampaignRunRow, u64)| {
            self.columns.match_row(&run.tenant_id, &run.workspace_id)
        };
        run.filter(is_in_scope)
            .ok_or_else(|| CampaignError::RunNotFound(id.to_owned()))
    }

    /// Counts the items of a campaign run by state.
    pub async fn count_run_items(&self, id: &str) -> Result<ItemCounts, CampaignError> {
        let run = self.read_run(id).await?;
        Ok(run_completion::count_run_items(&*self.store, &run.id).await?)
    }

    /// Resolves an item in doubt. The audit trail records the operator and the reason.
    pub async fn resolve_item(
        &self,
        item: &str,
        resolution: &Resolution,
        operator: &str,
        reason: &str,
    ) -> Result<OutboxItemRow, CampaignError> {
        let settled = self
            .resolve_items(&[item.to_owned()], resolution, operator, reason)
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
        resolution: &Resolution,
        operator: &str,
        reason: &str,
    ) -> Result<Vec<ResolvedItem>, CampaignError> {
        resolution::resolve_items(
            &*self.store,
            &self.columns,
            items,
            OperatorDecision {
                resolution,
                operator,
                reason,
            },
        )
        .await
    }

    /// Pauses a run: no new sends start until it is resumed. Sends in progress are settled.
    pub async fn pause_run(
        &self,
        id: &str,
        operator: &str,
    ) -> Result<CampaignRunRow, CampaignError> {
        self.set_control(id, CampaignRunControl::Paused, operator)
            .await
    }

    /// Resumes a paused run.
    pub async fn resume_run(
        &self,
        id: &str,
        operator: &str,
    ) -> Result<CampaignRunRow, CampaignError> {
        self.set_control(id, CampaignRunControl::Active, operator)
            .await
    }

    /// Cancels a run for good: no new sends start, and open items are skipped.
    pub async fn cancel_run(
        &self,
        id: &str,
        operator: &str,
    ) -> Result<CampaignRunRow, CampaignError> {
        self.set_control(id, CampaignRunControl::Cancelled, operator)
            .await
    }

    async fn set_control(
        &self,
        id: &str,
        requested: CampaignRunControl,
        operator: &str,
    ) -> Result<CampaignRunRow, CampaignError> {
        loop {
            let (mut run, version) = self.read_run_row(id).await?;
            if run.status.is_terminal() {
                return Err(CampaignError::RunFinished(id.to_owned()));
            }
            if run.control == requested {
                return Ok(run);
            }
            let Some(next) = run.control.transition_to(requested) else {
                return Err(CampaignError::RunCancelled(id.to_owned()));
            };
            let now = self.store.now().await?;
            run.control = next;
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
            let commit = audit::append_entry(commit, &run, event, &json!({ "by": operator }), now);
            match self.store.commit(commit).await {
                Ok(_) => return Ok(run),
                Err(error) if error.kind() == StoreErrorKind::Conflict => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Retries a campaign run that has ended: a new run sends to the recipients that it did not
    /// reach.
    pub async fn retry_run(
        &self,
        id: &str,
        operator: &str,
        entropy: &EntropySource,
    ) -> Result<DeploymentResult, CampaignError> {
        let run = self.read_run_row(id).await?;
        retry::retry_run(&*self.store, &self.columns, run, operator, entropy).await
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
        deploy::find_deployed_run(&*self.store, &self.columns, deployment, audience).await
    }

    /// Deploys a campaign for a stored audience.
    pub async fn deploy_campaign(
        &self,
        deployment: &CampaignDeployment,
        audience: &StoredAudience,
        entropy: &EntropySource,
    ) -> Result<DeploymentResult, CampaignError> {
        deploy::deploy_campaign(&*self.store, &self.columns, deployment, audience, entropy).await
    }

    /// Starts to store an audience in parts of `part_items` recipients.
    pub fn begin_audience(&self, part_items: u32, entropy: &EntropySource) -> AudienceWriter<'_> {
        AudienceWriter::new(&*self.store, self.columns.clone(), part_items, entropy)
    }

    /// Stores a part of an audience. Storing the same part again has no effect.
    pub async fn put_audience_part(
        &self,
        name: &str,
        number: u32,
        recipients: &[AudienceRecipient],
    ) -> Result<(), CampaignError> {
        audience::put_audience_part(&*self.store, &self.columns, (name, number), recipients)
            .await
            .map(drop)
    }

    /// Reads the part sizes and the digest of a stored audience.
    pub async fn read_audience(&self, name: &str) -> Result<StoredAudience, CampaignError> {
        StoredAudience::read_stored(&*self.store, &self.columns, name).await
    }

    /// What the campaign run is doing now, or until when it waits. `None` if it has ended, or if it
    /// neither has a locked job nor waits for a known time.
    pub async fn run_activity(
        &self,
        run: &CampaignRunRow,
    ) -> Result<Option<RunActivity>, CampaignError> {
        if run.status.is_terminal() {
            return Ok(None);
        }
        let jobs = |status: JobStatus| {
            TableScan::by_index::<JobRow>(JobRow::BY_TURN)
                .where_equal(&run.id)
                .where_equal(&status)
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
        if run.control != CampaignRunControl::Active {
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
}
