//! The task operations of the API for workers: claim, heartbeat, complete, fail, release and list.

use std::time::Duration;

use futures_util::FutureExt as _;
use onward_api::RawJson;
use onward_api::problem::{Code, Problem};
use onward_api::task::{
    ClaimTasksRequest, ClaimTasksResponse, CompleteTaskRequest, FailTaskRequest,
    HeartbeatTaskResponse, ListTasksQuery, NextTaskRequest, TaskClaim, TaskDelivery,
    TaskEndResponse, TaskError, TaskPage, TaskSummary,
};
use onward_base::{BoundedName, Payload, SharedText};
use onward_engine::client::{ClientError, EngineClient};
use onward_engine::shard::AttemptId;
use onward_engine::task_queue::{self, LeasedTask, TaskCursor, parse_task_name, task_name};
use onward_journal::{ExecutionError, InvokeResult};
use onward_store::tables::TaskRow;
use tokio::sync::oneshot;

use super::ApiService;
use super::executions::parse_page_size;
use super::problems::{check_length, engine_problem};

/// Minimum lease in milliseconds; shorter leases would leave no time for the round trip to the
/// store.
const LEASE_MS_MIN: u32 = 100;

/// Maximum lease in milliseconds: 1 hour.
const LEASE_MS_MAX: u32 = 3_600_000;

/// Maximum number of functions in one claim request.
const FUNCTIONS_MAX: usize = 100;

/// Maximum lengths in characters of a task error's message and code.
const MESSAGE_MAX: usize = 65_536;
const CODE_MAX: usize = 200;

/// Default and maximum number of tasks per page.
const DEFAULT_PAGE_SIZE: u32 = 100;

impl ApiService {
    /// Claims tasks for a worker. If none is queued, waits for up to the requested time.
    pub async fn claim_tasks(
        &self,
        claim: ClaimTasksRequest,
    ) -> Result<ClaimTasksResponse, Problem> {
        let ClaimTasksRequest {
            worker,
            functions,
            max,
            lease_ms,
            wait_ms,
        } = claim;
        let wanted = parse_claim_request(&worker, &functions, max, lease_ms)?;
        let wait = Duration::from_millis(wait_ms);
        let held = self.claim_or_release(|client, gone| async move {
            client.claim_tasks(&wanted, wait, gone.map(drop)).await
        });
        Ok(ClaimTasksResponse {
            tasks: held
                .await?
                .iter()
                .map(|held| api_task_claim(held, lease_ms))
                .collect(),
        })
    }

    /// Releases a task that its worker has claimed but not started.
    pub async fn release_task(&self, task: &str, token: &str) -> Result<TaskEndResponse, Problem> {
        self.client
            .release_task(parse_task_id(task)?, token)
            .await
            .map_err(engine_problem)?;
        Ok(TaskEndResponse {
            task: task.to_owned(),
            next: None,
        })
    }

    /// Extends the lease of a claimed task. Returns when the new lease expires.
    pub async fn heartbeat_task(
        &self,
        task: &str,
        token: &str,
    ) -> Result<HeartbeatTaskResponse, Problem> {
        let until = self
            .client
            .heartbeat_task(parse_task_id(task)?, token)
            .await
            .map_err(engine_problem)?;
        Ok(HeartbeatTaskResponse {
            leased_until: until.to_string(),
        })
    }

    /// Completes a claimed task with its result, and claims the next one if the worker requests it.
    pub async fn complete_task(
        &self,
        task: &str,
        complete: CompleteTaskRequest,
    ) -> Result<TaskEndResponse, Problem> {
        let result = Payload::parse(complete.result.as_str());
        let result =
            result.map_err(|error| Problem::new(Code::Unprocessable, error.to_string()))?;
        self.finish_task(task, complete.token, Ok(result), complete.next)
            .await
    }

    /// Fails a claimed task with an error, and claims the next one if the worker requests it.
    pub async fn fail_task(
        &self,
        task: &str,
        fail: FailTaskRequest,
    ) -> Result<TaskEndResponse, Problem> {
        let TaskError {
            message,
            code,
            retryable,
        } = fail.error;
        check_length("the message", &message, MESSAGE_MAX)?;
        check_length("the code", code.as_deref().unwrap_or_default(), CODE_MAX)?;
        let error = ExecutionError::from_kind_name(code.as_deref().unwrap_or_default(), message);
        self.finish_task(
            task,
            fail.token,
            Err(if retryable {
                error
            } else {
                error.into_permanent()
            }),
            fail.next,
        )
        .await
    }

    async fn finish_task(
        &self,
        task: &str,
        token: String,
        result: InvokeResult,
        next: Option<NextTaskRequest>,
    ) -> Result<TaskEndResponse, Problem> {
        let (id, task) = (parse_task_id(task)?, task.to_owned());
        let Some(next) = next else {
            self.client
                .complete_task(id, &token, result)
                .await
                .map_err(engine_problem)?;
            return Ok(TaskEndResponse { task, next: None });
        };
        let lease_ms = next.lease_ms;
        let wanted = parse_claim_request(&next.worker, &next.functions, 1, lease_ms)?;
        let held = self.claim_or_release(|client, _| async move {
            client
                .complete_task_and_claim_next(id, &token, result, &wanted)
                .await
                .map(|held| held.into_iter().collect())
        });
        Ok(TaskEndResponse {
            task,
            next: held
                .await?
                .first()
                .map(|held| api_task_claim(held, lease_ms)),
        })
    }

