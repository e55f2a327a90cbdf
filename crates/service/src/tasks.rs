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
use super::problems::{INVALID_CURSOR, check_length, engine_problem, invalid_field};

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
        let request = parse_claim_request(&worker, &functions, max, lease_ms)?;
        let wait = Duration::from_millis(wait_ms);
        let claimed = self.claim_or_release(|client, disconnected| async move {
            client
                .claim_tasks(&request, wait, disconnected.map(drop))
                .await
        });
        Ok(ClaimTasksResponse {
            tasks: claimed
                .await?
                .iter()
                .map(|task| api_task_claim(task, lease_ms))
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
        check_length("message", &message, MESSAGE_MAX)?;
        check_length("code", code.as_deref().unwrap_or_default(), CODE_MAX)?;
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
        let request = parse_claim_request(&next.worker, &next.functions, 1, lease_ms)?;
        let claimed = self.claim_or_release(|client, _| async move {
            client
                .complete_task_and_claim_next(id, &token, result, &request)
                .await
                .map(|next| next.into_iter().collect())
        });
        Ok(TaskEndResponse {
            task,
            next: claimed
                .await?
                .first()
                .map(|task| api_task_claim(task, lease_ms)),
        })
    }

    /// Runs `claim` to completion even if the caller disconnects. In that case the receiver passed
    /// to `claim` is notified, and the tasks that were claimed are released.
    async fn claim_or_release<W>(
        &self,
        claim: impl FnOnce(EngineClient, oneshot::Receiver<()>) -> W,
    ) -> Result<Vec<LeasedTask>, Problem>
    where
        W: Future<Output = Result<Vec<LeasedTask>, ClientError>> + Send + 'static,
    {
        let (_connected, disconnected) = oneshot::channel();
        let (sender, receiver) = oneshot::channel();
        let client = self.client.clone();
        let claiming = claim(client.clone(), disconnected);
        tokio::spawn(async move {
            for undelivered in sender
                .send(claiming.await)
                .err()
                .and_then(Result::ok)
                .into_iter()
                .flatten()
            {
                if let Err(error) = client
                    .release_task(undelivered.id, &undelivered.claim_token)
                    .await
                {
                    tracing::warn!(%error, "could not release a task whose claim response was not delivered; its lease will expire");
                }
            }
        });
        let stopped = |_| Problem::new(Code::Unavailable, "the server is stopping");
        receiver.await.map_err(stopped)?.map_err(engine_problem)
    }

    pub(super) async fn read_task_page(
        &self,
        listing: &ListTasksQuery,
    ) -> Result<TaskPage, Problem> {
        // The page is small, because the inputs of the tasks are read along.
        let limit =
            parse_page_size(listing.limit, DEFAULT_PAGE_SIZE)?.min(DEFAULT_PAGE_SIZE as usize);
        let invalid = || invalid_field("after", INVALID_CURSOR);
        let after = listing
            .after
            .as_deref()
            .map(|text| TaskCursor::parse(text).ok_or_else(invalid))
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
        .ok_or_else(|| Problem::new(Code::NotFound, format!("{task} is not a task id")))
}

/// Validates a claim request. Fails if a limit is exceeded or a function name is invalid.
fn parse_claim_request(
    worker: &str,
    functions: &[String],
    max: u32,
    lease_ms: u32,
) -> Result<task_queue::ClaimRequest, Problem> {
    let invalid = |detail: &str| Problem::new(Code::Unprocessable, detail);
    if worker.trim().is_empty() || worker.len() > 200 {
        return Err(invalid("worker: must have 1 to 200 bytes"));
    }
    if functions.is_empty() || functions.len() > FUNCTIONS_MAX {
        return Err(invalid("functions: must name 1 to 100 functions"));
    }
    if !(1..=100).contains(&max) {
        return Err(invalid("max: must be 1 to 100"));
    }
    if !(LEASE_MS_MIN..=LEASE_MS_MAX).contains(&lease_ms) {
        return Err(invalid("leaseMs: must be 100 to 3600000"));
    }
    let name = |name: &String| {
        name.parse::<BoundedName>()
            .map(|name| SharedText::from(&*name))
    };
    let functions: Result<Vec<SharedText>, _> = functions.iter().map(name).collect();
    Ok(task_queue::ClaimRequest {
        worker: worker.into(),
        functions: functions.map_err(|error| invalid(&format!("functions: {error}")))?,
        max_tasks: max as usize,
        lease_ms,
    })
}

fn api_task_claim(task: &LeasedTask, lease_ms: u32) -> TaskClaim {
    TaskClaim {
        task: task_name(task.id),
        promise: task.promise_id().to_string(),
        execution: task.id.execution.to_string(),
        attempt: task.id.attempt,
        token: task.claim_token.to_string(),
        function: task.function.to_string(),
        input: RawJson::parse(task.input.as_str()).unwrap_or_default(),
        delivery: match task.delivery {
            onward_journal::DeliveryGuarantee::AtLeastOnce => TaskDelivery::AtLeastOnce,
            onward_journal::DeliveryGuarantee::AtMostOnce => TaskDelivery::AtMostOnce,
        },
        leased_until: task.leased_until.to_string(),
        lease_ms,
        timeout_ms: task.timeout_ms,
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
