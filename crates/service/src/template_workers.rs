//! Renders and checks templates for requests, away from the threads that answer requests: on a few
//! threads at a time, with one budget for each request.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_api::problem::{Code, Problem};
use onward_campaign_file::templates::RenderBudget;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// Maximum time that a request waits for a thread.
const THREAD_WAIT_MAX: Duration = Duration::from_secs(10);

/// What all template work of one request may use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RequestLimits {
    /// Time of work; waiting for a thread or for the store does not count.
    pub(super) time: Duration,
    /// Template steps.
    pub(super) steps: u64,
}

impl RequestLimits {
    /// Limits of a preview: a hundred letters take some hundred steps and some milliseconds each.
    pub(super) const PREVIEW: Self = Self {
        time: Duration::from_secs(2),
        steps: 20_000_000,
    };

    /// Limits of the checks of a campaign and its whole audience.
    pub(super) const CHECK: Self = Self {
        time: Duration::from_secs(30),
        steps: 500_000_000,
    };
}

impl fmt::Display for RequestLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} s and {} template steps",
            self.time.as_secs(),
            self.steps
        )
    }
}

/// The budget of one request. Its work stops when the request is dropped, which happens when the
/// client has gone.
pub(super) struct RequestBudget {
    limits: RequestLimits,
    clock: Arc<WorkClock>,
    render_budget: RenderBudget,
}

/// How long the work of a request may still take.
struct WorkClock {
    time_left: Mutex<Duration>,
    /// The start of the work in progress.
    started_at: Mutex<Option<Instant>>,
    is_cancelled: AtomicBool,
}

impl WorkClock {
    fn is_over(&self) -> bool {
        let worked = lock_mutex(&self.started_at).map_or(Duration::ZERO, |at| at.elapsed());
        self.is_cancelled.load(Ordering::Relaxed) || worked >= *lock_mutex(&self.time_left)
    }

    fn start(&self) {
        *lock_mutex(&self.started_at) = Some(Instant::now());
    }

    fn stop(&self) {
        if let Some(started_at) = lock_mutex(&self.started_at).take() {
            let mut left = lock_mutex(&self.time_left);
            *left = left.saturating_sub(started_at.elapsed());
        }
    }
}

impl RequestBudget {
    pub(super) fn new(limits: RequestLimits) -> Self {
        let clock = Arc::new(WorkClock {
            time_left: Mutex::new(limits.time),
            started_at: Mutex::default(),
            is_cancelled: AtomicBool::new(false),
        });
        let is_over = {
            let clock = Arc::clone(&clock);
            move || clock.is_over()
        };
        Self {
            limits,
            clock,
            render_budget: RenderBudget::new(limits.steps, is_over),
        }
    }

    /// The budget that renderings are charged to.
    pub(super) const fn render_budget(&self) -> &RenderBudget {
        &self.render_budget
    }
}

impl Drop for RequestBudget {
    fn drop(&mut self) {
        self.clock.is_cancelled.store(true, Ordering::Relaxed);
    }
}

/// The threads for template work: a few for all requests, and fewer for each tenant.
pub(super) struct TemplateWorkers {
    threads: Arc<Semaphore>,
    threads_per_tenant: usize,
    /// The share of each tenant that has requests at the moment.
    tenants: Mutex<BTreeMap<String, Arc<Semaphore>>>,
}

impl Default for TemplateWorkers {
    /// Half of the cores and at least two threads; each tenant gets half of them.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new((cores / 2).max(2))
    }
}

impl TemplateWorkers {
    fn new(threads: usize) -> Self {
        Self {
            threads: Arc::new(Semaphore::new(threads)),
            threads_per_tenant: (threads / 2).max(1),
            tenants: Mutex::default(),
        }
    }

