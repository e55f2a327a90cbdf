//! The dispatcher of a node: finds campaign runs with due jobs, claims jobs in a fair order and
//! processes several concurrently. Any number of nodes can dispatch from one store.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use onward_base::{SharedText, Timestamp};
use onward_campaign_core::{AttemptDirective, AttemptOutcome, CampaignRunControl, JobStatus};
use onward_store::tables::{CampaignRunRow, JobRow};
use onward_store::{
    ColumnCodec as _, ColumnValue, Error, RecordReader as _, RowKey, Store, StoreErrorKind,
    TableScan,
};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};

use crate::audience_sweep::sweep_audiences;
use crate::clock::EstimatedClock;
use crate::delivery::{CampaignDelivery, DeliveryResolver};
use crate::entropy::EntropySource;
use crate::fair_share::{DueJob, FairShare, JobQueue};
use crate::job::{JobContext, JobRunEnd, JobRunner};
use crate::row_mapping;
use crate::run_completion::finish_run;
use crate::unsendable_runs::UnsendableRuns;

/// Maximum number of campaign runs read in one page.
const RUNS_PAGE: usize = 200;

/// Maximum number of jobs of a run read in one page.
const JOBS_PAGE: usize = 32;

/// How often the dispatcher sweeps audiences that were never deployed.
const SWEEP_INTERVAL: Duration = Duration::from_secs(3_600);

/// Settings of a dispatcher.
#[derive(Debug, Clone)]
pub struct Options {
    /// The worker name in audit entries. Default: `dispatcher`.
    pub worker_name: SharedText,
    /// Maximum number of jobs that this dispatcher processes concurrently. Default: 4.
    pub concurrency: usize,
    /// Maximum number of jobs of one tenant in progress on all nodes together. Default: no limit.
    pub tenant_concurrency: Option<u32>,
    /// How long a claim on a job stays valid without renewal. Default: 300 s.
    pub lease: Duration,
    /// How often the dispatcher polls the store for work and for changed controls. Default: 500 ms.
    pub poll_interval: Duration,
    /// The source of random ids and jitter. Default: the operating system.
    pub entropy: EntropySource,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            worker_name: "dispatcher".into(),
            concurrency: 4,
            tenant_concurrency: None,
            lease: Duration::from_secs(300),
            poll_interval: Duration::from_millis(500),
            entropy: EntropySource::default(),
        }
    }
}

/// Claims the due jobs of a store and processes them.
pub struct Dispatcher {
    store: Arc<dyn Store>,
    deliveries: Arc<dyn DeliveryResolver>,
    options: Options,
    directives: Arc<RunDirectives>,
    unsendable_runs: Arc<UnsendableRuns>,
    /// The position after which the next page of due runs starts. `None` starts from the beginning.
    scan_position: Mutex<Option<Vec<ColumnValue>>>,
}

/// The directives for campaign runs and jobs, as far as this node has read them.
#[derive(Default)]
struct RunDirectives {
    controls: Mutex<BTreeMap<SharedText, CampaignRunControl>>,
    /// Jobs to release, so that other tenants get a slot.
    preempted: Mutex<BTreeSet<SharedText>>,
}

impl RunDirectives {
    fn run_directive(&self, run: &SharedText) -> AttemptDirective {
        match lock_mutex(&self.controls).get(run) {
            None | Some(CampaignRunControl::Active) => AttemptDirective::Continue,
            Some(CampaignRunControl::Paused) => AttemptDirective::Release,
            Some(CampaignRunControl::Cancelled) => AttemptDirective::Cancel,
        }
    }

    fn job_directive(
        &self,
        run: &SharedText,
        job: &SharedText,
        is_stopping: bool,
    ) -> AttemptDirective {
        let gives_way = is_stopping || lock_mutex(&self.preempted).contains(job);
        self.run_directive(run).max(if gives_way {
            AttemptDirective::Release
        } else {
            AttemptDirective::Continue
        })
    }

