//! The dispatcher of a node: finds campaign runs that have something to do, takes their jobs in turn, and works on several at
//! a time. Any number of nodes do so on one store.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use onward_dispatch::{Conclusion, Control, JobStatus, Order};
use onward_journal::{Text, Timestamp};
use onward_store::tables::{CampaignRun, Job};
use onward_store::{Error, Field as _, Key, Kind, Records as _, Scan, Store, Value};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::clock::Clock;
use crate::entropy::Entropy;
use crate::finish::finish;
use crate::outlet::{Outlet, Outlets};
use crate::rows;
use crate::shut::Shut;
use crate::sweep::sweep;
use crate::turns::{Found, Line, Turns};
use crate::work::{Desk, End, Work};

/// Campaign runs that are looked at together.
const RUNS: usize = 200;

/// Jobs of a run that are looked for together.
const JOBS: usize = 32;

/// How often to look for audiences that nobody has deployed.
const SWEEP: Duration = Duration::from_secs(3_600);

/// How a dispatcher works.
#[derive(Debug, Clone)]
pub struct Options {
    /// What people see of it.
    pub worker: Text,
    /// Jobs at a time.
    pub lanes: usize,
    /// Jobs of one tenant at a time, on all nodes together.
    pub tenant_max: Option<u32>,
    /// How long a job is held by whoever is not heard of.
    pub lease: Duration,
    /// How often to look for work.
    pub look: Duration,
    /// What cannot be foreseen.
    pub entropy: Entropy,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            worker: "dispatcher".into(),
            lanes: 4,
            tenant_max: None,
            lease: Duration::from_secs(300),
            look: Duration::from_millis(500),
            entropy: Entropy::default(),
        }
    }
}

/// Takes jobs and works on them.
pub struct Dispatcher {
    store: Arc<dyn Store>,
    outlets: Arc<dyn Outlets>,
    options: Options,
    orders: Arc<Orders>,
    shut: Arc<Shut>,
    /// Where the next part of the runs begins that are looked at.
    place: Mutex<Option<Vec<Value>>>,
}

/// What is wanted of campaign runs and jobs, as far as this node knows.
#[derive(Default)]
struct Orders {
    controls: Mutex<BTreeMap<Text, Control>>,
    /// Jobs that are to be given back, so that others have a turn.
    yielding: Mutex<BTreeSet<Text>>,
}

impl Orders {
    fn of(&self, run: &Text) -> Order {
        match lock(&self.controls).get(run) {
            None | Some(Control::Active) => Order::Go,
            Some(Control::Paused) => Order::Release,
            Some(Control::Cancelled) => Order::Cancel,
        }
    }

    fn of_job(&self, run: &Text, job: &Text, is_stopping: bool) -> Order {
        let gives_way = is_stopping || lock(&self.yielding).contains(job);
        self.of(run).max(if gives_way { Order::Release } else { Order::Go })
    }

