//! Lists of campaign runs, jobs and items, page by page.

use std::fmt;

use onward_dispatch::{JobStatus, RunStatus, Standing};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{AuditEntry, CampaignRun, Job, OutboxItem};
use onward_store::{Error, Field as _, Record, Records as _, Scan, Serial, Store, Value};

use crate::campaigns::{Campaigns, Refused, Scope};
use crate::rows;

/// Rows that are read together.
const PAGE: usize = 1_000;

/// Where a page ended: at an instant, and there at an id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The instant.
    pub at: Timestamp,
    /// The id.
    pub id: Text,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.at.as_micros(), self.id)
    }
}

impl Place {
    /// The place that is written so.
    pub fn parse(text: &str) -> Option<Self> {
        let (micros, id) = text.split_once('.')?;
        Some(Self { at: Timestamp::from_micros(micros.parse().ok()?)?, id: id.into() })
    }

    /// The rows of a scan after it, by an order that ends with the instant and the id.
    fn after(this: Option<&Self>, mut scan: Scan) -> Scan {
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
    pub run: Option<String>,
    /// Only those in this status; unless told, all of a run, or all that are not completed.
    pub status: Option<JobStatus>,
}

impl JobFilter {
    /// The statuses to list, in this order.
    fn statuses(&self) -> Vec<JobStatus> {
        let open = [JobStatus::Locked, JobStatus::Failed, JobStatus::Queued, JobStatus::Dead];
        match (self.status, &self.run) {
            (Some(status), _) => vec![status],
            (None, None) => open.to_vec(),
            (None, Some(_)) => open.into_iter().chain([JobStatus::Completed]).collect(),
        }
    }
}

/// Where a page of jobs ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPlace {
    status: JobStatus,
    place: Place,
}

impl JobPlace {
    /// Where a page ended with this job.
    pub fn of(job: &Job) -> Self {
        Self { status: rows::job_status(job), place: Place { at: job.run_after, id: job.id.clone() } }
    }

    /// The place that is written so.
    pub fn parse(text: &str) -> Option<Self> {
        let (status, place) = text.split_once('.')?;
        Some(Self { status: JobStatus::parse(status)?, place: Place::parse(place)? })
    }
}

impl fmt::Display for JobPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.status.as_str(), self.place)
    }
}

impl Campaigns {
    /// Campaign runs, the newest first.
    pub async fn runs(
        &self,
        campaign: Option<&str>,
        status: Option<RunStatus>,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<Vec<CampaignRun>, Refused> {
        let Scope { tenant, workspace } = &self.scope;
        let scan = match campaign {
            Some(campaign) => Scan::by::<CampaignRun>(CampaignRun::BY_CAMPAIGN).equal(&Text::from(campaign)),
            None => Scan::by::<CampaignRun>(CampaignRun::BY_AGE).equal(tenant).equal(workspace),
        };
        let is_meant = |run: &CampaignRun| {
            self.scope.has(&run.tenant_id, &run.workspace_id) && status.is_none_or(|it| rows::run_status(run) == it)
        };
        Ok(chosen(&*self.store, Place::after(after, scan.reversed()), is_meant, limit).await?)
    }

    /// Jobs, by status; within one, those that are due first.
    pub async fn jobs(&self, filter: &JobFilter, after: Option<&JobPlace>, limit: usize) -> Result<Vec<Job>, Refused> {
        let run = match &filter.run {
            Some(run) => Some(self.run(run).await?.id),
            None => None,
        };
        let statuses = filter.statuses();
        let first = after.and_then(|after| statuses.iter().position(|status| *status == after.status)).unwrap_or(0);
        let is_ours = |job: &Job| self.scope.has(&job.tenant_id, &job.workspace_id);
        let mut jobs = Vec::new();
        for status in &statuses[first..] {
            let scan = match &run {
                Some(run) => Scan::by::<Job>(Job::BY_TURN).equal(run),
                None => Scan::by::<Job>(Job::BY_TENANT).equal(&self.scope.tenant),
            };
            let scan = scan.equal(&Text::from(status.as_str()));
            let place = after.filter(|after| after.status == *status).map(|after| &after.place);
            jobs.extend(chosen(&*self.store, Place::after(place, scan), is_ours, limit - jobs.len()).await?);
            if jobs.len() >= limit {
                break;
            }
        }
        Ok(jobs)
    }

    /// Items of a campaign run that have been reserved, or were not to be: in order, from after an item on.
    pub async fn items(
        &self,
        run: &str,
        is_wanted: impl Fn(&OutboxItem) -> bool,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<OutboxItem>, Refused> {
        let run = self.run(run).await?;
        let mut scan = Scan::by::<OutboxItem>(OutboxItem::BY_RUN).equal(&run.id);
        scan.after = after.map(|after| vec![run.id.to_value(), Value::Text(after.into())]);
        Ok(chosen(&*self.store, scan, is_wanted, limit).await?)
    }

    /// Items in doubt, those of the job first that has had some for longest; whole jobs, until there are so many. Also says
    /// where it ended, if there may be more.
    pub async fn in_doubt(
        &self,
        after: Option<&Place>,
        limit: usize,
    ) -> Result<(Vec<OutboxItem>, Option<Place>), Refused> {
        let Scope { tenant, workspace } = &self.scope;
        // Whatever the clock says now: it may have been later when they came to be in doubt.
        let ever = Timestamp::from_micros(Timestamp::MAX.as_micros() - 1).unwrap_or(Timestamp::MAX);
        let jobs = Scan::by::<Job>(Job::BY_DOUBT).equal(tenant).equal(workspace).until(&ever);
        let jobs: Vec<(Job, u64)> = self.store.list(Place::after(after, jobs)).await?;
        let is_page = jobs.len() == PAGE;
        let mut items = Vec::new();
        let (mut last, mut left) = (None, jobs.len());
        for (job, _) in jobs {
            left -= 1;
            let rows = rows::items(&*self.store, &job.id).await?.into_iter().map(|(row, _)| row);
            items.extend(rows.filter(|row| rows::standing(row) == Standing::InDoubt));
            last = Some(Place { at: job.doubt_since, id: job.id });
            if items.len() >= limit {
                break;
            }
        }
        Ok((items, last.filter(|_| left > 0 || is_page)))
    }

    /// What happened to a campaign run after an entry, in order.
    pub async fn audit(&self, id: &str, after: i64, limit: usize) -> Result<Vec<AuditEntry>, Refused> {
        let run = self.run(id).await?;
        let mut scan = Scan::by::<AuditEntry>(AuditEntry::BY_RUN).equal(&run.id);
        scan.after = Some(vec![run.id.to_value(), Serial(Some(after)).to_value()]);
        Ok(chosen(&*self.store, scan, |_| true, limit).await?)
    }
}

/// Those rows of a scan that are meant, at most so many.
pub(crate) async fn chosen<R: Record + Send>(
    store: &dyn Store,
    mut scan: Scan,
    is_meant: impl Fn(&R) -> bool,
    limit: usize,
) -> Result<Vec<R>, Error> {
    let mut found = Vec::new();
    loop {
        scan.limit = PAGE;
        let page: Vec<(R, u64)> = store.list(scan.clone()).await?;
        let is_last = page.len() < PAGE;
        if let Some((last, _)) = page.last() {
            scan = scan.after(last);
        }
        found.extend(page.into_iter().map(|(row, _)| row).filter(&is_meant));
        if is_last || found.len() >= limit {
            found.truncate(limit);
            return Ok(found);
        }
    }
}