    fn record_control(&self, run: &CampaignRunRow) {
        let control = CampaignRunControl::parse(&run.control).unwrap_or(CampaignRunControl::Active);
        lock_mutex(&self.controls).insert(run.id.clone(), control);
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result that a job's task returns to the dispatcher loop.
struct FinishedJob {
    job_id: SharedText,
    run: CampaignRunRow,
    result: Result<JobRunEnd, Error>,
}

impl Dispatcher {
    /// Creates a dispatcher for the campaign runs of a store.
    pub fn new(
        store: Arc<dyn Store>,
        outlets: Arc<dyn DeliveryResolver>,
        options: Options,
    ) -> Self {
        Self {
            store,
            deliveries: outlets,
            options,
            directives: Arc::default(),
            unsendable_runs: Arc::default(),
            scan_position: Mutex::default(),
        }
    }

    /// Dispatches jobs until `stop` is true. Then the dispatcher drains: it starts no new sends and
    /// returns when all work in progress is settled. Fails if the store reports a fatal error.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
        let mut lanes: JoinSet<FinishedJob> = JoinSet::new();
        // Jobs in progress (`None`), and jobs that could not be processed, with the time until
        // which they are not retried.
        let mut held: BTreeMap<SharedText, Option<Instant>> = BTreeMap::new();
        let mut turns = FairShare::default();
        let mut line = JobQueue::default();
        let mut swept: Option<Instant> = None;
        let mut looks = tokio::time::interval(self.options.poll_interval);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_stopping = *stop.borrow();
            if is_stopping && lanes.is_empty() {
                return Ok(());
            }
            if !is_stopping {
                held.retain(|_, until| until.is_none_or(|until| Instant::now() < until));
                if line.is_empty() && lanes.len() < self.options.concurrency {
                    line = tolerate_transient_error(self.find_due_jobs(&held).await)?
                        .unwrap_or_default();
                }
                while lanes.len() < self.options.concurrency
                    && let Some(found) = line.pop(&turns)
                {
                    // The run may have been paused after the job was found.
                    let is_paused = self.directives.run_directive(&found.run.0.id)
                        == AttemptDirective::Release
                        && !found.has_expired_lease();
                    if is_paused
                        || held.contains_key(&found.job.0.id)
                        || !self.is_within_tenant_limit(&found, &turns).await?
                    {
                        continue;
                    }
                    turns.start_job(&found);
                    held.insert(found.job.0.id.clone(), None);
                    self.spawn_job(&mut lanes, found, stop.clone());
                }
            }
            tokio::select! {
                biased;
                // Polled first (`biased`), so that pause and cancel take effect under any load.
                _ = looks.tick(), if !is_stopping => {
                    tolerate_transient_error(self.refresh_controls().await)?;
                    if lanes.len() >= self.options.concurrency {
                        // Tenants whose jobs became due since the last scan also get a slot.
                        line = tolerate_transient_error(self.find_due_jobs(&held).await)?.unwrap_or_default();
                        let waiting = self.count_waiting_tenants(&line, &turns).await?;
                        lock_mutex(&self.directives.preempted).extend(turns.jobs_to_preempt(waiting));
                    }
                    if lanes.is_empty() && swept.is_none_or(|swept| swept.elapsed() >= SWEEP_INTERVAL) {
                        tolerate_transient_error(sweep_audiences(&*self.store).await)?;
                        swept = Some(Instant::now());
                    }
                    // However long this poll took, finished jobs are handled before the next one.
                    looks.reset();
                }
                Some(done) = lanes.join_next() => {
                    let done = done.map_err(|error| Error::Unusable(format!("a lane has ended: {error}")))?;
                    let job = done.job_id.clone();
                    held.remove(&job);
                    turns.finish_job(&job);
                    lock_mutex(&self.directives.preempted).remove(&job);
                    if !self.handle_finished_job(done).await? {
                        held.insert(job, Some(Instant::now() + self.options.poll_interval * 4));
                    }
                }
                _ = stop.changed(), if !is_stopping => {}
            }
        }
    }

