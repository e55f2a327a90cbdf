//! Tasks for workers in any language: claim, go on, complete, fail.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use onward_api::Onward as _;
use onward_api::task::{Claim, Claimed, Complete, Ended, Extended, Fail, Heartbeat, Release, TaskListing, TaskPage};
use onward_api::token::Deed;

use super::executions::patience;
use super::refusals;
use crate::App;
use crate::access::Access;
use crate::answer::{Answer, Body, Named, Params};

/// Claims tasks. Answers as soon as there is one, or with none when the time is over.
///
/// Each is held by the worker that has its token, until the lease runs out. What is claimed and not heard of in time fails
/// as `worker_lost` and is attempted again, or is in doubt where it must not be repeated.
#[utoipa::path(
    post, path = "/v1/tasks/claim", tag = "tasks", operation_id = "claimTasks", request_body = Claim,
    responses(
        (status = 200, description = "The tasks", body = Claimed),
        refusals::Usual, refusals::Body, refusals::Conflict,
    ),
)]
pub(super) async fn claim(State(app): State<Arc<App>>, access: Access, Body(claim): Body<Claim>) -> Answer<Claimed> {
    patience(claim.wait_ms)?;
    tokio::select! {
        claimed = access.to(Deed::Work)?.claim(claim) => Ok(Json(claimed?)),
        () = app.stops() => Ok(Json(Claimed { tasks: Vec::new() })),
    }
}

/// Shows that the worker of a task is alive. Where it does not hold the task any more, it should stop.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/heartbeat", tag = "tasks", operation_id = "heartbeatTask",
    params(("task" = String, Path, description = "The task", pattern = "^[0-9a-f]{64}\\.[0-9]{1,9}\\.[0-9]{1,9}$")),
    request_body = Heartbeat,
    responses(
        (status = 200, description = "It holds the task for as long again", body = Extended),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn heartbeat(access: Access, Named(task): Named, Body(beat): Body<Heartbeat>) -> Answer<Extended> {
    Ok(Json(access.to(Deed::Work)?.heartbeat(&task, &beat.token).await?))
}

/// A task was performed. Said a second time it is refused: the task is over.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/complete", tag = "tasks", operation_id = "completeTask",
    params(("task" = String, Path, description = "The task", pattern = "^[0-9a-f]{64}\\.[0-9]{1,9}\\.[0-9]{1,9}$")),
    request_body = Complete,
    responses(
        (status = 200, description = "It is recorded", body = Ended),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn complete(access: Access, Named(task): Named, Body(complete): Body<Complete>) -> Answer<Ended> {
    Ok(Json(access.to(Deed::Work)?.complete(&task, complete).await?))
}

/// A task could not be performed. Whether there is another attempt is up to the workflow that wants it.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/fail", tag = "tasks", operation_id = "failTask",
    params(("task" = String, Path, description = "The task", pattern = "^[0-9a-f]{64}\\.[0-9]{1,9}\\.[0-9]{1,9}$")),
    request_body = Fail,
    responses(
        (status = 200, description = "It is recorded", body = Ended),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn fail(access: Access, Named(task): Named, Body(fail): Body<Fail>) -> Answer<Ended> {
    Ok(Json(access.to(Deed::Work)?.fail(&task, fail).await?))
}

/// Lists tasks that workers hold, or that wait for one.
#[utoipa::path(
    get, path = "/v1/tasks", tag = "tasks", operation_id = "listTasks", params(TaskListing),
    responses(
        (status = 200, description = "A page", body = TaskPage),
        refusals::Usual,
    ),
)]
pub(super) async fn list(access: Access, Params(listing): Params<TaskListing>) -> Answer<TaskPage> {
    Ok(Json(access.to(Deed::Read)?.tasks(listing).await?))
}

/// Gives a task back that its worker has not begun: it waits for another as if nobody had had it.
#[utoipa::path(
    post, path = "/v1/tasks/{task}/release", tag = "tasks", operation_id = "releaseTask",
    params(("task" = String, Path, description = "The task", pattern = "^[0-9a-f]{64}\\.[0-9]{1,9}\\.[0-9]{1,9}$")),
    request_body = Release,
    responses(
        (status = 200, description = "It is for others", body = Ended),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn release(access: Access, Named(task): Named, Body(release): Body<Release>) -> Answer<Ended> {
    Ok(Json(access.to(Deed::Work)?.release(&task, &release.token).await?))
}
