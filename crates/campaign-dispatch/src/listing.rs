//! Lists campaign runs, jobs, items and audit entries in pages.

use std::fmt;

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{CampaignRunStatus, ItemState, JobStatus};
use onward_store::tables::{AuditEntryRow, CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{
    ColumnCodec as _, ColumnValue, Error, RecordReader as _, SerialId, Store, TableRecord,
    TableScan,
};

use crate::campaign_error::CampaignError;
use crate::row_mapping;
use crate::scoped_campaigns::ScopedCampaigns;

/// Number of rows read from the store at a time.
const PAGE_ROWS: usize = 1_000;

/// The position after the last row of a page, in an order by time and id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TimestampCursor {
    /// The time of the last row.
    pub at: Timestamp,
    /// The id of the last row.
    pub id: SharedText,
}

impl fmt::Display for TimestampCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.as_micros(), self.id)
    }
}

impl TimestampCursor {
    /// Parses a cursor from its text form. Returns `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let (micros, id) = text.split_once('.')?;
        Some(Self {
            at: Timestamp::from_micros(micros.parse().ok()?)?,
            id: id.into(),
        })
    }

    /// Starts a scan after the cursor. The order of the scan must end with the time and the id.
    fn apply_to_scan(this: Option<&Self>, mut scan: TableScan) -> TableScan {
        if let Some(Self { at, id }) = this {
            let rest = [at.to_value(), id.to_value()];
            scan.after = Some(scan.equal.iter().cloned().chain(rest).collect());
        }
        scan
    }
}

/// Selects the jobs to list.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// Only jobs of this campaign run. Default: jobs of all runs.
    pub run_id: Option<String>,
    /// Only jobs in this status. Default: all jobs if `run_id` is set, else all jobs that are not
    /// completed.
    pub status: Option<JobStatus>,
}

impl JobFilter {
    /// The statuses to list, in the order in which they are listed.
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

/// The position after the last job of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCursor {
    status: JobStatus,
    cursor: TimestampCursor,
}

impl JobCursor {
    /// The cursor of a page that ends with this job.
    pub fn from_job(job: &JobRow) -> Self {
        Self {
            status: job.status,
            cursor: TimestampCursor {
                at: job.run_after,
                id: job.id.clone(),
            },
        }
    }

    /// Parses a cursor from its text form. Returns `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let (status, cursor) = text.split_once('.')?;
        Some(Self {
            status: JobStatus::parse(status)?,
            cursor: TimestampCursor::parse(cursor)?,
        })
    }
}

impl fmt::Display for JobCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.status.as_str(), self.cursor)
    }
}

impl ScopedCampaigns {
    /// Lists campaign runs, the newest first.
    pub async fn list_runs(
        &self,
        campaign: Option<&str>,
        status: Option<CampaignRunStatus>,
        after: Option<&TimestampCursor>,
        limit: usize,
    ) -> Result<Vec<CampaignRunRow>, CampaignError> {
        let scan = match campaign {
            Some(campaign) => TableScan::by_index::<CampaignRunRow>(CampaignRunRow::BY_CAMPAIGN)
                .where_equal(&SharedText::from(campaign)),
            None => TableScan::by_index::<CampaignRunRow>(CampaignRunRow::BY_AGE)
                .where_equal(&self.columns.tenant_id)
                .where_equal(&self.columns.workspace_id),
        };
        let is_selected = |run: &CampaignRunRow| {
            self.columns.match_row(&run.tenant_id, &run.workspace_id)
                && status.is_none_or(|status| run.status == status)
        };
        Ok(scan_filtered(
            &*self.store,
            TimestampCursor::apply_to_scan(after, scan.reversed()),
            is_selected,
            limit,
        )
        .await?)
    }

    /// Lists jobs by status; within a status, by the time at which they are due.
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
        let is_in_scope = |job: &JobRow| self.columns.match_row(&job.tenant_id, &job.workspace_id);
        let mut jobs = Vec::new();
        for status in &statuses[first..] {
            let scan = match &run {
                Some(run) => TableScan::by_index::<JobRow>(JobRow::BY_TURN).where_equal(run),
                None => TableScan::by_index::<JobRow>(JobRow::BY_TENANT)
                    .where_equal(&self.columns.tenant_id),
            };
            let scan = scan.where_equal(status);
            let cursor = after
                .filter(|after| after.status == *status)
                .map(|after| &after.cursor);
            jobs.extend(
                scan_filtered(
                    &*self.store,
                    TimestampCursor::apply_to_scan(cursor, scan),
                    is_in_scope,
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

    /// Lists the items of a campaign run that have a row and match `is_selected`, by id, starting
    /// after the item `after`.
    pub async fn list_items(
        &self,
        run: &str,
        is_selected: impl Fn(&OutboxItemRow) -> bool,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<OutboxItemRow>, CampaignError> {
        let run = self.read_run(run).await?;
        let mut scan =
            TableScan::by_index::<OutboxItemRow>(OutboxItemRow::BY_RUN).where_equal(&run.id);
        scan.after = after.map(|after| vec![run.id.to_value(), ColumnValue::Text(after.into())]);
        Ok(scan_filtered(&*self.store, scan, is_selected, limit).await?)
    }

    /// Lists items in doubt, grouped by job; the job that has had items in doubt for longest comes
    /// first. Adds whole jobs until at least `limit` items are listed. Also returns the cursor of
    /// the next page, if there may be more.
    pub async fn list_in_doubt(
        &self,
        after: Option<&TimestampCursor>,
        limit: usize,
    ) -> Result<(Vec<OutboxItemRow>, Option<TimestampCursor>), CampaignError> {
        // Not limited by the current time: the clock may have been later when the items became in
        // doubt.
        let latest =
            Timestamp::from_micros(Timestamp::MAX.as_micros() - 1).unwrap_or(Timestamp::MAX);
        let jobs = TableScan::by_index::<JobRow>(JobRow::BY_DOUBT)
            .where_equal(&self.columns.tenant_id)
            .where_equal(&self.columns.workspace_id)
            .where_at_most(&latest);
        let jobs: Vec<(JobRow, u64)> = self
            .store
            .list_records(TimestampCursor::apply_to_scan(after, jobs))
            .await?;
        let is_full_page = jobs.len() == PAGE_ROWS;
        let mut items = Vec::new();
        let (mut last, mut remaining) = (None, jobs.len());
        for (job, _) in jobs {
            remaining -= 1;
            let rows = row_mapping::read_job_items(&*self.store, &job.id)
                .await?
                .into_iter()
                .map(|(row, _)| row);
            items.extend(rows.filter(|row| row_mapping::item_state(row) == ItemState::InDoubt));
            last = Some(TimestampCursor {
                at: job.in_doubt_since,
                id: job.id,
            });
            if items.len() >= limit {
                break;
            }
        }
        Ok((items, last.filter(|_| remaining > 0 || is_full_page)))
    }

    /// Lists the audit entries of a campaign run after the entry id `after`, in order.
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

/// Returns at most `limit` rows of a scan that match `is_selected`.
pub(crate) async fn scan_filtered<R: TableRecord + Send>(
    store: &dyn Store,
    mut scan: TableScan,
    is_selected: impl Fn(&R) -> bool,
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
        found.extend(page.into_iter().map(|(row, _)| row).filter(&is_selected));
        if is_last || found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
}
