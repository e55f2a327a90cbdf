//! Routes for workers in any language: claim, heartbeat, complete, fail, release and list tasks.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use onward_api::OnwardApi as _;
use onward_api::task::{
    ClaimTasksRequest, ClaimTasksResponse, CompleteTaskRequest, FailTaskRequest,
    HeartbeatTaskRequest, HeartbeatTaskResponse, ListTasksQuery, ReleaseTaskRequest,
    TaskEndResponse, TaskPage,
};

use super::error_responses;
use super::executions::check_wait_ms;
use crate::ServerState;
use crate::auth::{Authorized, ReadAccess, WorkAccess};
use crate::http_types::{JsonBody, JsonResult, PathName, QueryParams};

/// Claims tasks for a worker.
///
/// Responds as soon as a task is available, or with an empty list when `waitMs` has passed.
///
/// A claimed task belongs to the worker that has its claim token, until its lease expires. A task
/// whose worker sends no heartbeat in time fails as `worker_lost` and is attempted again, or is in
/// doubt if it must not be repeated.
#[utoipa::path(
    post, path = "/v1/tasks/claim", tag = "tasks", operation_id = "claimTasks", request_body = ClaimTasksRequest,
    responses(
        (status = 200, description = "The claimed tasks; empty if none was available within `waitMs`", body = ClaimTasksResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn claim_tasks(
    State(app): State<Arc<ServerState>>,
    service: Authorized<WorkAccess>,
    JsonBody(claim): JsonBody<ClaimTasksRequest>,
) -> JsonResult<ClaimTasksResponse> {
    check_wait_ms(claim.wait_ms)?;
    tokio::select! {
        claimed = service.claim_tasks(claim) => Ok(Json(claimed?)),
        () = app.wait_for_stop() => Ok(Json(ClaimTasksResponse { tasks: Vec::new() })),
    }
}

/// Sends a heartbeat for a claimed task, which renews its lease.
///
/// Fails with `lease_lost` if the claim token is no longer valid; the worker should then stop
/// working on the task.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/heartbeat", tag = "tasks", operation_id = "heartbeatTask",
    params(("task" = String, Path, description = "The id of the task", pattern = "^[0-9a-f]{64}\\.[0-9]{1,9}\\.[0-9]{1,9}$")),
    request_body = HeartbeatTaskRequest,
    responses(
        (status = 200, description = "The lease was renewed", body = HeartbeatTaskResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn heartbeat_task(
    service: Authorized<WorkAccess>,
    PathName(task): PathName,
    JsonBody(beat): JsonBody<HeartbeatTaskRequest>,
) -> JsonResult<HeartbeatTaskResponse> {
    Ok(Json(service.heartbeat_task(&task, &beat.token).await?))
}

/// Completes a task with its result.
///
/// Completing it again fails with `lease_lost`.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/complete", tag = "tasks", operation_id = "completeTask",
    params(("task" = String, Path, description = "The id of the task", pattern = "^[0-9a-f]{64}\\.[0-9]{1,9}\\.[0-9]{1,9}$")),
    request_body = CompleteTaskRequest,
    responses(
        (status = 200, description = "The result is recorded", body = TaskEndResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn complete_task(
    service: Authorized<WorkAccess>,
    PathName(task): PathName,
    JsonBody(complete): JsonBody<CompleteTaskRequest>,
) -> JsonResult<TaskEndResponse> {
    Ok(Json(service.complete_task(&task, complete).await?))
}

/// Fails a task with an error.
///
/// Whether the task is attempted again depends on the retry policy of the workflow that invoked it.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/fail", tag = "tasks", operation_id = "failTask",
    params(("task" = String, Path, description = "The id of the task", pattern = "^[0-9a-f]{64}\\.[0-9]{1,9}\\.[0-9]{1,9}$")),
    request_body = FailTaskRequest,
    responses(
        (status = 200, description = "The error is recorded", body = TaskEndResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn fail_task(
    service: Authorized<WorkAccess>,
    PathName(task): PathName,
    JsonBody(fail): JsonBody<FailTaskRequest>,
) -> JsonResult<TaskEndResponse> {
    Ok(Json(service.fail_task(&task, fail).await?))
}

/// Lists tasks that workers have claimed or that are queued for a worker.
#[utoipa::path(
    get, path = "/v1/tasks", tag = "tasks", operation_id = "listTasks", params(ListTasksQuery),
    responses(
        (status = 200, description = "One page of tasks", body = TaskPage),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn list_tasks(
    service: Authorized<ReadAccess>,
    QueryParams(listing): QueryParams<ListTasksQuery>,
) -> JsonResult<TaskPage> {
    Ok(Json(service.list_tasks(listing).await?))
}

/// Releases a claimed task that the worker has not started.
///
/// The task is queued for another worker as if it had never been claimed.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/release", tag = "tasks", operation_id = "releaseTask",
    params(("task" = String, Path, description = "The id of the task", pattern = "^[0-9a-f]{64}\\.[0-9]{1,9}\\.[0-9]{1,9}$")),
    request_body = ReleaseTaskRequest,
    responses(
        (status = 200, description = "The task was released", body = TaskEndResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn release_task(
    service: Authorized<WorkAccess>,
    PathName(task): PathName,
    JsonBody(release): JsonBody<ReleaseTaskRequest>,
) -> JsonResult<TaskEndResponse> {
    Ok(Json(service.release_task(&task, &release.token).await?))
}
