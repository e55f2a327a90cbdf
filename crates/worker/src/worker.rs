//! The worker: its registered task handlers, its settings, and the loop that claims tasks.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use onward_api::client::{ApiClient, ClientConfig};
use onward_api::problem::{Code, Problem};
use onward_api::task::{ClaimTasksRequest, DEFAULT_LEASE_MS, NextTaskRequest, TaskClaim};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::backoff::RetryBackoff;
use crate::perform::TaskOutcome;
use crate::slot::{WorkerSlot, release_task};
use crate::{TaskFailure, WorkerTaskContext};

/// How long one claim request waits for a task. Stopping the worker may take this long.
const DEFAULT_POLL_WAIT: Duration = Duration::from_secs(5);

/// Number of tasks that a worker performs at a time by default.
const DEFAULT_SLOTS: usize = 8;

pub(crate) type TaskHandler =
    Arc<dyn Fn(Arc<TaskClaim>, WorkerTaskContext) -> BoxFuture<'static, TaskOutcome> + Send + Sync>;

/// A worker that claims tasks from a server and performs them with registered handlers.
pub struct Worker {
    client: ApiClient,
    name: String,
    handlers: Arc<BTreeMap<String, TaskHandler>>,
    slots: usize,
    lease: Duration,
    poll_wait: Duration,
    grace_period: Option<Duration>,
}

impl Worker {
    /// Creates a worker for a server, without any task handler. Fails if `access` is invalid; sends
    /// no request.
    pub fn new(access: &ClientConfig) -> Result<Self, Problem> {
        Ok(Self {
            client: ApiClient::new(access)?,
            name: format!("process {}", std::process::id()),
            handlers: Arc::default(),
            slots: DEFAULT_SLOTS,
            lease: Duration::from_millis(DEFAULT_LEASE_MS.into()),
            poll_wait: DEFAULT_POLL_WAIT,
            grace_period: None,
        })
    }

    /// Sets the name of the worker, which is shown to people; default: `process` and the process
    /// id.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// Sets how many tasks the worker performs at a time; default: 8, at least 1.
    #[must_use]
    pub fn with_slots(self, slots: usize) -> Self {
        Self {
            slots: slots.max(1),
            ..self
        }
    }

    /// Sets the lease duration: how long the worker may stall before the server gives its task to
    /// another; default: 30 s.
    #[must_use]
    pub const fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// Sets how long one claim request waits for a task, which is also how long stopping may take;
    /// default: 5 s.
    #[must_use]
    pub const fn with_poll_wait(mut self, wait: Duration) -> Self {
        self.poll_wait = wait;
        self
    }

    /// Sets how long a stopping worker may take to finish the tasks it has started; default: no
    /// limit. Other workers can claim unfinished tasks when their leases have expired.
    #[must_use]
    pub const fn with_grace_period(mut self, grace: Duration) -> Self {
        self.grace_period = Some(grace);
        self
    }

    /// Registers the handler for the tasks of the function `name`. An input that cannot be
    /// deserialized, or a result that cannot be serialized, fails the task as `invalid_payload`,
    /// without retry.
    #[must_use]
    pub fn register_task<I, O, E, F>(
        mut self,
        name: impl Into<String>,
        perform: impl Fn(I, WorkerTaskContext) -> F + Send + Sync + 'static,
    ) -> Self
    where
        I: DeserializeOwned,
        O: Serialize,
        E: Into<TaskFailure>,
        F: Future<Output = Result<O, E>> + Send + 'static,
    {
        let handler =
            move |claimed: Arc<TaskClaim>, task: WorkerTaskContext| match serde_json::from_str(
                claimed.input.as_str(),
            ) {
                Ok(input) => {
                    let performing = perform(input, task);
                    async move { encode_result(performing.await.map_err(Into::into)) }.boxed()
                }
                Err(error) => {
                    let failure = TaskFailure::with_code(
                        "invalid_payload",
                        format!("invalid input: {error}"),
                    )
                    .non_retryable();
                    std::future::ready(Err(failure)).boxed()
                }
            };
        Arc::make_mut(&mut self.handlers).insert(name.into(), Arc::new(handler));
        self
    }

