//! Checks that no campaign run is stuck or inconsistent: every job that has not ended has a worker,
//! a due time, or items in doubt that an operator has to resolve; and the counts of jobs and runs
//! agree with their rows.
//!
//! Other processes may change the store meanwhile. Every change of a job updates its row, so a job
//! whose row version is the same before and after its items are read was read consistently; a job
//! that changed is read again.

use onward_base::{Scope, SharedText, Timestamp};
use onward_campaign_core::{CampaignRunControl, ItemCounts, ItemState, JobStatus, RunCoverage};
use onward_store::tables::{AudiencePartRow, CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{
    ColumnCodec as _, Error, RecordReader as _, RowKey, Store, StoreErrorKind, TableScan,
};

use crate::decoded_page::DecodedPage;
use crate::row_mapping;
use crate::run_completion::run_coverage;
use crate::scope_columns::ScopeColumns;

/// Work that has been due for this many milliseconds is reported as overdue.
const OVERDUE_MS: u64 = 60_000;

/// Maximum number of times that a changing row is read. A row that changes every time is not stuck.
const REREADS_MAX: u32 = 6;

/// The kind of a problem with a campaign run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CampaignFindingKind {
    /// Jobs of the run, or parts of its audience, do not exist.
    Missing,
    /// Rows contradict each other.
    Inconsistent,
    /// Work is open, and nothing is scheduled that would finish it.
    Stuck,
    /// Items are in doubt, and only an operator can resolve them.
    InDoubt,
    /// Work is due, and no worker processes it.
    Overdue,
}

/// A problem with a campaign run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CampaignFinding {
    /// The id of the campaign run.
    pub run_id: SharedText,
    /// The kind of the problem.
    pub kind: CampaignFindingKind,
    /// The details of the problem, for operators.
    pub message: String,
}

/// Number of campaign runs and items that were examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CampaignDoctorStats {
    /// Number of campaign runs examined.
    pub runs: u64,
    /// Number of items with rows in those runs.
    pub items: u64,
}

/// The kind and details of a problem, without the run.
type RunFinding = (CampaignFindingKind, String);

/// Examines every campaign run of a store, or of one scope if given, page by page, and passes each
/// problem to `report`.
pub async fn examine_runs(
    store: &dyn Store,
    scope: Option<&Scope>,
    report: &mut (dyn FnMut(CampaignFinding) + Send),
) -> Result<CampaignDoctorStats, Error> {
    let mut stats = CampaignDoctorStats::default();
    let mut next = Some(match scope.map(ScopeColumns::from_scope) {
        None => TableScan::all_rows::<CampaignRunRow>(),
        Some(columns) => TableScan::by_index::<CampaignRunRow>(CampaignRunRow::BY_AGE)
            .where_equal(&columns.tenant_id)
            .where_equal(&columns.workspace_id),
    });
    while let Some(scan) = next.take() {
        let page = DecodedPage::<CampaignRunRow>::read(store, scan).await?;
        stats.runs += page.corrupt.len() as u64;
        for row in page.corrupt {
            let (kind, message) = corrupt_row_finding("the run", &row.error);
            report(CampaignFinding {
                run_id: row.id,
                kind,
                message,
            });
        }
        for (run, version) in page.records {
            let run_id = run.id.clone();
            for (kind, message) in examine_until_stable(store, run, version, &mut stats).await? {
                report(CampaignFinding {
                    run_id: run_id.clone(),
                    kind,
                    message,
                });
            }
            stats.runs += 1;
        }
        next = page.next;
    }
    Ok(stats)
}

fn corrupt_row_finding(what: &str, error: &Error) -> RunFinding {
    (
        CampaignFindingKind::Inconsistent,
        format!("{what} cannot be read: {error}"),
    )
}

/// Examines a run until its row does not change meanwhile, and returns its problems.
async fn examine_until_stable(
    store: &dyn Store,
    mut run: CampaignRunRow,
    mut version: u64,
    stats: &mut CampaignDoctorStats,
) -> Result<Vec<RunFinding>, Error> {
    for _ in 0..REREADS_MAX {
        let (findings, items) = match examine_run(store, &run).await {
            Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                (vec![corrupt_row_finding("a row of the run", &error)], 0)
            }
            result => result?,
        };
        stats.items += items;
        let current: Option<(CampaignRunRow, u64)> =
            store.read_record(RowKey(vec![run.id.to_value()])).await?;
        match current {
            Some((_, current)) if current == version => return Ok(findings),
            Some((changed, current)) => (run, version) = (changed, current),
            None => return Ok(Vec::new()),
        }
        stats.items -= items;
    }
    Ok(Vec::new())
}

