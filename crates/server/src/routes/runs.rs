//! Run events and snapshots.

use axum::Json;
use onward_api::OnwardApi as _;
use onward_api::run::{
    AppendRunEventsRequest, AppendRunEventsResponse, RunEventPage, RunSnapshotView,
};
use onward_api::token::Permission;
use serde::Deserialize;
use utoipa::IntoParams;

use super::error_responses;
use super::executions::{check_wait_ms, parse_sequence};
use crate::auth::AuthenticatedCaller;
use crate::http_types::{JsonBody, JsonResult, PathName, QueryParams};

/// Events of a page, unless told.
const DEFAULT_PAGE_SIZE: u32 = 1_000;

/// Appends run events, in this order, all of them or none.
///
/// An event whose idempotency key is there already is answered with what the first one was given.
#[utoipa::path(
    post, path = "/v1/run-events", tag = "runs", operation_id = "appendRunEvents", request_body = AppendRunEventsRequest,
    responses(
        (status = 200, description = "They are durable", body = AppendRunEventsResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn append_run_events(
    access: AuthenticatedCaller,
    JsonBody(append): JsonBody<AppendRunEventsRequest>,
) -> JsonResult<AppendRunEventsResponse> {
    Ok(Json(AppendRunEventsResponse {
        results: access
            .require_permission(Permission::Build)?
            .append_run_events(append)
            .await?,
    }))
}

/// Which events of a run.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunEventsQuery {
    /// Only events after this sequence.
    #[serde(default)]
    #[param(minimum = 0)]
    after: i64,
    /// At most so many.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// How many milliseconds to wait for an event, where there is none; at most a minute.
    #[serde(rename = "waitMs", default)]
    #[param(maximum = 60_000)]
    wait_ms: u64,
}

/// The events of a run after a watermark.
#[utoipa::path(
    get, path = "/v1/runs/{run}/events", tag = "runs", operation_id = "getRunEvents",
    params(("run" = String, Path, description = "The run"), RunEventsQuery),
    responses(
        (status = 200, description = "A page", body = RunEventPage),
        error_responses::CommonErrors, error_responses::NotFoundErrors,
    ),
)]
pub(super) async fn get_run_events(
    access: AuthenticatedCaller,
    PathName(run): PathName,
    QueryParams(RunEventsQuery {
        after,
        limit,
        wait_ms,
    }): QueryParams<RunEventsQuery>,
) -> JsonResult<RunEventPage> {
    let service = access.require_permission(Permission::Read)?;
    let (after, wait_ms) = (parse_sequence(after)?, check_wait_ms(wait_ms)?);
    Ok(Json(
        service
            .get_run_events(&run, after, limit.unwrap_or(DEFAULT_PAGE_SIZE), wait_ms)
            .await?,
    ))
}

/// Which snapshot.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunSnapshotQuery {
    /// Reduce the log now instead of reading the stored snapshot, which may be up to a second old.
    #[serde(default)]
    project: bool,
}

/// Where a run stands.
#[utoipa::path(
    get, path = "/v1/runs/{run}/snapshot", tag = "runs", operation_id = "getRunSnapshot",
    params(("run" = String, Path, description = "The run"), RunSnapshotQuery),
    responses(
        (status = 200, description = "Its snapshot", body = RunSnapshotView),
        error_responses::CommonErrors, error_responses::NotFoundErrors,
    ),
)]
pub(super) async fn get_run_snapshot(
    access: AuthenticatedCaller,
    PathName(run): PathName,
    QueryParams(RunSnapshotQuery { project }): QueryParams<RunSnapshotQuery>,
) -> JsonResult<RunSnapshotView> {
    Ok(Json(
        access
            .require_permission(Permission::Read)?
            .get_run_snapshot(&run, project)
            .await?,
    ))
}
