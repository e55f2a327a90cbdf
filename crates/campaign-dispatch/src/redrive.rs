//! Redrives jobs: retries the exhausted items of a dead job, or makes a waiting job due now.

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{
    CampaignRunControl, CampaignRunTransition, ItemChange, ItemReason, ItemTransition, JobStatus,
    JobTransition,
};
use onward_store::tables::{CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{ColumnCodec as _, Commit, RecordReader as _, RowKey, StoreErrorKind};
use serde_json::json;

use crate::campaign_error::CampaignError;
use crate::reached_recipients::{CampaignRunHistory, UnreachedRecipients};
use crate::scoped_campaigns::ScopedCampaigns;
use crate::{audit, retry, row_mapping};

impl ScopedCampaigns {
    /// Makes a waiting job due now.
    async fn expedite_job(
        &self,
        (mut job, version): (JobRow, u64),
        operator: &str,
    ) -> Result<JobRow, CampaignError> {
        let now = self.store.now().await?;
        let is_waiting = matches!(job.status, JobStatus::Queued | JobStatus::Failed);
        if !is_waiting || job.run_after <= now {
            return Err(CampaignError::JobNotRedrivable(job.id.to_string()));
        }
        let run = self.read_run(&job.run_id).await?;
        job.run_after = now;
        let detail = json!({ "job": &*job.id, "items": 0, "by": operator });
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
            result => result.map(|_| job).map_err(CampaignError::from),
        }
    }

    /// Redrives a dead job: its exhausted items are retried. A job that only waits becomes due now.
    pub async fn redrive_job(&self, job: &str, operator: &str) -> Result<JobRow, CampaignError> {
        let stored: Option<(JobRow, u64)> = self
            .store
            .read_record(RowKey(vec![SharedText::from(job).to_value()]))
            .await?;
        let is_in_scope =
            |(job, _): &(JobRow, u64)| self.columns.match_row(&job.tenant_id, &job.workspace_id);
        let Some((mut job, version)) = stored.filter(is_in_scope) else {
            return Err(CampaignError::JobNotFound(job.to_owned()));
        };
        let Some(status) = job.status.next_status(JobTransition::Redrive) else {
            return self.expedite_job((job, version), operator).await;
        };
        let (mut run, run_version) = self.read_run_row(&job.run_id).await?;
        if run.control == CampaignRunControl::Cancelled {
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
        (job.attempts, job.run_after, job.status) = (0, now, status);
        commit = commit.update(&job, version);
        if let Some(status) = run.status.next_status(CampaignRunTransition::Reopen) {
            (run.status, run.ended_at) = (status, None);
        }
        if run.control != CampaignRunControl::Paused {
            run.wake_at = now;
        }
        // The update makes a concurrent commit conflict that would finish the run because all of
        // its jobs have ended.
        commit = commit.update(&run, run_version);
        let detail = json!({ "job": &*job.id, "items": reopened, "by": operator });
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
        let is_exhausted = |row: &OutboxItemRow| row.reason == Some(ItemReason::Exhausted);
        let exhausted = items
            .iter()
            .map(|(row, _)| row)
            .filter(|row| is_exhausted(row));
        let mut unreached =
            UnreachedRecipients::from_recipients(exhausted.map(|row| row.recipient_id.clone()));
        let history = CampaignRunHistory {
            store: &*self.store,
            scope: &self.columns,
            campaign_id: &run.campaign_id,
        };
        history.remove_targeted(&mut unreached, run.ordinal).await?;
        for (row, version) in items {
            let is_unreached =
                is_exhausted(&row) && unreached.contains_recipient(&row.recipient_id);
            if let Some(new_state) = row_mapping::item_state(&row)
                .next_state(ItemTransition::Redrive)
                .filter(|_| is_unreached)
            {
                let change = ItemChange {
                    new_state,
                    sends: 0,
                    reason: None,
                    error: None,
                    provider_message_id: None,
                };
                commit = commit.update(
                    &row_mapping::apply_change(row, &change, run.channel, now),
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