    /// Runs `work`, which claims tasks, to its end even if the caller disconnects. In that case the
    /// receiver passed to `work` is notified, and tasks that were claimed are released.
    async fn claim_or_release<W>(
        &self,
        work: impl FnOnce(EngineClient, oneshot::Receiver<()>) -> W,
    ) -> Result<Vec<LeasedTask>, Problem>
    where
        W: Future<Output = Result<Vec<LeasedTask>, ClientError>> + Send + 'static,
    {
        let (_here, gone) = oneshot::channel();
        let (answer, answered) = oneshot::channel();
        let client = self.client.clone();
        let working = work(client.clone(), gone);
        tokio::spawn(async move {
            for unwanted in answer
                .send(working.await)
                .err()
                .and_then(Result::ok)
                .into_iter()
                .flatten()
            {
                if let Err(error) = client
                    .release_task(unwanted.id, &unwanted.claim_token)
                    .await
                {
                    tracing::warn!(%error, "a task that nobody took could not be given back; its lease runs out");
                }
            }
        });
        let stopped = |_| Problem::new(Code::Unavailable, "the server is stopping");
        answered.await.map_err(stopped)?.map_err(engine_problem)
    }

    pub(super) async fn read_task_page(
        &self,
        listing: &ListTasksQuery,
    ) -> Result<TaskPage, Problem> {
        // The page is small, because the inputs of the tasks are read along.
        let limit =
            parse_page_size(listing.limit, DEFAULT_PAGE_SIZE)?.min(DEFAULT_PAGE_SIZE as usize);
        let wrong = || {
            Problem::new(
                Code::InvalidRequest,
                "after: that is not where a page ended",
            )
        };
        let after = listing
            .after
            .as_deref()
            .map(|text| TaskCursor::parse(text).ok_or_else(wrong))
            .transpose()?;
        let rows = self
            .client
            .list_tasks(after.as_ref(), limit)
            .await
            .map_err(engine_problem)?;
        let next = rows
            .last()
            .filter(|_| rows.len() == limit)
            .map(|last| TaskCursor::for_task(last).to_string());
        Ok(TaskPage {
            tasks: rows.into_iter().map(api_task_summary).collect(),
            next,
        })
    }
}

fn parse_task_id(task: &str) -> Result<AttemptId, Problem> {
    parse_task_name(task)
        .ok_or_else(|| Problem::new(Code::NotFound, "that is not the name of a task"))
}

/// Validates a claim request. Fails if a limit is exceeded or a function name is invalid.
fn parse_claim_request(
    worker: &str,
    functions: &[String],
    max: u32,
    lease_ms: u32,
) -> Result<task_queue::ClaimRequest, Problem> {
    let wrong = |words: &str| Problem::new(Code::Unprocessable, words);
    if worker.trim().is_empty() || worker.len() > 200 {
        return Err(wrong("a worker has a name of at most 200 bytes"));
    }
    if functions.is_empty() || functions.len() > FUNCTIONS_MAX {
        return Err(wrong("a worker asks for 1 to 100 functions"));
    }
    if !(1..=100).contains(&max) {
        return Err(wrong("a worker asks for 1 to 100 tasks"));
    }
    if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&lease_ms) {
        return Err(wrong("a lease is of 100 ms to an hour"));
    }
    let name = |name: &String| {
        name.parse::<BoundedName>()
            .map(|name| SharedText::from(&*name))
    };
    let functions: Result<Vec<SharedText>, _> = functions.iter().map(name).collect();
    Ok(task_queue::ClaimRequest {
        worker: worker.into(),
        functions: functions.map_err(|error| wrong(&error.to_string()))?,
        max_tasks: max as usize,
        lease_ms,
    })
}

fn api_task_claim(held: &LeasedTask, lease_ms: u32) -> TaskClaim {
    TaskClaim {
        task: task_name(held.id),
        promise: held.promise_id().to_string(),
        execution: held.id.execution.to_string(),
        attempt: held.id.attempt,
        token: held.claim_token.to_string(),
        function: held.function.to_string(),
        input: RawJson::parse(held.input.as_str()).unwrap_or_default(),
        delivery: match held.delivery {
            onward_journal::DeliveryGuarantee::AtLeastOnce => TaskDelivery::AtLeastOnce,
            onward_journal::DeliveryGuarantee::AtMostOnce => TaskDelivery::AtMostOnce,
        },
        leased_until: held.leased_until.to_string(),
        lease_ms,
        timeout_ms: held.timeout_ms,
    }
}

fn api_task_summary(row: TaskRow) -> TaskSummary {
    let is_claimed = row.claim.is_some();
    TaskSummary {
        task: task_name(task_queue::attempt_id_of(&row)),
        function: row.function.to_string(),
        execution: row.execution_id.to_string(),
        attempt: row.attempt,
        state: row.state.to_string(),
        queued_at: row.queued_at.to_string(),
        worker: row.worker.map(|worker| worker.to_string()),
        leased_until: is_claimed.then(|| row.leased_until.to_string()),
    }
}
