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
    tenants: VecDeque<(Text, VecDeque<Found>)>,
}

impl Line {
    pub(crate) fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    pub(crate) fn push(&mut self, found: Found) {
        let tenant = &found.run.0.tenant_id;
        match self.tenants.iter_mut().find(|(it, _)| it == tenant) {
            Some((_, line)) => line.push_back(found),
            None => self.tenants.push_back((tenant.clone(), [found].into())),
        }
    }

    /// The next job: of the tenant that has the fewest lanes; of those, the one whose last turn was longest ago.
    pub(crate) fn pop(&mut self, turns: &Turns) -> Option<Found> {
        let turn = |tenant: &Text| (turns.of(tenant), turns.last.get(tenant));
        let (place, _) = self.tenants.iter().enumerate().min_by_key(|(_, (tenant, _))| turn(tenant))?;
        let (tenant, mut line) = self.tenants.remove(place)?;
        let found = line.pop_front();
        if !line.is_empty() {
            self.tenants.push_back((tenant, line));
        }
        found
    }
}

/// The jobs that have lanes: whose they are, and since when.
#[derive(Default)]
pub(crate) struct Turns {
    jobs: BTreeMap<Text, (Text, Instant)>,
    /// When tenants had their last turn, as far back as it matters.
    last: BTreeMap<Text, Instant>,
}

impl Turns {
    pub(crate) fn begin(&mut self, found: &Found) {
        let (tenant, now) = (&found.run.0.tenant_id, Instant::now());
        self.jobs.insert(found.job.0.id.clone(), (tenant.clone(), now));
        self.last.retain(|_, last| now.duration_since(*last) < FORGOTTEN);
        self.last.insert(tenant.clone(), now);
    }

    pub(crate) fn end(&mut self, job: &Text) {
        self.jobs.remove(job);
    }

    /// How many lanes a tenant has.
    pub(crate) fn of(&self, tenant: &Text) -> usize {
        self.jobs.values().filter(|(it, _)| it == tenant).count()
    }

    /// Which jobs are to give way to tenants that wait in the line and have no lane: the oldest of those who have most.
    pub(crate) fn to_give_way(&self, line: &Line) -> Vec<Text> {
        let waiting = line.tenants.iter().filter(|(tenant, _)| self.of(tenant) == 0).count();
        let mut lanes: BTreeMap<&Text, usize> = BTreeMap::new();
        for (tenant, _) in self.jobs.values() {
            *lanes.entry(tenant).or_default() += 1;
        }
        let mut oldest: Vec<_> = self.jobs.iter().filter(|(_, (_, since))| since.elapsed() >= SLICE).collect();
        oldest.sort_by_key(|(_, (_, since))| *since);
        let mut chosen = Vec::new();
        for _ in 0..waiting {
            let most = oldest.iter().enumerate().max_by_key(|(place, (_, (it, _)))| (lanes[it], usize::MAX - place));
            let Some((place, (_, (tenant, _)))) = most else { break };
            lanes.entry(tenant).and_modify(|lanes| *lanes -= 1);
            chosen.push(oldest.remove(place).0.clone());
        }
        chosen
    }
}
