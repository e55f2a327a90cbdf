//! Lists of campaign runs, jobs and items, page by page.

use std::fmt;

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{CampaignRunStatus, ItemState, JobStatus};
use onward_store::tables::{AuditEntryRow, CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{
    ColumnCodec as _, ColumnValue, Error, RecordReader as _, SerialId, Store, TableRecord,
    TableScan,
};

use crate::row_mapping;
use crate::scoped_campaigns::{CampaignError, CampaignScope, ScopedCampaigns};

/// Rows that are read together.
const PAGE_ROWS: usize = 1_000;

/// Where a page ended: at an instant, and there at an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimestampCursor {
    /// The instant.
    pub at: Timestamp,
    /// The id.
    pub id: SharedText,
}

impl fmt::Display for TimestampCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.as_micros(), self.id)
    }
}

impl TimestampCursor {
    /// The place that is written so.
    pub fn parse(text: &str) -> Option<Self> {
        let (micros, id) = text.split_once('.')?;
        Some(Self {
            at: Timestamp::from_micros(micros.parse().ok()?)?,
            id: id.into(),
        })
    }

    /// The rows of a scan after it, by an order that ends with the instant and the id.
    fn apply_to_scan(this: Option<&Self>, mut scan: TableScan) -> TableScan {
        if let Some(Self { at, id }) = this {
            let rest = [at.to_value(), id.to_value()];
            scan.after = Some(scan.equal.iter().cloned().chain(rest).collect());
        }
        scan
    }
}

/// Which jobs are meant.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only those of this campaign run.
    pub run_id: Option<String>,
    /// Only those in this status; unless told, all of a run, or all that are not completed.
    pub status: Option<JobStatus>,
}

impl JobFilter {
    /// The statuses to list, in this order.
    fn statuses_in_order(&self) -> Vec<JobStatus> {
        let open = [
            JobStatus::Locked,
            JobStatus::Failed,
            JobStatus::Queued,
            JobStatus::Dead,
        ];
        match (self.status, &self.run_id) {
            (Some(status), _) => vec![status],
            (None, None) => open.to_vec(),
            (None, Some(_)) => open.into_iter().chain([JobStatus::Completed]).collect(),
        }
    }
}

/// Where a page of jobs ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCursor {
    status: JobStatus,
    cursor: TimestampCursor,
}

impl JobCursor {
    /// Where a page ended with this job.
    pub fn from_job(job: &JobRow) -> Self {
        Self {
            status: row_mapping::job_status(job),
            cursor: TimestampCursor {
                at: job.run_after,
                id: job.id.clone(),
            },
        }
    }

    /// The place that is written so.
    pub fn parse(text: &str) -> Option<Self> {
        let (status, place) = text.split_once('.')?;
        Some(Self {
            status: JobStatus::parse(status)?,
            cursor: TimestampCursor::parse(place)?,
        })
    }
}

impl fmt::Display for JobCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.status.as_str(), self.cursor)
    }
}

impl ScopedCampaigns {
    /// Campaign runs, the newest first.
    pub async fn list_runs(
        &self,
        campaign: Option<&str>,
        status: Option<CampaignRunStatus>,
        after: Option<&TimestampCursor>,
        limit: usize,
    ) -> Result<Vec<CampaignRunRow>, CampaignError> {
        let CampaignScope { tenant, workspace } = &self.scope;
        let scan = match campaign {
            Some(campaign) => TableScan::by_index::<CampaignRunRow>(CampaignRunRow::BY_CAMPAIGN)
                .where_equal(&SharedText::from(campaign)),
            None => TableScan::by_index::<CampaignRunRow>(CampaignRunRow::BY_AGE)
                .where_equal(tenant)
                .where_equal(workspace),
        };
        let is_meant = |run: &CampaignRunRow| {
            self.scope
                .contains_workspace(&run.tenant_id, &run.workspace_id)
                && status.is_none_or(|it| row_mapping::run_status(run) == it)
        };
        Ok(scan_filtered(
            &*self.store,
            TimestampCursor::apply_to_scan(after, scan.reversed()),
            is_meant,
            limit,
        )
        .await?)
    }