    /// Claims and performs tasks until `stop` completes, then finishes the tasks it has started.
    ///
    /// Fails if the server permanently refuses the worker, because of its token or because of what
    /// it claims. If the server cannot be reached or is busy, the worker retries with backoff.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Problem> {
        let (stopping, is_stopping) = watch::channel(false);
        let mut stop = std::pin::pin!(stop.map(|()| stopping.send_replace(true)).map(drop));
        let mut running = JoinSet::new();
        let mut backoff = RetryBackoff::default();
        let outcome = loop {
            if running.len() == self.slots {
                tokio::select! {
                    _ = running.join_next() => continue,
                    () = &mut stop => break Ok(()),
                }
            }
            while running.try_join_next().is_some() {}
            let mut is_last = false;
            let claim = self.claim_request(self.slots - running.len());
            let mut claiming = std::pin::pin!(self.client.claim_tasks(&claim));
            let answer = tokio::select! {
                answer = &mut claiming => answer,
                // Tasks that this last request claims are released, so that other workers need not
                // wait for their leases to expire.
                () = &mut stop => {
                    is_last = true;
                    claiming.await
                }
            };
            match answer {
                Ok(tasks) if is_last => {
                    for task in tasks {
                        release_task(&self.client, &task).await;
                    }
                }
                Ok(tasks) => {
                    backoff.reset();
                    for task in tasks {
                        running.spawn(self.new_slot(is_stopping.clone()).run_tasks(task));
                    }
                }
                Err(problem) if is_final(&problem) => break Err(problem),
                Err(problem) if !is_last => {
                    let pause = backoff.next_delay();
                    tracing::warn!(%problem, ?pause, "claim request failed; retrying");
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = &mut stop => is_last = true,
                    }
                }
                Err(problem) => tracing::warn!(%problem, "claim request failed"),
            }
            if is_last {
                break Ok(());
            }
        };
        // A worker that the server refuses must not claim further tasks from its slots either.
        stopping.send_replace(true);
        let rest = async { while running.join_next().await.is_some() {} };
        match self.grace_period {
            None => rest.await,
            Some(grace) => drop(tokio::time::timeout(grace, rest).await),
        }
        outcome
    }

    fn claim_request(&self, most: usize) -> ClaimTasksRequest {
        ClaimTasksRequest {
            worker: self.name.clone(),
            functions: self.handlers.keys().cloned().collect(),
            max: u32::try_from(most).unwrap_or(u32::MAX).min(100),
            lease_ms: self.lease_ms(),
            wait_ms: u64::try_from(self.poll_wait.as_millis()).unwrap_or(u64::MAX),
        }
    }

    fn new_slot(&self, is_stopping: watch::Receiver<bool>) -> WorkerSlot {
        let functions = self.handlers.keys().cloned().collect();
        let next = NextTaskRequest {
            worker: self.name.clone(),
            functions,
            lease_ms: self.lease_ms(),
        };
        WorkerSlot {
            client: self.client.clone(),
            handlers: Arc::clone(&self.handlers),
            next_request: next,
            is_stopping,
        }
    }

    fn lease_ms(&self) -> u32 {
        u32::try_from(self.lease.as_millis()).unwrap_or(u32::MAX)
    }
}

/// Serializes the result of a handler as JSON.
fn encode_result(result: Result<impl Serialize, TaskFailure>) -> TaskOutcome {
    let json = serde_json::value::to_raw_value(&result?);
    json.map(onward_api::RawJson).map_err(|error| {
        TaskFailure::with_code("invalid_payload", error.to_string()).non_retryable()
    })
}

/// Whether the problem is permanent, so that a retry of the same request would fail again.
pub(crate) const fn is_final(problem: &Problem) -> bool {
    !matches!(
        problem.code,
        Code::RateLimited
            | Code::Internal
            | Code::Unavailable
            | Code::OutcomeUnknown
            | Code::TimedOut
    )
}