    /// Claims one due job and leaves it locked. Returns false if no job is due.
    pub(crate) async fn claim_job(&self) -> Result<bool, Error> {
        let Some(DueJob { run, job }) = self
            .find_due_jobs(&BTreeMap::new())
            .await?
            .pop(&FairShare::default())
        else {
            return Ok(false);
        };
        let outlet = self
            .deliveries
            .resolve_delivery(&run.0)
            .map_err(Error::Unusable)?;
        let clock = EstimatedClock::read_from_store(&*self.store).await?;
        let Options {
            lease,
            worker_name: worker,
            entropy,
            ..
        } = self.options.clone();
        let desk = JobContext {
            store: Arc::clone(&self.store),
            clock,
            lease,
            worker_name: worker,
            entropy,
        };
        JobRunner::load_job(&desk, run, outlet, job)
            .await?
            .lock_job()
            .await
    }

    /// Reads the current control of every run with known directives; drops runs that are over.
    async fn refresh_controls(&self) -> Result<(), Error> {
        let runs: Vec<SharedText> = lock_mutex(&self.directives.controls)
            .keys()
            .cloned()
            .collect();
        for run in runs {
            let stored: Option<(CampaignRunRow, u64)> =
                self.store.read_record(RowKey(vec![run.to_value()])).await?;
            match stored {
                Some((run, _)) if run.ended_at.is_none() => self.directives.record_control(&run),
                _ => drop(lock_mutex(&self.directives.controls).remove(&run)),
            }
        }
        Ok(())
    }

    /// Finds the due jobs of the next page of due runs, jobs with an expired lease first. Also
    /// tries to finish runs that have no due job.
    async fn find_due_jobs(
        &self,
        held: &BTreeMap<SharedText, Option<Instant>>,
    ) -> Result<JobQueue, Error> {
        let clock = EstimatedClock::read_from_store(&*self.store).await?;
        let now = clock.now();
        let mut line = JobQueue::default();
        self.find_expired_jobs(&mut line, held, now).await?;
        for run in self.scan_due_runs(now).await? {
            self.directives.record_control(&run.0);
            if self.unsendable_runs.is_unsendable(&run.0)
                || self.directives.run_directive(&run.0.id) == AttemptDirective::Release
            {
                continue;
            }
            let found = self.scan_due_jobs(&run.0, now).await?;
            let mut is_idle = found.is_empty();
            for job in found
                .into_iter()
                .filter(|(job, _)| !held.contains_key(&job.id))
            {
                is_idle = false;
                line.push(DueJob {
                    run: run.clone(),
                    job,
                });
            }
            if is_idle {
                finish_run(&*self.store, &run.0.id, now).await?;
            }
        }
        Ok(line)
    }

    /// Finds locked jobs whose lease has expired, including those of paused runs: the items that
    /// they held are in doubt.
    async fn find_expired_jobs(
        &self,
        line: &mut JobQueue,
        held: &BTreeMap<SharedText, Option<Instant>>,
        now: Timestamp,
    ) -> Result<(), Error> {
        let locked = SharedText::from(JobStatus::Locked.as_str());
        let mut scan = TableScan::by_index::<JobRow>(JobRow::BY_STATUS)
            .where_equal(&locked)
            .where_at_most(&now)
            .with_limit(JOBS_PAGE);
        loop {
            let page: Vec<(JobRow, u64)> = self.store.list_records(scan.clone()).await?;
            let Some((last, _)) = page.last() else {
                return Ok(());
            };
            let is_last = page.len() < JOBS_PAGE;
            scan = scan.starting_after(last);
            for job in page
                .into_iter()
                .filter(|(job, _)| !held.contains_key(&job.id))
            {
                let run: Option<(CampaignRunRow, u64)> = self
                    .store
                    .read_record(RowKey(vec![job.0.run_id.to_value()]))
                    .await?;
                if let Some(run) = run {
                    self.directives.record_control(&run.0);
                    line.push(DueJob { run, job });
                }
            }
            if is_last || !line.is_empty() {
                return Ok(());
            }
        }
    }