    fn note(&self, run: &CampaignRun) {
        let control = Control::parse(&run.control).unwrap_or(Control::Active);
        lock(&self.controls).insert(run.id.clone(), control);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a worker tells when it is done with a job.
struct Done {
    job: Text,
    run: CampaignRun,
    end: Result<End, Error>,
}

impl Dispatcher {
    /// A dispatcher of the campaign runs of a store.
    pub fn new(store: Arc<dyn Store>, outlets: Arc<dyn Outlets>, options: Options) -> Self {
        Self { store, outlets, options, orders: Arc::default(), shut: Arc::default(), place: Mutex::default() }
    }

    /// Works until it is stopped. Then it begins nothing more, and ends when what is under way is settled. Fails if the store
    /// cannot be relied on any more.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
        let mut lanes: JoinSet<Done> = JoinSet::new();
        // Jobs that are worked on, and those that could not be and are left alone for a while.
        let mut held: BTreeMap<Text, Option<Instant>> = BTreeMap::new();
        let mut turns = Turns::default();
        let mut line = Line::default();
        let mut swept: Option<Instant> = None;
        let mut looks = tokio::time::interval(self.options.look);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_stopping = *stop.borrow();
            if is_stopping && lanes.is_empty() {
                return Ok(());
            }
            if !is_stopping {
                held.retain(|_, until| until.is_none_or(|until| Instant::now() < until));
                if line.is_empty() && lanes.len() < self.options.lanes {
                    line = passing(self.find(&held).await)?.unwrap_or_default();
                }
                while lanes.len() < self.options.lanes
                    && let Some(found) = line.pop(&turns)
                {
                    // It may have been paused since it was found.
                    let is_paused = self.orders.of(&found.run.0.id) == Order::Release && !found.is_stale();
                    if is_paused || held.contains_key(&found.job.0.id) || !self.is_within_cap(&found, &turns).await? {
                        continue;
                    }
                    turns.begin(&found);
                    held.insert(found.job.0.id.clone(), None);
                    self.begin(&mut lanes, found, stop.clone());
                }
            }
            tokio::select! {
                biased;
                // However much there is to do, what is wanted of it is heard.
                _ = looks.tick(), if !is_stopping => {
                    passing(self.learn().await)?;
                    if lanes.len() >= self.options.lanes {
                        // Whoever came since is to have a turn as well.
                        line = passing(self.find(&held).await)?.unwrap_or_default();
                        let waiting = self.waiting(&line, &turns).await?;
                        lock(&self.orders.yielding).extend(turns.to_give_way(waiting));
                    }
                    if lanes.is_empty() && swept.is_none_or(|swept| swept.elapsed() >= SWEEP) {
                        passing(sweep(&*self.store).await)?;
                        swept = Some(Instant::now());
                    }
                    // However long that took, others have their turn before the next.
                    looks.reset();
                }
                Some(done) = lanes.join_next() => {
                    let done = done.map_err(|error| Error::Unusable(format!("a lane has ended: {error}")))?;
                    let job = done.job.clone();
                    held.remove(&job);
                    turns.end(&job);
                    lock(&self.orders.yielding).remove(&job);
                    if !self.end(done).await? {
                        held.insert(job, Some(Instant::now() + self.options.look * 4));
                    }
                }
                _ = stop.changed(), if !is_stopping => {}
            }
        }
    }

    /// Locks one job that can be taken now, and leaves it so. Tells whether there was one.
    pub(crate) async fn claim(&self) -> Result<bool, Error> {
        let Some(Found { run, job }) = self.find(&BTreeMap::new()).await?.pop(&Turns::default()) else {
            return Ok(false);
        };
        let outlet = self.outlets.outlet(&run.0).map_err(Error::Unusable)?;
        let clock = Clock::ask(&*self.store).await?;
        let Options { lease, worker, entropy, .. } = self.options.clone();
        let desk = Desk { store: Arc::clone(&self.store), clock, lease, worker, entropy };
        Work::prepare(&desk, run, outlet, job).await?.lock().await
    }

    /// Learns what is wanted of the runs that are under way.
    async fn learn(&self) -> Result<(), Error> {
        let runs: Vec<Text> = lock(&self.orders.controls).keys().cloned().collect();
        for run in runs {
            let stored: Option<(CampaignRun, u64)> = self.store.get(Key(vec![run.to_value()])).await?;
            match stored {
                Some((run, _)) if run.ended_at.is_none() => self.orders.note(&run),
                _ => drop(lock(&self.orders.controls).remove(&run)),
            }
        }
        Ok(())
    }

