//! Whose turn it is: tenants share the lanes of a node, however many jobs each has and however slow its provider is.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use onward_base::SharedText;
use onward_campaign_core::JobStatus;
use onward_store::tables::{CampaignRunRow, JobRow};
use tokio::time::Instant;

use crate::row_mapping;

/// A job is not taken from its lane before it was there for so long.
const TIME_SLICE: Duration = Duration::from_secs(5);

/// Whoever had no turn for so long waits as long as anybody.
const LAST_START_RETENTION: Duration = Duration::from_secs(600);

/// A job that was found, and its run.
pub(crate) struct DueJob {
    pub(crate) run: (CampaignRunRow, u64),
    pub(crate) job: (JobRow, u64),
}

impl DueJob {
    /// Whether another worker had it, and was not heard of again.
    pub(crate) fn has_expired_lease(&self) -> bool {
        row_mapping::job_status(&self.job.0) == JobStatus::Locked
    }
}

/// Jobs that were found and not taken yet: of each tenant, of each of its runs.
#[derive(Default)]
pub(crate) struct JobQueue {
    tenants: BTreeMap<SharedText, BTreeMap<SharedText, VecDeque<DueJob>>>,
}

impl JobQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    pub(crate) fn push(&mut self, found: DueJob) {
        let (tenant, run) = (found.run.0.tenant_id.clone(), found.run.0.id.clone());
        self.tenants
            .entry(tenant)
            .or_default()
            .entry(run)
            .or_default()
            .push_back(found);
    }

    /// The next job: of the tenant that has the fewest lanes; of those, the one whose last turn was longest ago. In the same way
    /// its runs take turns.
    pub(crate) fn pop(&mut self, turns: &FairShare) -> Option<DueJob> {
        let tenant = self
            .tenants
            .keys()
            .min_by_key(|tenant| turns.tenants.fairness_key(tenant))?
            .clone();
        let runs = self.tenants.get_mut(&tenant)?;
        let run = runs
            .keys()
            .min_by_key(|run| turns.runs.fairness_key(run))?
            .clone();
        let jobs = runs.get_mut(&run)?;
        let found = jobs.pop_front();
        if jobs.is_empty() {
            runs.remove(&run);
        }
        if runs.is_empty() {
            self.tenants.remove(&tenant);
        }
        found
    }

    /// A job of each tenant that has no lane.
    pub(crate) fn jobs_of_waiting_tenants<'a>(
        &'a self,
        turns: &'a FairShare,
    ) -> impl Iterator<Item = &'a DueJob> {
        let without = self
            .tenants
            .iter()
            .filter(|(tenant, _)| turns.tenant_job_count(tenant) == 0);
        without.filter_map(|(_, runs)| runs.values().next()?.front())
    }
}

/// How many lanes each has, and when the last turn of each was, as far back as it matters.
#[derive(Default)]
struct RunningCounts {
    running: BTreeMap<SharedText, usize>,
    last_started: BTreeMap<SharedText, Instant>,
}

impl RunningCounts {
    /// Whoever has the least is next.
    fn fairness_key(&self, it: &SharedText) -> (usize, Option<Instant>) {
        (
            self.running.get(it).copied().unwrap_or(0),
            self.last_started.get(it).copied(),
        )
    }

    fn record_start(&mut self, it: &SharedText, now: Instant) {
        *self.running.entry(it.clone()).or_default() += 1;
        self.last_started
            .retain(|_, last| now.duration_since(*last) < LAST_START_RETENTION);
        self.last_started.insert(it.clone(), now);
    }

    fn record_end(&mut self, it: &SharedText) {
        if let Some(lanes) = self.running.get_mut(it) {
            *lanes -= 1;
        }
        self.running.retain(|_, lanes| *lanes > 0);
    }
}

/// A job that has a lane.
struct RunningJob {
    tenant_id: SharedText,
    run_id: SharedText,
    started_at: Instant,
}

/// The jobs that have lanes, and how those are shared.
#[derive(Default)]
pub(crate) struct FairShare {
    jobs: BTreeMap<SharedText, RunningJob>,
    tenants: RunningCounts,
    runs: RunningCounts,
}

impl FairShare {
    pub(crate) fn start_job(&mut self, found: &DueJob) {
        let (tenant, run, since) = (
            found.run.0.tenant_id.clone(),
            found.run.0.id.clone(),
            Instant::now(),
        );
        self.tenants.record_start(&tenant, since);
        self.runs.record_start(&run, since);
        self.jobs.insert(
            found.job.0.id.clone(),
            RunningJob {
                tenant_id: tenant,
                run_id: run,
                started_at: since,
            },
        );
    }

    pub(crate) fn finish_job(&mut self, job: &SharedText) {
        if let Some(RunningJob {
            tenant_id: tenant,
            run_id: run,
            ..
        }) = self.jobs.remove(job)
        {
            self.tenants.record_end(&tenant);
            self.runs.record_end(&run);
        }
    }

    /// Whether a job has a lane.
    pub(crate) fn is_running(&self, job: &SharedText) -> bool {
        self.jobs.contains_key(job)
    }

    /// How many lanes a tenant has.
    pub(crate) fn tenant_job_count(&self, tenant: &SharedText) -> usize {
        self.tenants.fairness_key(tenant).0
    }

    /// Which jobs are to give way to so many tenants that wait and have no lane: the oldest of those who have most.
    pub(crate) fn jobs_to_preempt(&self, waiting: usize) -> Vec<SharedText> {
        let mut lanes = self.tenants.running.clone();
        let mut oldest: Vec<_> = self
            .jobs
            .iter()
            .filter(|(_, turn)| turn.started_at.elapsed() >= TIME_SLICE)
            .collect();
        oldest.sort_by_key(|(_, turn)| turn.started_at);
        let mut chosen = Vec::new();
        for _ in 0..waiting {
            let has = |turn: &RunningJob| lanes.get(&turn.tenant_id).copied().unwrap_or(0);
            let most = oldest
                .iter()
                .enumerate()
                .max_by_key(|(place, (_, turn))| (has(turn), usize::MAX - place));
            let Some(place) = most.map(|(place, _)| place) else {
                break;
            };
            let (job, turn) = oldest.remove(place);
            lanes
                .entry(turn.tenant_id.clone())
                .and_modify(|lanes| *lanes -= 1);
            chosen.push(job.clone());
        }
        chosen
    }
}