    /// Reads the next page of due runs. Paging goes round, so that runs that only wait do not hide
    /// the others.
    async fn scan_due_runs(&self, now: Timestamp) -> Result<Vec<(CampaignRunRow, u64)>, Error> {
        let mut scan = TableScan::by_index::<CampaignRunRow>(CampaignRunRow::BY_WAKE)
            .where_at_most(&now)
            .with_limit(RUNS_PAGE);
        scan.after = lock_mutex(&self.scan_position).take();
        let due: Vec<(CampaignRunRow, u64)> = self.store.list_records(scan.clone()).await?;
        if let Some((last, _)) = due.last().filter(|_| due.len() == RUNS_PAGE) {
            *lock_mutex(&self.scan_position) = scan.starting_after(last).after;
        }
        Ok(due)
    }

    async fn scan_due_jobs(
        &self,
        run: &CampaignRunRow,
        now: Timestamp,
    ) -> Result<Vec<(JobRow, u64)>, Error> {
        let is_cancelled =
            CampaignRunControl::parse(&run.control) == Some(CampaignRunControl::Cancelled);
        let mut found = Vec::new();
        for status in [JobStatus::Queued, JobStatus::Failed] {
            let scan = TableScan::by_index::<JobRow>(JobRow::BY_TURN)
                .where_equal(&run.id)
                .where_equal(&SharedText::from(status.as_str()));
            let due: Vec<(JobRow, u64)> = self
                .store
                .list_records(scan.clone().where_at_most(&now).with_limit(JOBS_PAGE))
                .await?;
            // In a cancelled run the open items are skipped at once, without waiting until they are
            // due.
            if due.is_empty() && is_cancelled {
                let waiting: Vec<(JobRow, u64)> = self.store.list_records(scan).await?;
                found.extend(
                    waiting
                        .into_iter()
                        .filter(|(job, _)| row_mapping::job_counts(job).open_items() > 0)
                        .take(JOBS_PAGE),
                );
            }
            found.extend(due);
        }
        Ok(found)
    }

    /// Counts the queued tenants that have no running job and are below their limit.
    async fn count_waiting_tenants(
        &self,
        line: &JobQueue,
        turns: &FairShare,
    ) -> Result<usize, Error> {
        let mut waiting = 0;
        for found in line.jobs_of_waiting_tenants(turns) {
            waiting += usize::from(self.is_within_tenant_limit(found, turns).await?);
        }
        Ok(waiting)
    }

    /// Whether the tenant may have another job in progress under `tenant_concurrency`.
    async fn is_within_tenant_limit(
        &self,
        found: &DueJob,
        turns: &FairShare,
    ) -> Result<bool, Error> {
        let Some(max) = self.options.tenant_concurrency else {
            return Ok(true);
        };
        let (tenant, max) = (&found.run.0.tenant_id, max as usize);
        let here = turns.tenant_job_count(tenant);
        // Taking over a job with an expired lease replaces a claim of the tenant and adds none.
        if here >= max || found.has_expired_lease() {
            return Ok(here < max);
        }
        let Some(now) = tolerate_transient_error(self.store.now().await)? else {
            return Ok(false);
        };
        let locked = SharedText::from(JobStatus::Locked.as_str());
        let mut its = TableScan::by_index::<JobRow>(JobRow::BY_TENANT)
            .where_equal(tenant)
            .where_equal(&locked)
            .with_limit(max + here);
        its.after = Some(
            its.equal
                .iter()
                .cloned()
                .chain([now.to_value(), SharedText::from("").to_value()])
                .collect(),
        );
        let Some(its) = tolerate_transient_error(self.store.list_records::<JobRow>(its).await)?
        else {
            return Ok(false);
        };
        // Jobs started on this node may not be locked in the store yet; each is counted once.
        let elsewhere = its
            .iter()
            .filter(|(job, _)| !turns.is_running(&job.id))
            .count();
        Ok(elsewhere + here < max)
    }