    /// Jobs that can be taken now, of all runs that have some; first those whose workers were not heard of again.
    async fn find(&self, held: &BTreeMap<Text, Option<Instant>>) -> Result<Line, Error> {
        let clock = Clock::ask(&*self.store).await?;
        let now = clock.now();
        let mut line = Line::default();
        self.find_stale(&mut line, held, now).await?;
        for run in self.due(now).await? {
            self.orders.note(&run.0);
            if self.shut.is(&run.0) || self.orders.of(&run.0.id) == Order::Release {
                continue;
            }
            let found = self.jobs_of(&run.0, now).await?;
            let mut is_idle = found.is_empty();
            for job in found.into_iter().filter(|(job, _)| !held.contains_key(&job.id)) {
                is_idle = false;
                line.push(Found { run: run.clone(), job });
            }
            if is_idle {
                finish(&*self.store, &run.0.id, now).await?;
            }
        }
        Ok(line)
    }

    /// Jobs whose workers were not heard of again, also those of runs that are paused: what they held is in doubt.
    async fn find_stale(
        &self,
        line: &mut Line,
        held: &BTreeMap<Text, Option<Instant>>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let locked = Text::from(JobStatus::Locked.as_str());
        let mut scan = Scan::by::<Job>(Job::BY_STATUS).equal(&locked).until(&now).limit(JOBS);
        loop {
            let page: Vec<(Job, u64)> = self.store.list(scan.clone()).await?;
            let Some((last, _)) = page.last() else { return Ok(()) };
            let is_last = page.len() < JOBS;
            scan = scan.after(last);
            for job in page.into_iter().filter(|(job, _)| !held.contains_key(&job.id)) {
                let run: Option<(CampaignRun, u64)> = self.store.get(Key(vec![job.0.run_id.to_value()])).await?;
                if let Some(run) = run {
                    self.orders.note(&run.0);
                    line.push(Found { run, job });
                }
            }
            if is_last || !line.is_empty() {
                return Ok(());
            }
        }
    }

    /// Runs that have something to do, or wait, a part of them at a time: those that wait must not hide the others.
    async fn due(&self, now: Timestamp) -> Result<Vec<(CampaignRun, u64)>, Error> {
        let mut scan = Scan::by::<CampaignRun>(CampaignRun::BY_WAKE).until(&now).limit(RUNS);
        scan.after = lock(&self.place).take();
        let due: Vec<(CampaignRun, u64)> = self.store.list(scan.clone()).await?;
        if let Some((last, _)) = due.last().filter(|_| due.len() == RUNS) {
            *lock(&self.place) = scan.after(last).after;
        }
        Ok(due)
    }

    async fn jobs_of(&self, run: &CampaignRun, now: Timestamp) -> Result<Vec<(Job, u64)>, Error> {
        let is_cancelled = Control::parse(&run.control) == Some(Control::Cancelled);
        let mut found = Vec::new();
        for status in [JobStatus::Queued, JobStatus::Failed] {
            let scan = Scan::by::<Job>(Job::BY_TURN).equal(&run.id).equal(&Text::from(status.as_str()));
            let due: Vec<(Job, u64)> = self.store.list(scan.clone().until(&now).limit(JOBS)).await?;
            // Nobody waits for a time at which nobody is to be reached.
            if due.is_empty() && is_cancelled {
                let waiting: Vec<(Job, u64)> = self.store.list(scan).await?;
                found.extend(waiting.into_iter().filter(|(job, _)| rows::tally(job).open() > 0).take(JOBS));
            }
            found.extend(due);
        }
        Ok(found)
    }

    /// How many tenants wait in the line that have no lane, and could use one.
    async fn waiting(&self, line: &Line, turns: &Turns) -> Result<usize, Error> {
        let mut waiting = 0;
        for found in line.without_lane(turns) {
            waiting += usize::from(self.is_within_cap(found, turns).await?);
        }
        Ok(waiting)
    }

