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
use crate::corrupt_rows::CorruptRowLog;
use crate::decoded_page::DecodedPage;
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
    corrupt_rows: CorruptRowLog,
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

    fn job_directive(&self, run: &SharedText, job: &SharedText) -> AttemptDirective {
        let directive = self.run_directive(run);
        if lock_mutex(&self.preempted).contains(job) {
            directive.max(AttemptDirective::Release)
        } else {
            directive
        }
    }

    fn record_control(&self, run: &SharedText, control: CampaignRunControl) {
        lock_mutex(&self.controls).insert(run.clone(), control);
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The jobs not to start: jobs in progress (`None`), and jobs that could not be processed, with the
/// time until which they are not retried.
type ExcludedJobs = BTreeMap<SharedText, Option<Instant>>;

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
        deliveries: Arc<dyn DeliveryResolver>,
        options: Options,
    ) -> Self {
        Self {
            store,
            deliveries,
            options,
            directives: Arc::default(),
            unsendable_runs: Arc::default(),
            corrupt_rows: CorruptRowLog::default(),
            scan_position: Mutex::default(),
        }
    }

    /// Dispatches jobs until `stop` is true. Then the dispatcher drains: it starts no new sends and
    /// returns when all work in progress is settled. Fails if the store reports a fatal error.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> Result<(), Error> {
        let mut tasks: JoinSet<FinishedJob> = JoinSet::new();
        let mut excluded = ExcludedJobs::new();
        let (mut fair_share, mut queue) = (FairShare::default(), JobQueue::default());
        let mut last_sweep: Option<Instant> = None;
        let mut polls = tokio::time::interval(self.options.poll_interval);
        polls.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_stopping = *stop.borrow();
            if is_stopping && tasks.is_empty() {
                return Ok(());
            }
            if !is_stopping {
                excluded.retain(|_, until| until.is_none_or(|until| Instant::now() < until));
                if queue.is_empty() && tasks.len() < self.options.concurrency {
                    queue = self.find_due_jobs_or_none(&excluded).await?;
                }
                while tasks.len() < self.options.concurrency
                    && let Some(due) = queue.pop(&fair_share)
                {
                    if self.can_start(&due, &excluded, &fair_share).await? {
                        fair_share.start_job(&due);
                        excluded.insert(due.job.0.id.clone(), None);
                        self.spawn_job(&mut tasks, due, stop.clone());
                    }
                }
            }
            tokio::select! {
                biased;
                // Polled first (`biased`), so that pause and cancel take effect under any load.
                _ = polls.tick(), if !is_stopping => {
                    tolerate_transient_error(self.refresh_controls().await)?;
                    if tasks.len() >= self.options.concurrency {
                        // Tenants whose jobs became due since the last scan also get a slot.
                        queue = self.find_due_jobs_or_none(&excluded).await?;
                        let waiting = self.count_waiting_tenants(&queue, &fair_share).await?;
                        let preempted = fair_share.jobs_to_preempt(waiting);
                        lock_mutex(&self.directives.preempted).extend(preempted);
                    }
                    let is_sweep_due = last_sweep.is_none_or(|last| last.elapsed() >= SWEEP_INTERVAL);
                    if tasks.is_empty() && is_sweep_due {
                        tolerate_transient_error(sweep_audiences(&*self.store).await)?;
                        last_sweep = Some(Instant::now());
                    }
                    // However long this poll took, finished jobs are handled before the next one.
                    polls.reset();
                }
                Some(finished) = tasks.join_next() => {
                    let finished = finished
                        .map_err(|error| Error::Unusable(format!("a job's task failed: {error}")))?;
                    let job = finished.job_id.clone();
                    excluded.remove(&job);
                    fair_share.finish_job(&job);
                    lock_mutex(&self.directives.preempted).remove(&job);
                    if !self.handle_finished_job(finished).await? {
                        excluded.insert(job, Some(Instant::now() + self.options.poll_interval * 4));
                    }
                }
                _ = stop.changed(), if !is_stopping => {}
            }
        }
    }

    /// Whether a due job may start now.
    async fn can_start(
        &self,
        due: &DueJob,
        excluded: &ExcludedJobs,
        fair_share: &FairShare,
    ) -> Result<bool, Error> {
        // The run may have been paused after the job was found.
        let is_paused = self.directives.run_directive(&due.run.0.id) == AttemptDirective::Release
            && !due.has_expired_lease();
        Ok(!is_paused
            && !excluded.contains_key(&due.job.0.id)
            && self.is_within_tenant_limit(due, fair_share).await?)
    }

    /// Claims one due job and leaves it locked. Returns false if no job is due.
    pub async fn claim_job(&self) -> Result<bool, Error> {
        let Some(DueJob { run, job }) = self
            .find_due_jobs(&BTreeMap::new())
            .await?
            .pop(&FairShare::default())
        else {
            return Ok(false);
        };
        let delivery = self
            .deliveries
            .resolve_delivery(&run.0)
            .map_err(|error| Error::Unusable(error.to_string()))?;
        let context = self.job_context().await?;
        JobRunner::load_job(&context, run, delivery, job)
            .await?
            .lock_job()
            .await
    }

    async fn job_context(&self) -> Result<JobContext, Error> {
        JobContext::new(Arc::clone(&self.store), self.options.clone()).await
    }

    /// Reads the current control of every run with known directives; drops runs that have ended.
    async fn refresh_controls(&self) -> Result<(), Error> {
        let runs: Vec<SharedText> = lock_mutex(&self.directives.controls)
            .keys()
            .cloned()
            .collect();
        for id in runs {
            let stored: Result<Option<(CampaignRunRow, u64)>, Error> =
                self.store.read_record(RowKey(vec![id.to_value()])).await;
            match stored {
                Ok(Some((run, _))) if run.ended_at.is_none() => {
                    self.directives.record_control(&id, run.control);
                }
                Ok(_) => drop(lock_mutex(&self.directives.controls).remove(&id)),
                // The control is unknown: send nothing until the row is repaired.
                Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                    self.corrupt_rows.log_row(&id, &error);
                    self.directives
                        .record_control(&id, CampaignRunControl::Paused);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Like [`Self::find_due_jobs`], but finds nothing if the store cannot be read now.
    async fn find_due_jobs_or_none(&self, excluded: &ExcludedJobs) -> Result<JobQueue, Error> {
        Ok(tolerate_transient_error(self.find_due_jobs(excluded).await)?.unwrap_or_default())
    }

    /// Finds the due jobs of the next page of due runs, jobs with an expired lease first. Also
    /// tries to finish runs that have no due job.
    async fn find_due_jobs(&self, excluded: &ExcludedJobs) -> Result<JobQueue, Error> {
        let clock = EstimatedClock::read_from_store(&*self.store).await?;
        let now = clock.now();
        let mut queue = JobQueue::default();
        self.find_expired_jobs(&mut queue, excluded, now).await?;
        for run in self.scan_due_runs(now).await? {
            self.directives.record_control(&run.0.id, run.0.control);
            if self.unsendable_runs.is_unsendable(&run.0)
                || self.directives.run_directive(&run.0.id) == AttemptDirective::Release
            {
                continue;
            }
            let due = self.scan_due_jobs(&run.0, now).await?;
            let mut is_idle = due.is_empty();
            for job in due
                .into_iter()
                .filter(|(job, _)| !excluded.contains_key(&job.id))
            {
                is_idle = false;
                queue.push(DueJob {
                    run: run.clone(),
                    job,
                });
            }
            if is_idle {
                self.finish_idle_run(&run.0, now).await?;
            }
        }
        Ok(queue)
    }

    /// Finishes a run that has no due job, if all of its jobs have ended. A run with corrupt rows
    /// cannot be finished: it is reported, and does not delay the others.
    async fn finish_idle_run(&self, run: &CampaignRunRow, now: Timestamp) -> Result<(), Error> {
        match finish_run(&*self.store, &run.id, now).await {
            Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                self.unsendable_runs
                    .mark_unsendable(&*self.store, run, &self.options.worker_name, &error)
                    .await
            }
            result => result.map(drop),
        }
    }

    /// Finds locked jobs whose lease has expired, including those of paused runs: the items that
    /// they reserved are in doubt.
    async fn find_expired_jobs(
        &self,
        queue: &mut JobQueue,
        excluded: &ExcludedJobs,
        now: Timestamp,
    ) -> Result<(), Error> {
        let mut next = Some(
            TableScan::by_index::<JobRow>(JobRow::BY_STATUS)
                .where_equal(&JobStatus::Locked)
                .where_at_most(&now)
                .with_limit(JOBS_PAGE),
        );
        while let Some(scan) = next.take().filter(|_| queue.is_empty()) {
            let page = DecodedPage::<JobRow>::read(&*self.store, scan).await?;
            self.corrupt_rows.log_rows(&page.corrupt);
            for job in page
                .records
                .into_iter()
                .filter(|(job, _)| !excluded.contains_key(&job.id))
            {
                let id = job.0.run_id.clone();
                let run: Result<Option<(CampaignRunRow, u64)>, Error> =
                    self.store.read_record(RowKey(vec![id.to_value()])).await;
                match run {
                    Ok(Some(run)) => {
                        self.directives.record_control(&id, run.0.control);
                        queue.push(DueJob { run, job });
                    }
                    Ok(None) => {}
                    Err(error) if error.kind() == StoreErrorKind::Corrupt => {
                        self.corrupt_rows.log_row(&id, &error);
                    }
                    Err(error) => return Err(error),
                }
            }
            next = page.next;
        }
        Ok(())
    }

    /// Reads the next page of due runs. Paging goes round, so that runs that only wait do not hide
    /// the others.
    async fn scan_due_runs(&self, now: Timestamp) -> Result<Vec<(CampaignRunRow, u64)>, Error> {
        let mut scan = TableScan::by_index::<CampaignRunRow>(CampaignRunRow::BY_WAKE)
            .where_at_most(&now)
            .with_limit(RUNS_PAGE);
        scan.after = lock_mutex(&self.scan_position).take();
        let page = DecodedPage::<CampaignRunRow>::read(&*self.store, scan).await?;
        self.corrupt_rows.log_rows(&page.corrupt);
        *lock_mutex(&self.scan_position) = page.next.and_then(|next| next.after);
        Ok(page.records)
    }

    async fn scan_due_jobs(
        &self,
        run: &CampaignRunRow,
        now: Timestamp,
    ) -> Result<Vec<(JobRow, u64)>, Error> {
        let mut jobs = Vec::new();
        for status in [JobStatus::Queued, JobStatus::Failed] {
            let scan = TableScan::by_index::<JobRow>(JobRow::BY_TURN)
                .where_equal(&run.id)
                .where_equal(&status);
            let due_scan = scan.clone().where_at_most(&now).with_limit(JOBS_PAGE);
            let due = DecodedPage::<JobRow>::read(&*self.store, due_scan).await?;
            self.corrupt_rows.log_rows(&due.corrupt);
            // In a cancelled run the open items are skipped at once, without waiting until they are
            // due.
            if due.records.is_empty() && run.control == CampaignRunControl::Cancelled {
                let waiting = DecodedPage::<JobRow>::read(&*self.store, scan).await?;
                self.corrupt_rows.log_rows(&waiting.corrupt);
                jobs.extend(
                    waiting
                        .records
                        .into_iter()
                        .filter(|(job, _)| row_mapping::job_counts(job).open_items() > 0)
                        .take(JOBS_PAGE),
                );
            }
            jobs.extend(due.records);
        }
        Ok(jobs)
    }

    /// Counts the queued tenants that have no running job and are below their limit.
    async fn count_waiting_tenants(
        &self,
        queue: &JobQueue,
        fair_share: &FairShare,
    ) -> Result<usize, Error> {
        let mut waiting = 0;
        for due in queue.jobs_of_waiting_tenants(fair_share) {
            waiting += usize::from(self.is_within_tenant_limit(due, fair_share).await?);
        }
        Ok(waiting)
    }

    /// Whether the tenant may have another job in progress under `tenant_concurrency`.
    async fn is_within_tenant_limit(
        &self,
        due: &DueJob,
        fair_share: &FairShare,
    ) -> Result<bool, Error> {
        let Some(max) = self.options.tenant_concurrency else {
            return Ok(true);
        };
        let (tenant, max) = (&due.run.0.tenant_id, max as usize);
        let local = fair_share.tenant_job_count(tenant);
        // Taking over a job with an expired lease replaces a claim of the tenant and adds none.
        if local >= max || due.has_expired_lease() {
            return Ok(local < max);
        }
        let Some(now) = tolerate_transient_error(self.store.now().await)? else {
            return Ok(false);
        };
        let mut scan = TableScan::by_index::<JobRow>(JobRow::BY_TENANT)
            .where_equal(tenant)
            .where_equal(&JobStatus::Locked)
            .with_limit(max + local);
        scan.after = Some(
            scan.equal
                .iter()
                .cloned()
                .chain([now.to_value(), SharedText::from("").to_value()])
                .collect(),
        );
        let page = DecodedPage::<JobRow>::read(&*self.store, scan).await;
        let Some(page) = tolerate_transient_error(page)? else {
            return Ok(false);
        };
        // Jobs started on this node may not be locked in the store yet; each is counted once.
        let locked = page.records.iter().map(|(job, _)| &job.id);
        let remote = locked
            .chain(page.corrupt.iter().map(|row| &row.id))
            .filter(|id| !fair_share.is_running(id))
            .count();
        Ok(remote + local < max)
    }

    fn spawn_job(
        &self,
        tasks: &mut JoinSet<FinishedJob>,
        due: DueJob,
        stop: watch::Receiver<bool>,
    ) {
        let has_expired_lease = due.has_expired_lease();
        let DueJob { run, job } = due;
        let (store, directives, deliveries, unsendable_runs) = (
            Arc::clone(&self.store),
            Arc::clone(&self.directives),
            Arc::clone(&self.deliveries),
            Arc::clone(&self.unsendable_runs),
        );
        let options = self.options.clone();
        tasks.spawn(async move {
            let (finished_run, job_id) = (run.0.clone(), job.0.id.clone());
            let attempt = async {
                let (run_id, job_id) = (run.0.id.clone(), job.0.id.clone());
                let mut min_directive = AttemptDirective::Continue;
                let delivery = match deliveries.resolve_delivery(&run.0) {
                    Ok(delivery) => delivery,
                    // There is no provider to send with, so the attempt must start no sends.
                    Err(_) if run.0.control == CampaignRunControl::Cancelled || has_expired_lease => {
                        min_directive = AttemptDirective::Release;
                        Arc::new(CampaignDelivery::without_provider())
                    }
                    Err(error) => {
                        unsendable_runs.mark_unsendable(&*store, &run.0, &options.worker_name, &error).await?;
                        return Ok(JobRunEnd::LeaseLost);
                    }
                };
                let context = JobContext::new(store, options).await?;
                let directive = || {
                    let current = directives.job_directive(&run_id, &job_id).max(min_directive);
                    if *stop.borrow() { current.max(AttemptDirective::Release) } else { current }
                };
                JobRunner::load_job(&context, run, delivery, job).await?.run_attempt(directive).await
            };
            let result = AssertUnwindSafe(attempt).catch_unwind().await.unwrap_or_else(|_| {
                tracing::error!(job = %job_id, "processing a job panicked; it is retried when its lease has expired");
                Ok(JobRunEnd::LeaseLost)
            });
            FinishedJob { result, job_id, run: finished_run }
        });
    }

    /// Handles the result of a job. Returns whether the attempt was concluded.
    async fn handle_finished_job(&self, finished: FinishedJob) -> Result<bool, Error> {
        let FinishedJob {
            job_id,
            run,
            result,
        } = finished;
        // An invalid or corrupt row does not repair itself: report it to operators.
        if let Err(error) = &result
            && matches!(
                error.kind(),
                StoreErrorKind::Invalid | StoreErrorKind::Corrupt
            )
        {
            let marked = self
                .unsendable_runs
                .mark_unsendable(&*self.store, &run, &self.options.worker_name, error)
                .await;
            tolerate_transient_error(marked)?;
        }
        let end = tolerate_transient_error(result)?;
        match end {
            Some(JobRunEnd::Concluded(AttemptOutcome::Completed | AttemptOutcome::Dead)) => {
                let now = tolerate_transient_error(self.store.now().await)?;
                if let Some(now) = now {
                    tolerate_transient_error(finish_run(&*self.store, &run.id, now).await)?;
                }
            }
            Some(JobRunEnd::Concluded(outcome)) => {
                tracing::debug!(job = %job_id, ?outcome, "an attempt at a job ended before all items were settled")
            }
            Some(JobRunEnd::LeaseLost) => {
                tracing::debug!(job = %job_id, "another worker holds the job")
            }
            None => {}
        }
        Ok(matches!(end, Some(JobRunEnd::Concluded(_))))
    }
}

/// Logs a store error that is not fatal and returns `None`, so that the caller retries later.
/// Returns a fatal error.
fn tolerate_transient_error<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), StoreErrorKind::Fatal) => Err(error),
        Err(error) => {
            tracing::warn!(%error, "a store operation of the dispatcher failed; retrying");
            Ok(None)
        }
    }
}
