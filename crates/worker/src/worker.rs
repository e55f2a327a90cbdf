//! A worker: what it performs, and how it asks for work.

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

/// How long a worker waits for a task before it asks again. When it stops, it may have to wait so long.
const DEFAULT_POLL_WAIT: Duration = Duration::from_secs(5);

/// How many tasks are performed at a time, unless told.
const DEFAULT_SLOTS: usize = 8;

pub(crate) type TaskHandler =
    Arc<dyn Fn(Arc<TaskClaim>, WorkerTaskContext) -> BoxFuture<'static, TaskOutcome> + Send + Sync>;

/// A worker.
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
    /// A worker for a server that performs nothing yet.
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

    /// What people call it.
    #[must_use]
    pub fn with_name(self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// How many tasks it performs at a time; at least one.
    #[must_use]
    pub fn with_slots(self, slots: usize) -> Self {
        Self {
            slots: slots.max(1),
            ..self
        }
    }

    /// How long it may stall before a task is taken from it.
    #[must_use]
    pub const fn with_lease(mut self, lease: Duration) -> Self {
        self.lease = lease;
        self
    }

    /// How long it waits for a task before it asks again, which is also how long stopping may take.
    #[must_use]
    pub const fn with_poll_wait(mut self, wait: Duration) -> Self {
        self.poll_wait = wait;
        self
    }

    /// How long it finishes what it has begun when it stops; as long as it takes unless told. What is not finished by then is
    /// left to others, whose turn it is when its lease has run out.
    #[must_use]
    pub const fn with_grace_period(mut self, grace: Duration) -> Self {
        self.grace_period = Some(grace);
        self
    }

    /// Performs the tasks of this name.
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
                    let performed = perform(input, task);
                    async move { encode_result(performed.await.map_err(Into::into)) }.boxed()
                }
                Err(error) => {
                    let failure = TaskFailure::with_code(
                        "invalid_payload",
                        format!("the input does not fit: {error}"),
                    )
                    .non_retryable();
                    std::future::ready(Err(failure)).boxed()
                }
            };
        Arc::make_mut(&mut self.handlers).insert(name.into(), Arc::new(handler));
        self
    }

    /// Works until `stop`, and then to the end of what it has begun.
    ///
    /// Fails when the server says that this worker will never be given anything: who it is, or what it asks for, is refused.
    /// That the server cannot be reached, or is busy, is waited out.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<(), Problem> {
        let (over, is_over) = watch::channel(false);
        let mut stop = std::pin::pin!(stop.map(|()| over.send_replace(true)).map(drop));
        let mut running = JoinSet::new();
        let mut patience = RetryBackoff::default();
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
            let mut asked = std::pin::pin!(self.client.claim_tasks(&claim));
            let answer = tokio::select! {
                answer = &mut asked => answer,
                // What it is given after that is given back, so nobody has to wait until its lease is over.
                () = &mut stop => {
                    is_last = true;
                    asked.await
                }
            };
            match answer {
                Ok(tasks) if is_last => {
                    for task in tasks {
                        release_task(&self.client, &task).await;
                    }
                }
                Ok(tasks) => {
                    patience.reset();
                    for task in tasks {
                        running.spawn(self.new_slot(is_over.clone()).run_tasks(task));
                    }
                }
                Err(problem) if is_final(&problem) => break Err(problem),
                Err(problem) if !is_last => {
                    let pause = patience.next_delay();
                    tracing::warn!(%problem, ?pause, "no task could be asked for; it will be tried again");
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        () = &mut stop => is_last = true,
                    }
                }
                Err(problem) => tracing::warn!(%problem, "no task could be asked for"),
            }
            if is_last {
                break Ok(());
            }
        };
        // Whoever is refused asks for nothing more, either.
        over.send_replace(true);
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

    fn new_slot(&self, is_over: watch::Receiver<bool>) -> WorkerSlot {
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
            is_stopping: is_over,
        }
    }

    fn lease_ms(&self) -> u32 {
        u32::try_from(self.lease.as_millis()).unwrap_or(u32::MAX)
    }
}

/// What came of it, as JSON.
fn encode_result(result: Result<impl Serialize, TaskFailure>) -> TaskOutcome {
    let json = serde_json::value::to_raw_value(&result?);
    json.map(onward_api::RawJson).map_err(|error| {
        TaskFailure::with_code("invalid_payload", error.to_string()).non_retryable()
    })
}

/// Whether asking again would get the same answer for ever.
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