    /// Whether another job of the tenant may be worked on.
    async fn is_within_cap(&self, found: &Found, turns: &Turns) -> Result<bool, Error> {
        let Some(max) = self.options.tenant_max else { return Ok(true) };
        let (tenant, max) = (&found.run.0.tenant_id, max as usize);
        let here = turns.of_tenant(tenant);
        // Whoever takes over a job of somebody who is gone has one instead of them.
        if here >= max || found.is_stale() {
            return Ok(here < max);
        }
        let Some(now) = passing(self.store.now().await)? else { return Ok(false) };
        let locked = Text::from(JobStatus::Locked.as_str());
        let mut its = Scan::by::<Job>(Job::BY_TENANT).equal(tenant).equal(&locked).limit(max + here);
        its.after = Some(its.equal.iter().cloned().chain([now.to_value(), Text::from("").to_value()]).collect());
        let Some(its) = passing(self.store.list::<Job>(its).await)? else { return Ok(false) };
        // Those that were begun here may not be locked yet, and are counted once.
        let elsewhere = its.iter().filter(|(job, _)| !turns.has(&job.id)).count();
        Ok(elsewhere + here < max)
    }

    fn begin(&self, lanes: &mut JoinSet<Done>, found: Found, stop: watch::Receiver<bool>) {
        let is_stale = found.is_stale();
        let Found { run, job } = found;
        let (store, orders, outlets) = (Arc::clone(&self.store), Arc::clone(&self.orders), Arc::clone(&self.outlets));
        let shut = Arc::clone(&self.shut);
        let Options { lease, worker, entropy, .. } = self.options.clone();
        lanes.spawn(async move {
            let (id, of_run) = (job.0.id.clone(), run.0.clone());
            let is_cancelled = Control::parse(&run.0.control) == Some(Control::Cancelled);
            let work = async {
                let (mut least, run_id, job_id) = (Order::Go, of_run.id.clone(), id.clone());
                let outlet = match outlets.outlet(&run.0) {
                    Ok(outlet) => outlet,
                    // Nobody is reached by it: nothing is begun.
                    Err(_) if is_cancelled || is_stale => {
                        least = Order::Release;
                        Arc::new(Outlet::closed())
                    }
                    Err(error) => {
                        shut.note(&*store, &run.0, &worker, &error).await?;
                        return Ok(End::Lost);
                    }
                };
                let clock = Clock::ask(&*store).await?;
                let desk = Desk { store: Arc::clone(&store), clock, lease, worker, entropy };
                let order = || orders.of_job(&run_id, &job_id, *stop.borrow()).max(least);
                Work::prepare(&desk, run, outlet, job).await?.perform(order).await
            };
            let end = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(job = %id, "work on a job panicked; it is tried again when its lease has run out");
                Ok(End::Lost)
            });
            Done { end, job: id, run: of_run }
        });
    }

    /// Tells whether there was an end.
    async fn end(&self, done: Done) -> Result<bool, Error> {
        let Done { job, run, end } = done;
        // What cannot be stored, or read, will not be so by itself: people are to know.
        if let Err(error) = &end
            && matches!(error.kind(), Kind::Invalid | Kind::Corrupt)
        {
            passing(self.shut.note(&*self.store, &run, &self.options.worker, &error.to_string()).await)?;
        }
        let end = passing(end)?;
        match end {
            Some(End::Concluded(Conclusion::Completed | Conclusion::Dead)) => {
                let now = passing(self.store.now().await)?;
                if let Some(now) = now {
                    passing(finish(&*self.store, &run.id, now).await)?;
                }
            }
            Some(End::Concluded(conclusion)) => tracing::debug!(%job, ?conclusion, "a job is put off"),
            Some(End::Lost) => tracing::debug!(%job, "another has the job"),
            None => {}
        }
        Ok(matches!(end, Some(End::Concluded(_))))
    }
}

/// What passes is logged, and tried again; the rest is not.
fn passing<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(it) => Ok(Some(it)),
        Err(error) if matches!(error.kind(), Kind::Fatal) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "the dispatcher will try again");
            Ok(None)
        }
    }
}