    /// Runs `work` on one of the threads and charges it to the budget. Fails if the budget is spent
    /// afterwards, or if no thread becomes free in time.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        tenant: &str,
        budget: &RequestBudget,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Problem> {
        let busy = || {
            Problem::new(
                Code::Unavailable,
                "the server is busy with the templates of other requests: try again",
            )
        };
        let permits = timeout(THREAD_WAIT_MAX, self.acquire_permits(tenant))
            .await
            .ok()
            .flatten()
            .ok_or_else(busy)?;
        let (clock, render_budget) = (Arc::clone(&budget.clock), budget.render_budget.clone());
        // The permits are released when the work has ended, even if the request is dropped before.
        let result = tokio::task::spawn_blocking(move || {
            let _permits = permits;
            clock.start();
            let result = render_budget.run(work);
            clock.stop();
            result
        })
        .await;
        self.forget_idle_tenants();
        let result = result.map_err(|error| {
            tracing::error!(%error, "rendering templates panicked");
            Problem::new(
                Code::Internal,
                "the server has a defect; its log has the details",
            )
        })?;
        if budget.render_budget.is_spent() {
            return Err(Problem::new(
                Code::Unprocessable,
                format!(
                    "rendering the templates took more than one request may use ({}): simplify \
                     the templates, or send fewer recipients in one request",
                    budget.limits
                ),
            ));
        }
        Ok(result)
    }

    /// Acquires a thread of the tenant's share, then one of all threads. Returns `None` if the
    /// semaphores are closed, which never happens.
    async fn acquire_permits(&self, tenant: &str) -> Option<[OwnedSemaphorePermit; 2]> {
        let share = Arc::clone(
            lock_mutex(&self.tenants)
                .entry(tenant.to_owned())
                .or_insert_with(|| Arc::new(Semaphore::new(self.threads_per_tenant))),
        );
        let own = share.acquire_owned().await.ok()?;
        let any = Arc::clone(&self.threads).acquire_owned().await.ok()?;
        Some([own, any])
    }

    /// Drops the shares of tenants that have no request, so that the map does not grow.
    fn forget_idle_tenants(&self) {
        lock_mutex(&self.tenants).retain(|_, share| Arc::strong_count(share) > 1);
    }
}

fn lock_mutex<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LIMITS: RequestLimits = RequestLimits {
        time: Duration::from_secs(60),
        steps: 1_000,
    };

    #[tokio::test]
    async fn work_stops_when_the_request_is_dropped() {
        let workers = Arc::new(TemplateWorkers::new(2));
        let (started, has_started) = mpsc::channel();
        let request = tokio::spawn({
            let workers = Arc::clone(&workers);
            async move {
                let budget = RequestBudget::new(LIMITS);
                let render_budget = budget.render_budget().clone();
                let endless = move || {
                    started.send(()).unwrap();
                    while !render_budget.is_over() {
                        std::thread::yield_now();
                    }
                };
                workers.run("acme", &budget, endless).await
            }
        });
        tokio::task::spawn_blocking(move || has_started.recv().unwrap())
            .await
            .unwrap();
        assert_eq!(workers.threads.available_permits(), 1);
        request.abort();
        // The thread becomes free again, because the work has stopped.
        let all = workers.threads.acquire_many(2);
        drop(timeout(Duration::from_secs(10), all).await.unwrap());
    }

    #[tokio::test]
    async fn the_time_of_a_request_is_one_budget_for_all_of_its_work() {
        let workers = TemplateWorkers::new(2);
        let budget = RequestBudget::new(RequestLimits {
            time: Duration::from_millis(20),
            ..LIMITS
        });
        let mut runs = 0;
        let problem = loop {
            let render_budget = budget.render_budget().clone();
            let work = move || {
                let started_at = Instant::now();
                while started_at.elapsed() < Duration::from_millis(5) && !render_budget.is_over() {
                    std::thread::yield_now();
                }
            };
            match workers.run("acme", &budget, work).await {
                Ok(()) => runs += 1,
                Err(problem) => break problem,
            }
        };
        assert!(runs <= 4, "{runs}");
        assert_eq!(problem.code, Code::Unprocessable);
        assert!(
            problem.detail.contains("more than one request may use"),
            "{}",
            problem.detail
        );
        assert!(lock_mutex(&workers.tenants).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_tenant_cannot_take_the_threads_of_another() {
        let workers = Arc::new(TemplateWorkers::new(2));
        let budget = RequestBudget::new(LIMITS);
        let held = workers.acquire_permits("acme").await;
        let problem = workers.run("acme", &budget, || ()).await.unwrap_err();
        assert_eq!(problem.code, Code::Unavailable);
        workers.run("globex", &budget, || ()).await.unwrap();
        drop(held);
        workers.run("acme", &budget, || ()).await.unwrap();
    }
}