    /// Jobs, by status; within one, those that are due first.
    pub async fn list_jobs(
        &self,
        filter: &JobFilter,
        after: Option<&JobCursor>,
        limit: usize,
    ) -> Result<Vec<JobRow>, CampaignError> {
        let run = match &filter.run_id {
            Some(run) => Some(self.read_run(run).await?.id),
            None => None,
        };
        let statuses = filter.statuses_in_order();
        let first = after
            .and_then(|after| statuses.iter().position(|status| *status == after.status))
            .unwrap_or(0);
        let is_ours = |job: &JobRow| {
            self.scope
                .contains_workspace(&job.tenant_id, &job.workspace_id)
        };
        let mut jobs = Vec::new();
        for status in &statuses[first..] {
            let scan = match &run {
                Some(run) => TableScan::by_index::<JobRow>(JobRow::BY_TURN).where_equal(run),
                None => {
                    TableScan::by_index::<JobRow>(JobRow::BY_TENANT).where_equal(&self.scope.tenant)
                }
            };
            let scan = scan.where_equal(&SharedText::from(status.as_str()));
            let place = after
                .filter(|after| after.status == *status)
                .map(|after| &after.cursor);
            jobs.extend(
                scan_filtered(
                    &*self.store,
                    TimestampCursor::apply_to_scan(place, scan),
                    is_ours,
                    limit - jobs.len(),
                )
                .await?,
            );
            if jobs.len() >= limit {
                break;
            }
        }
        Ok(jobs)
    }

    /// Items of a campaign run that have been reserved, or were not to be: in order, from after an item on.
    pub async fn list_items(
        &self,
        run: &str,
        is_wanted: impl Fn(&OutboxItemRow) -> bool,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<OutboxItemRow>, CampaignError> {
        let run = self.read_run(run).await?;
        let mut scan =
            TableScan::by_index::<OutboxItemRow>(OutboxItemRow::BY_RUN).where_equal(&run.id);
        scan.after = after.map(|after| vec![run.id.to_value(), ColumnValue::Text(after.into())]);
        Ok(scan_filtered(&*self.store, scan, is_wanted, limit).await?)
    }

    /// Items in doubt, those of the job first that has had some for longest; whole jobs, until there are so many. Also says
    /// where it ended, if there may be more.
    pub async fn list_in_doubt(
        &self,
        after: Option<&TimestampCursor>,
        limit: usize,
    ) -> Result<(Vec<OutboxItemRow>, Option<TimestampCursor>), CampaignError> {
        let CampaignScope { tenant, workspace } = &self.scope;
        // Whatever the clock says now: it may have been later when they came to be in doubt.
        let ever = Timestamp::from_micros(Timestamp::MAX.as_micros() - 1).unwrap_or(Timestamp::MAX);
        let jobs = TableScan::by_index::<JobRow>(JobRow::BY_DOUBT)
            .where_equal(tenant)
            .where_equal(workspace)
            .where_at_most(&ever);
        let jobs: Vec<(JobRow, u64)> = self
            .store
            .list_records(TimestampCursor::apply_to_scan(after, jobs))
            .await?;
        let is_page = jobs.len() == PAGE_ROWS;
        let mut items = Vec::new();
        let (mut last, mut left) = (None, jobs.len());
        for (job, _) in jobs {
            left -= 1;
            let rows = row_mapping::read_job_items(&*self.store, &job.id)
                .await?
                .into_iter()
                .map(|(row, _)| row);
            items.extend(rows.filter(|row| row_mapping::item_state(row) == ItemState::InDoubt));
            last = Some(TimestampCursor {
                at: job.doubt_since,
                id: job.id,
            });
            if items.len() >= limit {
                break;
            }
        }
        Ok((items, last.filter(|_| left > 0 || is_page)))
    }

    /// What happened to a campaign run after an entry, in order.
    pub async fn list_audit_entries(
        &self,
        id: &str,
        after: i64,
        limit: usize,
    ) -> Result<Vec<AuditEntryRow>, CampaignError> {
        let run = self.read_run(id).await?;
        let mut scan =
            TableScan::by_index::<AuditEntryRow>(AuditEntryRow::BY_RUN).where_equal(&run.id);
        scan.after = Some(vec![run.id.to_value(), SerialId(Some(after)).to_value()]);
        Ok(scan_filtered(&*self.store, scan, |_| true, limit).await?)
    }
}

/// Those rows of a scan that are meant, at most so many.
pub(crate) async fn scan_filtered<R: TableRecord + Send>(
    store: &dyn Store,
    mut scan: TableScan,
    is_meant: impl Fn(&R) -> bool,
    limit: usize,
) -> Result<Vec<R>, Error> {
    let mut found = Vec::new();
    loop {
        scan.limit = PAGE_ROWS;
        let page: Vec<(R, u64)> = store.list_records(scan.clone()).await?;
        let is_last = page.len() < PAGE_ROWS;
        if let Some((last, _)) = page.last() {
            scan = scan.starting_after(last);
        }
        found.extend(page.into_iter().map(|(row, _)| row).filter(&is_meant));
        if is_last || found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
}