    fn spawn_job(
        &self,
        lanes: &mut JoinSet<FinishedJob>,
        found: DueJob,
        stop: watch::Receiver<bool>,
    ) {
        let is_stale = found.has_expired_lease();
        let DueJob { run, job } = found;
        let (store, orders, outlets) = (
            Arc::clone(&self.store),
            Arc::clone(&self.directives),
            Arc::clone(&self.deliveries),
        );
        let shut = Arc::clone(&self.unsendable_runs);
        let Options {
            lease,
            worker_name: worker,
            entropy,
            ..
        } = self.options.clone();
        lanes.spawn(async move {
            let (id, of_run) = (job.0.id.clone(), run.0.clone());
            let is_cancelled = CampaignRunControl::parse(&run.0.control) == Some(CampaignRunControl::Cancelled);
            let work = async {
                let (mut least, run_id, job_id) = (AttemptDirective::Continue, of_run.id.clone(), id.clone());
                let outlet = match outlets.resolve_delivery(&run.0) {
                    Ok(outlet) => outlet,
                    // There is no provider to send with, so the attempt must start no sends.
                    Err(_) if is_cancelled || is_stale => {
                        least = AttemptDirective::Release;
                        Arc::new(CampaignDelivery::without_provider())
                    }
                    Err(error) => {
                        shut.mark_unsendable(&*store, &run.0, &worker, &error).await?;
                        return Ok(JobRunEnd::LeaseLost);
                    }
                };
                let clock = EstimatedClock::read_from_store(&*store).await?;
                let desk = JobContext { store: Arc::clone(&store), clock, lease, worker_name: worker, entropy };
                let order = || orders.job_directive(&run_id, &job_id, *stop.borrow()).max(least);
                JobRunner::load_job(&desk, run, outlet, job).await?.run_attempt(order).await
            };
            let end = AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(job = %id, "work on a job panicked; it is tried again when its lease has run out");
                Ok(JobRunEnd::LeaseLost)
            });
            FinishedJob { result: end, job_id: id, run: of_run }
        });
    }

    /// Handles the result of a job. Returns whether the attempt was concluded.
    async fn handle_finished_job(&self, done: FinishedJob) -> Result<bool, Error> {
        let FinishedJob {
            job_id: job,
            run,
            result: end,
        } = done;
        // An invalid or corrupt row does not repair itself: report it to operators.
        if let Err(error) = &end
            && matches!(
                error.kind(),
                StoreErrorKind::Invalid | StoreErrorKind::Corrupt
            )
        {
            tolerate_transient_error(
                self.unsendable_runs
                    .mark_unsendable(
                        &*self.store,
                        &run,
                        &self.options.worker_name,
                        &error.to_string(),
                    )
                    .await,
            )?;
        }
        let end = tolerate_transient_error(end)?;
        match end {
            Some(JobRunEnd::Concluded(AttemptOutcome::Completed | AttemptOutcome::Dead)) => {
                let now = tolerate_transient_error(self.store.now().await)?;
                if let Some(now) = now {
                    tolerate_transient_error(finish_run(&*self.store, &run.id, now).await)?;
                }
            }
            Some(JobRunEnd::Concluded(conclusion)) => {
                tracing::debug!(%job, ?conclusion, "a job is put off")
            }
            Some(JobRunEnd::LeaseLost) => tracing::debug!(%job, "another has the job"),
            None => {}
        }
        Ok(matches!(end, Some(JobRunEnd::Concluded(_))))
    }
}

/// Logs a store error that is not fatal and returns `None`, so that the caller retries later.
/// Returns a fatal error.
fn tolerate_transient_error<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(it) => Ok(Some(it)),
        Err(error) if matches!(error.kind(), StoreErrorKind::Fatal) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "the dispatcher will try again");
            Ok(None)
        }
    }
}
