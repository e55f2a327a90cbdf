//! Whose turn it is: tenants share the lanes of a node, however many jobs each has and however slow its provider is.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use onward_dispatch::JobStatus;
use onward_journal::Text;
use onward_store::tables::{CampaignRun, Job};
use tokio::time::Instant;

use crate::rows;

/// A job is not taken from its lane before it was there for so long.
const SLICE: Duration = Duration::from_secs(5);

/// Whoever had no turn for so long waits as long as anybody.
const FORGOTTEN: Duration = Duration::from_secs(600);

/// A job that was found, and its run.
pub(crate) struct Found {
    pub(crate) run: (CampaignRun, u64),
    pub(crate) job: (Job, u64),
}

impl Found {
    /// Whether another worker had it, and was not heard of again.
    pub(crate) fn is_stale(&self) -> bool {
        rows::job_status(&self.job.0) == JobStatus::Locked
    }
}

/// Jobs that were found and not taken yet: of each tenant, of each of its runs.
#[derive(Default)]
pub(crate) struct Line {
    tenants: BTreeMap<Text, BTreeMap<Text, VecDeque<Found>>>,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    pub(crate) fn push(&mut self, found: Found) {
        let (tenant, run) = (found.run.0.tenant_id.clone(), found.run.0.id.clone());
        self.tenants.entry(tenant).or_default().entry(run).or_default().push_back(found);
    }

    /// The next job: of the tenant that has the fewest lanes; of those, the one whose last turn was longest ago. In the same way
    /// its runs take turns.
    pub(crate) fn pop(&mut self, turns: &Turns) -> Option<Found> {
        let tenant = self.tenants.keys().min_by_key(|tenant| turns.tenants.turn(tenant))?.clone();
        let runs = self.tenants.get_mut(&tenant)?;
        let run = runs.keys().min_by_key(|run| turns.runs.turn(run))?.clone();
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
    pub(crate) fn without_lane<'a>(&'a self, turns: &'a Turns) -> impl Iterator<Item = &'a Found> {
        let without = self.tenants.iter().filter(|(tenant, _)| turns.of_tenant(tenant) == 0);
        without.filter_map(|(_, runs)| runs.values().next()?.front())
    }
}

/// How many lanes each has, and when the last turn of each was, as far back as it matters.
#[derive(Default)]
struct Shares {
    lanes: BTreeMap<Text, usize>,
    last: BTreeMap<Text, Instant>,
}

impl Shares {
    /// Whoever has the least is next.
    fn turn(&self, it: &Text) -> (usize, Option<Instant>) {
        (self.lanes.get(it).copied().unwrap_or(0), self.last.get(it).copied())
    }

    fn begin(&mut self, it: &Text, now: Instant) {
        *self.lanes.entry(it.clone()).or_default() += 1;
        self.last.retain(|_, last| now.duration_since(*last) < FORGOTTEN);
        self.last.insert(it.clone(), now);
    }

    fn end(&mut self, it: &Text) {
        if let Some(lanes) = self.lanes.get_mut(it) {
            *lanes -= 1;
        }
        self.lanes.retain(|_, lanes| *lanes > 0);
    }
}

/// A job that has a lane.
struct Turn {
    tenant: Text,
    run: Text,
    since: Instant,
}

/// The jobs that have lanes, and how those are shared.
#[derive(Default)]
pub(crate) struct Turns {
    jobs: BTreeMap<Text, Turn>,
    tenants: Shares,
    runs: Shares,
}

impl Turns {
    pub(crate) fn begin(&mut self, found: &Found) {
        let (tenant, run, since) = (found.run.0.tenant_id.clone(), found.run.0.id.clone(), Instant::now());
        self.tenants.begin(&tenant, since);
        self.runs.begin(&run, since);
        self.jobs.insert(found.job.0.id.clone(), Turn { tenant, run, since });
    }

    pub(crate) fn end(&mut self, job: &Text) {
        if let Some(Turn { tenant, run, .. }) = self.jobs.remove(job) {
            self.tenants.end(&tenant);
            self.runs.end(&run);
        }
    }

    /// Whether a job has a lane.
    pub(crate) fn has(&self, job: &Text) -> bool {
        self.jobs.contains_key(job)
    }

    /// How many lanes a tenant has.
    pub(crate) fn of_tenant(&self, tenant: &Text) -> usize {
        self.tenants.turn(tenant).0
    }

    /// Which jobs are to give way to so many tenants that wait and have no lane: the oldest of those who have most.
    pub(crate) fn to_give_way(&self, waiting: usize) -> Vec<Text> {
        let mut lanes = self.tenants.lanes.clone();
        let mut oldest: Vec<_> = self.jobs.iter().filter(|(_, turn)| turn.since.elapsed() >= SLICE).collect();
        oldest.sort_by_key(|(_, turn)| turn.since);
        let mut chosen = Vec::new();
        for _ in 0..waiting {
            let has = |turn: &Turn| lanes.get(&turn.tenant).copied().unwrap_or(0);
            let most = oldest.iter().enumerate().max_by_key(|(place, (_, turn))| (has(turn), usize::MAX - place));
            let Some(place) = most.map(|(place, _)| place) else { break };
            let (job, turn) = oldest.remove(place);
            lanes.entry(turn.tenant.clone()).and_modify(|lanes| *lanes -= 1);
            chosen.push(job.clone());
        }
        chosen
    }
}