/// Examines a run once. Returns its problems and the number of items examined.
async fn examine_run(
    store: &dyn Store,
    run: &CampaignRunRow,
) -> Result<(Vec<RunFinding>, u64), Error> {
    let (mut findings, mut totals, mut item_count) = (Vec::new(), RunTotals::default(), 0);
    let now = store.now().await?;
    let mut scan =
        TableScan::all_rows::<JobRow>().where_at_most(&SharedText::from(format!("{}.~", run.id)));
    scan.after = Some(vec![SharedText::from(format!("{}.", run.id)).to_value()]);
    let mut next = Some(scan);
    while let Some(scan) = next.take() {
        let page = DecodedPage::<JobRow>::read(store, scan).await?;
        for row in &page.corrupt {
            findings.push(corrupt_row_finding(&format!("job {}", row.id), &row.error));
        }
        for job in page.records {
            let (job, items) = match read_stable_job(store, job.clone()).await {
                Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                    let what = format!("an item of job {}", job.0.id);
                    findings.push(corrupt_row_finding(&what, &error));
                    (job.0, None)
                }
                result => result?,
            };
            if let Some(items) = items {
                item_count += items.len() as u64;
                findings.extend(examine_job(&job, &items, now));
                findings.extend(check_audience_part(store, run, &job).await?);
            }
            totals.add_job(&job, now);
        }
        next = page.next;
    }
    let coverage = run_coverage(store, run, &totals.counts).await?;
    findings.extend(totals.examine_totals(run, coverage, now));
    Ok((findings, item_count))
}

/// Reads a job and its items consistently; without the items if the job keeps changing.
async fn read_stable_job(
    store: &dyn Store,
    (mut job, mut version): (JobRow, u64),
) -> Result<(JobRow, Option<Vec<OutboxItemRow>>), Error> {
    for _ in 0..REREADS_MAX {
        let items = row_mapping::read_job_items(store, &job.id).await?;
        let current: Option<(JobRow, u64)> =
            store.read_record(RowKey(vec![job.id.to_value()])).await?;
        match current {
            Some((_, current)) if current == version => {
                return Ok((job, Some(items.into_iter().map(|(item, _)| item).collect())));
            }
            Some((changed, current)) => (job, version) = (changed, current),
            None => break,
        }
    }
    Ok((job, None))
}

/// The problems of a job with these items.
fn examine_job(job: &JobRow, items: &[OutboxItemRow], now: Timestamp) -> Vec<RunFinding> {
    let (id, status, stored) = (&job.id, job.status, row_mapping::job_counts(job));
    let actual = ItemCounts::from_states(items.iter().map(row_mapping::item_state));
    let reserved = items
        .iter()
        .filter(|item| row_mapping::item_state(item) == ItemState::Reserved)
        .count();
    let mut findings = Vec::new();
    // A duplicate recipient has one row, and the job additionally counts an item as skipped.
    let settled = |counts: &ItemCounts| (counts.sent, counts.failed, counts.in_doubt);
    if settled(&stored) != settled(&actual)
        || stored.skipped < actual.skipped
        || actual.items > stored.items
    {
        findings.push((
            CampaignFindingKind::Inconsistent,
            format!(
                "the counts of job {id} are {}, but its items give {}",
                describe_counts(&stored),
                describe_counts(&actual)
            ),
        ));
    }
    if status.is_terminal() && !stored.is_settled() {
        findings.push((
            CampaignFindingKind::Stuck,
            format!(
                "job {id} is {status}, but {} of its items are not settled",
                unsettled_items(&stored)
            ),
        ));
    }
    if status != JobStatus::Locked && reserved > 0 {
        findings.push((
            CampaignFindingKind::Stuck,
            format!(
                "job {id} is {status}, but {reserved} of its items are reserved without a lease"
            ),
        ));
    }
    let is_waiting = matches!(status, JobStatus::Queued | JobStatus::Failed);
    if is_waiting && job.run_after == Timestamp::MAX && stored.in_doubt == 0 {
        findings.push((
            CampaignFindingKind::Stuck,
            format!("job {id} waits for an operator, but none of its items is in doubt"),
        ));
    }
    if let Some(until) = job
        .locked_until
        .filter(|until| until.plus_ms(OVERDUE_MS) <= now)
    {
        findings.push((
            CampaignFindingKind::Overdue,
            format!("the lease of job {id} expired at {until}, and no worker has taken it over"),
        ));
    }
    findings
}

/// The counts as the outbox commands print them: `3 items, 1 sent, 0 failed, …`.
fn describe_counts(counts: &ItemCounts) -> String {
    let ItemCounts {
        items,
        sent,
        failed,
        skipped,
        in_doubt,
    } = counts;
    format!("{items} items, {sent} sent, {failed} failed, {skipped} skipped, {in_doubt} in doubt")
}

const fn unsettled_items(counts: &ItemCounts) -> u64 {
    counts.open_items() + counts.in_doubt
}

