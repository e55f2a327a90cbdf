//! Run events and snapshots.

use axum::Json;
use onward_api::Onward as _;
use onward_api::run::{Append, AppendedAll, RunEventPage, RunSnapshot};
use onward_api::token::Deed;
use serde::Deserialize;
use utoipa::IntoParams;

use super::executions::{patience, sequence};
use super::refusals;
use crate::access::Access;
use crate::answer::{Answer, Body, Named, Params};

/// Events of a page, unless told.
const PAGE: u32 = 1_000;

/// Appends run events, in this order, all of them or none.
///
/// An event whose idempotency key is there already is answered with what the first one was given.
#[utoipa::path(
    post, path = "/v1/run-events", tag = "runs", operation_id = "appendRunEvents", request_body = Append,
    responses(
        (status = 200, description = "They are durable", body = AppendedAll),
        refusals::Usual, refusals::Body, refusals::Conflict,
    ),
)]
pub(super) async fn append(access: Access, Body(append): Body<Append>) -> Answer<AppendedAll> {
    Ok(Json(AppendedAll { results: access.to(Deed::Build)?.append(append).await? }))
}

/// Which events of a run.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct After {
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
    params(("run" = String, Path, description = "The run"), After),
    responses(
        (status = 200, description = "A page", body = RunEventPage),
        refusals::Usual, refusals::Absent,
    ),
)]
pub(super) async fn events(
    access: Access,
    Named(run): Named,
    Params(After { after, limit, wait_ms }): Params<After>,
) -> Answer<RunEventPage> {
    let service = access.to(Deed::Read)?;
    let (after, wait_ms) = (sequence(after)?, patience(wait_ms)?);
    Ok(Json(service.run_events(&run, after, limit.unwrap_or(PAGE), wait_ms).await?))
}

/// Which snapshot.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// Reduce the log now instead of reading the stored snapshot, which may be up to a second old.
    #[serde(default)]
    project: bool,
}

/// Where a run stands.
#[utoipa::path(
    get, path = "/v1/runs/{run}/snapshot", tag = "runs", operation_id = "getRunSnapshot",
    params(("run" = String, Path, description = "The run"), Which),
    responses(
        (status = 200, description = "Its snapshot", body = RunSnapshot),
        refusals::Usual, refusals::Absent,
    ),
)]
pub(super) async fn snapshot(
    access: Access,
    Named(run): Named,
    Params(Which { project }): Params<Which>,
) -> Answer<RunSnapshot> {
    Ok(Json(access.to(Deed::Read)?.snapshot(&run, project).await?))
}
