//! Routes for run events and run snapshots.

use axum::Json;
use onward_api::OnwardApi as _;
use onward_api::run::{
    AppendRunEventsRequest, AppendRunEventsResponse, RunEventPage, RunSnapshotView, SnapshotSource,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::error_responses;
use super::executions::{check_wait_ms, parse_sequence};
use crate::auth::{Authorized, BuildAccess, ReadAccess};
use crate::http_types::{JsonBody, JsonResult, PathName, QueryParams};

/// Default maximum number of events in a page.
const DEFAULT_PAGE_SIZE: u32 = 1_000;

/// Appends run events in the given order, atomically: all of them or none.
///
/// An event whose idempotency key already exists is not appended again; its result is that of the
/// first append.
#[utoipa::path(
    post, path = "/v1/run-events", tag = "runs", operation_id = "appendRunEvents", request_body = AppendRunEventsRequest,
    responses(
        (status = 200, description = "The events are stored durably", body = AppendRunEventsResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn append_run_events(
    service: Authorized<BuildAccess>,
    JsonBody(append): JsonBody<AppendRunEventsRequest>,
) -> JsonResult<AppendRunEventsResponse> {
    Ok(Json(AppendRunEventsResponse {
        results: service.append_run_events(append).await?,
    }))
}

/// Query of the events of a run.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunEventsQuery {
    /// Returns only events whose sequence is greater than this; default: 0.
    #[serde(default)]
    #[param(minimum = 0)]
    after: i64,
    /// Maximum number of events to return; default: 1000.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Maximum time in milliseconds to wait for an event if there is none yet; default: 0, at most
    /// 60000.
    #[serde(rename = "waitMs", default)]
    #[param(maximum = 60_000)]
    wait_ms: u64,
}

/// Returns the events of a run after a watermark.
#[utoipa::path(
    get, path = "/v1/runs/{run}/events", tag = "runs", operation_id = "getRunEvents",
    params(("run" = String, Path, description = "The id of the run"), RunEventsQuery),
    responses(
        (status = 200, description = "One page of run events", body = RunEventPage),
        error_responses::CommonErrors, error_responses::NotFoundErrors,
    ),
)]
pub(super) async fn get_run_events(
    service: Authorized<ReadAccess>,
    PathName(run): PathName,
    QueryParams(RunEventsQuery {
        after,
        limit,
        wait_ms,
    }): QueryParams<RunEventsQuery>,
) -> JsonResult<RunEventPage> {
    let (after, wait_ms) = (parse_sequence(after)?, check_wait_ms(wait_ms)?);
    Ok(Json(
        service
            .get_run_events(&run, after, limit.unwrap_or(DEFAULT_PAGE_SIZE), wait_ms)
            .await?,
    ))
}

/// Query of the snapshot of a run.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct RunSnapshotQuery {
    /// Reduces the log now instead of reading the stored snapshot, which may be up to a second old;
    /// default: false.
    #[serde(rename = "fromLog", default)]
    from_log: bool,
}

/// Returns the snapshot of a run: the state to which its events reduce.
#[utoipa::path(
    get, path = "/v1/runs/{run}/snapshot", tag = "runs", operation_id = "getRunSnapshot",
    params(("run" = String, Path, description = "The id of the run"), RunSnapshotQuery),
    responses(
        (status = 200, description = "The snapshot of the run", body = RunSnapshotView),
        error_responses::CommonErrors, error_responses::NotFoundErrors,
    ),
)]
pub(super) async fn get_run_snapshot(
    service: Authorized<ReadAccess>,
    PathName(run): PathName,
    QueryParams(RunSnapshotQuery { from_log }): QueryParams<RunSnapshotQuery>,
) -> JsonResult<RunSnapshotView> {
    let source = if from_log {
        SnapshotSource::Log
    } else {
        SnapshotSource::Stored
    };
    Ok(Json(service.get_run_snapshot(&run, source).await?))
}
