//! Checks that no campaign run is stuck or inconsistent: every job that is not over has a worker, a
//! due time, or items in doubt that an operator has to resolve; and the counts of jobs and runs
//! agree with their rows.
//!
//! Other processes may change the store meanwhile. Every change of a job updates its row, so a job
//! whose row version is the same before and after its items are read was read consistently; a job
//! that changed is read again.

use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{CampaignRunControl, ItemCounts, ItemState, JobStatus};
use onward_store::tables::{AudiencePartRow, CampaignRunRow, JobRow, OutboxItemRow};
use onward_store::{ColumnCodec as _, Error, RecordReader as _, RowKey, Store, TableScan};

use crate::row_mapping;
use crate::run_completion::was_cancelled_early;
use crate::scoped_campaigns::CampaignScope;

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
    scope: Option<&CampaignScope>,
    report: &mut (dyn FnMut(CampaignFinding) + Send),
) -> Result<CampaignDoctorStats, Error> {
    let mut looked = CampaignDoctorStats::default();
    let mut scan = match scope {
        None => TableScan::all_rows::<CampaignRunRow>(),
        Some(CampaignScope { tenant, workspace }) => {
            TableScan::by_index::<CampaignRunRow>(CampaignRunRow::BY_AGE)
                .where_equal(tenant)
                .where_equal(workspace)
        }
    };
    loop {
        let page: Vec<(CampaignRunRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = page.last() else {
            return Ok(looked);
        };
        scan = scan.starting_after(last);
        for (run, version) in page {
            let id = run.id.clone();
            for (ailment, message) in examine_until_stable(store, run, version, &mut looked).await?
            {
                report(CampaignFinding {
                    run_id: id.clone(),
                    kind: ailment,
                    message,
                });
            }
            looked.runs += 1;
        }
    }
}

/// Examines a run until its row does not change meanwhile, and returns its problems.
async fn examine_until_stable(
    store: &dyn Store,
    mut run: CampaignRunRow,
    mut version: u64,
    looked: &mut CampaignDoctorStats,
) -> Result<Vec<RunFinding>, Error> {
    for _ in 0..REREADS_MAX {
        let (wrong, items) = examine_run(store, &run).await?;
        looked.items += items;
        let now: Option<(CampaignRunRow, u64)> =
            store.read_record(RowKey(vec![run.id.to_value()])).await?;
        match now {
            Some((_, current)) if current == version => return Ok(wrong),
            Some((changed, current)) => (run, version) = (changed, current),
            None => return Ok(Vec::new()),
        }
        looked.items -= items;
    }
    Ok(Vec::new())
}

/// Examines a run once. Returns its problems and the number of items examined.
async fn examine_run(
    store: &dyn Store,
    run: &CampaignRunRow,
) -> Result<(Vec<RunFinding>, u64), Error> {
    let (mut wrong, mut whole, mut read) = (Vec::new(), RunTotals::default(), 0);
    let now = store.now().await?;
    let mut scan =
        TableScan::all_rows::<JobRow>().where_at_most(&SharedText::from(format!("{}.~", run.id)));
    scan.after = Some(vec![SharedText::from(format!("{}.", run.id)).to_value()]);
    loop {
        let page: Vec<(JobRow, u64)> = store.list_records(scan.clone()).await?;
        let Some((last, _)) = page.last() else { break };
        scan = scan.starting_after(last);
        for job in page {
            let (job, items) = read_stable_job(store, job).await?;
            if let Some(items) = items {
                read += items.len() as u64;
                wrong.extend(examine_job(&job, &items, now));
                wrong.extend(check_audience_part(store, run, &job).await?);
            }
            whole.add_job(&job, now);
        }
    }
    let is_cut_short = was_cancelled_early(store, run, &whole.counts).await?;
    wrong.extend(whole.examine_totals(run, is_cut_short, now));
    Ok((wrong, read))
}

/// Reads a job and its items consistently; without the items if the job keeps changing.
async fn read_stable_job(
    store: &dyn Store,
    (mut job, mut version): (JobRow, u64),
) -> Result<(JobRow, Option<Vec<OutboxItemRow>>), Error> {
    for _ in 0..REREADS_MAX {
        let items = row_mapping::read_job_items(store, &job.id).await?;
        let now: Option<(JobRow, u64)> = store.read_record(RowKey(vec![job.id.to_value()])).await?;
        match now {
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
    let (id, status, said) = (
        &job.id,
        row_mapping::job_status(job),
        row_mapping::job_counts(job),
    );
    let found = ItemCounts::from_states(items.iter().map(row_mapping::item_state));
    let held = items
        .iter()
        .filter(|item| row_mapping::item_state(item) == ItemState::Held)
        .count();
    let mut wrong = Vec::new();
    // A duplicate recipient has one row, and the job additionally counts an item as skipped.
    let counts = |tally: &ItemCounts| (tally.served, tally.failed, tally.in_doubt);
    if counts(&said) != counts(&found) || said.skipped < found.skipped || found.items > said.items {
        wrong.push((
            CampaignFindingKind::Inconsistent,
            format!("job {id} counts {said:?}, and its items are {found:?}"),
        ));
    }
    if status.is_terminal() && !said.is_settled() {
        wrong.push((
            CampaignFindingKind::Stuck,
            format!(
                "job {id} is {status}, and {} of its items are open",
                unsettled_items(&said)
            ),
        ));
    }
    if status != JobStatus::Locked && held > 0 {
        wrong.push((
            CampaignFindingKind::Stuck,
            format!("job {id} is {status}, and {held} of its items are held by nobody"),
        ));
    }
    let waits = matches!(status, JobStatus::Queued | JobStatus::Failed);
    if waits && job.run_after == Timestamp::MAX && said.in_doubt == 0 {
        wrong.push((
            CampaignFindingKind::Stuck,
            format!("job {id} waits for a verdict, and nothing of it is in doubt"),
        ));
    }
    if let Some(until) = job
        .locked_until
        .filter(|until| until.plus_ms(OVERDUE_MS) <= now)
    {
        wrong.push((
            CampaignFindingKind::Overdue,
            format!("job {id} was held until {until}, and nobody has taken it over since"),
        ));
    }
    wrong
}

const fn unsettled_items(tally: &ItemCounts) -> u64 {
    tally.open_items() + tally.in_doubt
}

/// Checks that the audience part of a job that is not over exists with the right size.
async fn check_audience_part(
    store: &dyn Store,
    run: &CampaignRunRow,
    job: &JobRow,
) -> Result<Option<RunFinding>, Error> {
    if row_mapping::job_status(job).is_terminal() {
        return Ok(None);
    }
    let key = RowKey(vec![run.audience_id.to_value(), job.number.to_value()]);
    let part: Option<(AudiencePartRow, u64)> = store.read_record(key).await?;
    let is_there = part.is_some_and(|(part, _)| part.items == job.items);
    Ok((!is_there).then(|| {
        (
            CampaignFindingKind::Missing,
            format!("those whom job {} is to reach are not there", job.id),
        )
    }))
}

/// The totals over all jobs of a run.
#[derive(Default)]
struct RunTotals {
    jobs: u32,
    terminal_jobs: u32,
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
        let status = row_mapping::job_status(job);
        self.jobs += 1;
        self.terminal_jobs += u32::from(status.is_terminal());
        self.counts += row_mapping::job_counts(job);
        self.has_live_lease |= job.locked_until.is_some_and(|until| now < until);
        match status {
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
        is_cut_short: bool,
        now: Timestamp,
    ) -> Vec<RunFinding> {
        let (status, control) = (
            row_mapping::run_status(run),
            CampaignRunControl::parse(&run.control),
        );
        let Self {
            jobs,
            terminal_jobs: over,
            counts: tally,
            awaiting_resolution: undecided,
            ..
        } = self;
        let mut wrong = Vec::new();
        if *jobs != run.jobs {
            wrong.push((
                CampaignFindingKind::Missing,
                format!(
                    "it has {jobs} jobs that can be read, and should have {}",
                    run.jobs
                ),
            ));
        }
        if status.is_terminal() && over < jobs {
            wrong.push((
                CampaignFindingKind::Inconsistent,
                format!(
                    "it is {status}, and {} of its jobs are not over",
                    jobs - over
                ),
            ));
        }
        let came_to = tally.final_run_status(is_cut_short);
        if status.is_terminal() && over == jobs && status != came_to {
            wrong.push((
                CampaignFindingKind::Inconsistent,
                format!("it is {status}, and its items say {came_to}"),
            ));
        }
        if !status.is_terminal()
            && control != Some(CampaignRunControl::Paused)
            && run.wake_at == Timestamp::MAX
        {
            wrong.push((
                CampaignFindingKind::Stuck,
                "it is not over, and nobody ever looks at it".to_owned(),
            ));
        }
        if *undecided > 0 {
            let words = "items are in doubt, and somebody has to say what became of them: onward outbox in-doubt";
            wrong.push((CampaignFindingKind::InDoubt, format!("{undecided} {words}")));
        }
        let is_wanted = !status.is_terminal()
            && control != Some(CampaignRunControl::Paused)
            && !self.has_live_lease;
        let due = match self.earliest_due {
            // The open items of a cancelled run are skipped without waiting for their due time.
            Some(_) if control == Some(CampaignRunControl::Cancelled) && self.has_open_items => {
                Some(run.wake_at)
            }
            Some(due) => Some(due.max(run.wake_at)),
            // All jobs are over, and only the run remains to be finished.
            None => self.last_ended.filter(|_| over == jobs),
        };
        if let Some(due) = due.filter(|due| is_wanted && due.plus_ms(OVERDUE_MS) <= now) {
            let words = "and nobody works on it: is there a server, and does it have the provider?";
            wrong.push((
                CampaignFindingKind::Overdue,
                format!("it is due since {due}, {words}"),
            ));
        }
        wrong
    }
}
