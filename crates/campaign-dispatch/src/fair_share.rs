//! Fair scheduling: tenants share the job slots of a node, however many jobs each has and however
//! slow its provider is.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use onward_base::SharedText;
use onward_campaign_core::JobStatus;
use onward_store::tables::{CampaignRunRow, JobRow};
use tokio::time::Instant;

/// Minimum time that a job runs before it can be preempted.
const TIME_SLICE: Duration = Duration::from_secs(5);

/// How long the last start of a tenant or run is remembered. After that, it ranks equally with
/// those that never started.
const LAST_START_RETENTION: Duration = Duration::from_secs(600);

/// A due job and its run, each with its row version.
pub(crate) struct DueJob {
    pub(crate) run: (CampaignRunRow, u64),
    pub(crate) job: (JobRow, u64),
}

impl DueJob {
    /// Whether another worker had claimed the job and its lease expired.
    pub(crate) fn has_expired_lease(&self) -> bool {
        self.job.0.status == JobStatus::Locked
    }
}

/// Due jobs that are not started yet, by tenant and run.
#[derive(Default)]
pub(crate) struct JobQueue {
    tenants: BTreeMap<SharedText, BTreeMap<SharedText, VecDeque<DueJob>>>,
}

impl JobQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    pub(crate) fn push(&mut self, due: DueJob) {
        let (tenant, run) = (due.run.0.tenant_id.clone(), due.run.0.id.clone());
        self.tenants
            .entry(tenant)
            .or_default()
            .entry(run)
            .or_default()
            .push_back(due);
    }

    /// Removes the next job: of the tenant with the fewest running jobs, and among equals of the
    /// one that started a job least recently. The runs of the tenant are ordered in the same way.
    pub(crate) fn pop(&mut self, fair_share: &FairShare) -> Option<DueJob> {
        let tenant = self
            .tenants
            .keys()
            .min_by_key(|tenant| fair_share.tenants.fairness_key(tenant))?
            .clone();
        let runs = self.tenants.get_mut(&tenant)?;
        let run = runs
            .keys()
            .min_by_key(|run| fair_share.runs.fairness_key(run))?
            .clone();
        let jobs = runs.get_mut(&run)?;
        let next = jobs.pop_front();
        if jobs.is_empty() {
            runs.remove(&run);
        }
        if runs.is_empty() {
            self.tenants.remove(&tenant);
        }
        next
    }

    /// One due job of each tenant that has no running job.
    pub(crate) fn jobs_of_waiting_tenants<'a>(
        &'a self,
        fair_share: &'a FairShare,
    ) -> impl Iterator<Item = &'a DueJob> {
        let waiting = self
            .tenants
            .iter()
            .filter(|(tenant, _)| fair_share.tenant_job_count(tenant) == 0);
        waiting.filter_map(|(_, runs)| runs.values().next()?.front())
    }
}

/// Number of running jobs per tenant or run, and the last start of each within
/// [`LAST_START_RETENTION`].
#[derive(Default)]
struct RunningCounts {
    running: BTreeMap<SharedText, usize>,
    last_started: BTreeMap<SharedText, Instant>,
}

impl RunningCounts {
    /// The sort key of fair scheduling: the smallest key is next.
    fn fairness_key(&self, id: &SharedText) -> (usize, Option<Instant>) {
        (
            self.running.get(id).copied().unwrap_or(0),
            self.last_started.get(id).copied(),
        )
    }

    fn record_start(&mut self, id: &SharedText, now: Instant) {
        *self.running.entry(id.clone()).or_default() += 1;
        self.last_started
            .retain(|_, last| now.duration_since(*last) < LAST_START_RETENTION);
        self.last_started.insert(id.clone(), now);
    }

    fn record_end(&mut self, id: &SharedText) {
        if let Some(count) = self.running.get_mut(id) {
            *count -= 1;
        }
        self.running.retain(|_, count| *count > 0);
    }
}

/// A job that is running on this node.
struct RunningJob {
    tenant_id: SharedText,
    run_id: SharedText,
    started_at: Instant,
}

/// The jobs running on this node, counted by tenant and by run.
#[derive(Default)]
pub(crate) struct FairShare {
    jobs: BTreeMap<SharedText, RunningJob>,
    tenants: RunningCounts,
    runs: RunningCounts,
}

impl FairShare {
    pub(crate) fn start_job(&mut self, due: &DueJob) {
        let job = RunningJob {
            tenant_id: due.run.0.tenant_id.clone(),
            run_id: due.run.0.id.clone(),
            started_at: Instant::now(),
        };
        self.tenants.record_start(&job.tenant_id, job.started_at);
        self.runs.record_start(&job.run_id, job.started_at);
        self.jobs.insert(due.job.0.id.clone(), job);
    }

    pub(crate) fn finish_job(&mut self, job: &SharedText) {
        if let Some(ended) = self.jobs.remove(job) {
            self.tenants.record_end(&ended.tenant_id);
            self.runs.record_end(&ended.run_id);
        }
    }

    /// Whether the job is running on this node.
    pub(crate) fn is_running(&self, job: &SharedText) -> bool {
        self.jobs.contains_key(job)
    }

    /// Number of jobs of a tenant that are running on this node.
    pub(crate) fn tenant_job_count(&self, tenant: &SharedText) -> usize {
        self.tenants.fairness_key(tenant).0
    }

    /// Selects the jobs to preempt for `waiting` tenants that have no running job: the oldest jobs
    /// of the tenants with the most running jobs.
    pub(crate) fn jobs_to_preempt(&self, waiting: usize) -> Vec<SharedText> {
        let mut running = self.tenants.running.clone();
        let mut oldest: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, job)| job.started_at.elapsed() >= TIME_SLICE)
            .collect();
        oldest.sort_by_key(|(_, job)| job.started_at);
        let mut preempted = Vec::new();
        for _ in 0..waiting {
            let tenant_jobs = |job: &RunningJob| running.get(&job.tenant_id).copied().unwrap_or(0);
            let next = oldest
                .iter()
                .enumerate()
                .max_by_key(|(index, (_, job))| (tenant_jobs(job), usize::MAX - index));
            let Some(index) = next.map(|(index, _)| index) else {
                break;
            };
            let (id, job) = oldest.remove(index);
            running
                .entry(job.tenant_id.clone())
                .and_modify(|count| *count -= 1);
            preempted.push(id.clone());
        }
        preempted
    }
}