/// Checks that the audience part of a job that has not ended exists with the right size.
async fn check_audience_part(
    store: &dyn Store,
    run: &CampaignRunRow,
    job: &JobRow,
) -> Result<Option<RunFinding>, Error> {
    if job.status.is_terminal() {
        return Ok(None);
    }
    let key = RowKey(vec![run.audience_id.to_value(), job.number.to_value()]);
    let part: Option<(AudiencePartRow, u64)> = store.read_record(key).await?;
    let problem = match part {
        Some((part, _)) if part.items == job.items => return Ok(None),
        Some((part, _)) => format!("has {} recipients instead of {}", part.items, job.items),
        None => "is missing".to_owned(),
    };
    Ok(Some((
        CampaignFindingKind::Missing,
        format!("the audience part of job {} {problem}", job.id),
    )))
}

/// The totals over all jobs of a run.
#[derive(Default)]
struct RunTotals {
    jobs: u32,
    ended_jobs: u32,
    counts: ItemCounts,
    /// Number of items in doubt that only an operator can resolve.
    awaiting_resolution: u64,
    /// Whether a worker holds an unexpired lease on one of the jobs.
    has_live_lease: bool,
    /// The earliest due time of the waiting jobs.
    earliest_due: Option<Timestamp>,
    /// Whether a waiting job has items that are still to be sent or skipped.
    has_open_items: bool,
    /// When the last job ended.
    last_ended: Option<Timestamp>,
}

impl RunTotals {
    fn add_job(&mut self, job: &JobRow, now: Timestamp) {
        self.jobs += 1;
        self.ended_jobs += u32::from(job.status.is_terminal());
        self.counts += row_mapping::job_counts(job);
        self.has_live_lease |= job.locked_until.is_some_and(|until| now < until);
        match job.status {
            JobStatus::Locked => {}
            JobStatus::Completed | JobStatus::Dead => {
                self.last_ended = self.last_ended.max(Some(job.run_after))
            }
            JobStatus::Queued | JobStatus::Failed if job.run_after == Timestamp::MAX => {
                self.awaiting_resolution += u64::from(job.in_doubt);
            }
            JobStatus::Queued | JobStatus::Failed => {
                self.earliest_due = Some(
                    self.earliest_due
                        .map_or(job.run_after, |due| due.min(job.run_after)),
                );
                self.has_open_items |= row_mapping::job_counts(job).open_items() > 0;
            }
        }
    }

    fn examine_totals(
        &self,
        run: &CampaignRunRow,
        coverage: RunCoverage,
        now: Timestamp,
    ) -> Vec<RunFinding> {
        let (status, control) = (run.status, run.control);
        let Self {
            jobs, ended_jobs, ..
        } = *self;
        let mut findings = Vec::new();
        if jobs != run.jobs {
            findings.push((
                CampaignFindingKind::Missing,
                format!(
                    "the run has {jobs} readable jobs, but was created with {}",
                    run.jobs
                ),
            ));
        }
        if status.is_terminal() && ended_jobs < jobs {
            findings.push((
                CampaignFindingKind::Inconsistent,
                format!(
                    "the run is {status}, but {} of its jobs have not ended",
                    jobs - ended_jobs
                ),
            ));
        }
        let expected = self.counts.final_run_status(coverage);
        if status.is_terminal() && ended_jobs == jobs && status != expected {
            findings.push((
                CampaignFindingKind::Inconsistent,
                format!("the run is {status}, but its items give the status {expected}"),
            ));
        }
        let is_paused = control == CampaignRunControl::Paused;
        if !status.is_terminal() && !is_paused && run.wake_at == Timestamp::MAX {
            findings.push((
                CampaignFindingKind::Stuck,
                "the run has not ended, but no time is scheduled at which it continues".to_owned(),
            ));
        }
        if self.awaiting_resolution > 0 {
            findings.push((
                CampaignFindingKind::InDoubt,
                format!(
                    "{} items are in doubt: list them with `onward outbox in-doubt` and settle them",
                    self.awaiting_resolution
                ),
            ));
        }
        let is_workable = !status.is_terminal() && !is_paused && !self.has_live_lease;
        if let Some(due) = self
            .due_time(run)
            .filter(|due| is_workable && due.plus_ms(OVERDUE_MS) <= now)
        {
            findings.push((
                CampaignFindingKind::Overdue,
                format!(
                    "the run has been due since {due}, and no worker processes it: start a server \
                     that has its provider"
                ),
            ));
        }
        findings
    }

    /// When the run has work to do, or `None` if it has none.
    fn due_time(&self, run: &CampaignRunRow) -> Option<Timestamp> {
        match self.earliest_due {
            // The open items of a cancelled run are skipped without waiting for their due time.
            Some(_) if run.control == CampaignRunControl::Cancelled && self.has_open_items => {
                Some(run.wake_at)
            }
            Some(due) => Some(due.max(run.wake_at)),
            // All jobs have ended, and only the run remains to be finished.
            None => self.last_ended.filter(|_| self.ended_jobs == self.jobs),
        }
    }
}
