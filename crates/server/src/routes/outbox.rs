//! Routes for outbox items, jobs and the suppression list.

use axum::Json;
use onward_api::campaign::{CampaignApi as _, ChannelName, OperatorActionRequest};
use onward_api::outbox::{
    AddSuppressionRequest, CampaignJob, JobPage, ListInDoubtItemsQuery, ListJobsQuery,
    ListOutboxItemsQuery, ListSuppressionsQuery, OutboxItemPage, OutboxItemView,
    RemoveSuppressionResponse, SettleItemRequest, SettleItemsRequest, SettleItemsResponse,
    SuppressionEntry, SuppressionPage,
};

use super::error_responses;
use crate::auth::{Authorized, OperateAccess, ReadAccess};
use crate::http_types::{JsonBody, JsonResult, PathName, PathParams, QueryParams};

/// Lists the outbox items of a campaign run.
///
/// Each item states what was sent to which recipient, or why it was not sent.
#[utoipa::path(
    get, path = "/v1/outbox", tag = "campaigns", operation_id = "listOutboxItems", params(ListOutboxItemsQuery),
    responses(
        (status = 200, description = "One page of outbox items", body = OutboxItemPage),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn list_outbox_items(
    service: Authorized<ReadAccess>,
    QueryParams(listing): QueryParams<ListOutboxItemsQuery>,
) -> JsonResult<OutboxItemPage> {
    Ok(Json(service.list_outbox_items(listing).await?))
}

/// Lists the items in doubt of all campaign runs.
///
/// An item is in doubt if it is unknown whether the provider has accepted it.
#[utoipa::path(
    get, path = "/v1/outbox/in-doubt", tag = "campaigns", operation_id = "listInDoubtItems", params(ListInDoubtItemsQuery),
    responses(
        (status = 200, description = "One page of items in doubt", body = OutboxItemPage),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn list_in_doubt_items(
    service: Authorized<ReadAccess>,
    QueryParams(listing): QueryParams<ListInDoubtItemsQuery>,
) -> JsonResult<OutboxItemPage> {
    Ok(Json(service.list_in_doubt_items(listing).await?))
}

/// Settles an item in doubt with its actual outcome and the evidence for it.
#[utoipa::path(
    post, path = "/v1/outbox/{item}/settle", tag = "campaigns", operation_id = "settleItem",
    params(("item" = String, Path, description = "The id of the outbox item")), request_body = SettleItemRequest,
    responses(
        (status = 200, description = "The settled item", body = OutboxItemView),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn settle_item(
    service: Authorized<OperateAccess>,
    PathName(item): PathName,
    JsonBody(settle): JsonBody<SettleItemRequest>,
) -> JsonResult<OutboxItemView> {
    Ok(Json(service.settle_item(&item, settle).await?))
}

/// Settles many items in doubt with the same outcome and evidence.
///
/// Items of the same job are settled together; items that could not be settled are listed with the
/// reason.
#[utoipa::path(
    post, path = "/v1/outbox/settle", tag = "campaigns", operation_id = "settleItems", request_body = SettleItemsRequest,
    responses(
        (status = 200, description = "The items that were settled and those that were not", body = SettleItemsResponse),
        error_responses::CommonErrors, error_responses::BodyErrors,
    ),
)]
pub(super) async fn settle_items(
    service: Authorized<OperateAccess>,
    JsonBody(settle): JsonBody<SettleItemsRequest>,
) -> JsonResult<SettleItemsResponse> {
    Ok(Json(service.settle_items(settle).await?))
}

/// Lists the jobs of campaign runs.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "campaigns", operation_id = "listJobs", params(ListJobsQuery),
    responses(
        (status = 200, description = "One page of jobs", body = JobPage),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn list_jobs(
    service: Authorized<ReadAccess>,
    QueryParams(listing): QueryParams<ListJobsQuery>,
) -> JsonResult<JobPage> {
    Ok(Json(service.list_jobs(listing).await?))
}

/// Redrives a dead job.
///
/// Its exhausted items are attempted again. A job that waits for its next attempt is attempted now.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/redrive", tag = "campaigns", operation_id = "redriveJob",
    params(("job" = String, Path, description = "The id of the job")), request_body = OperatorActionRequest,
    responses(
        (status = 200, description = "The job that is attempted again", body = CampaignJob),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn redrive_job(
    service: Authorized<OperateAccess>,
    PathName(job): PathName,
    JsonBody(by): JsonBody<OperatorActionRequest>,
) -> JsonResult<CampaignJob> {
    Ok(Json(service.redrive_job(&job, by).await?))
}

/// Lists the suppression list of a channel.
#[utoipa::path(
    get, path = "/v1/suppressions", tag = "campaigns", operation_id = "listSuppressions", params(ListSuppressionsQuery),
    responses(
        (status = 200, description = "One page of suppressed addresses", body = SuppressionPage),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn list_suppressions(
    service: Authorized<ReadAccess>,
    QueryParams(listing): QueryParams<ListSuppressionsQuery>,
) -> JsonResult<SuppressionPage> {
    Ok(Json(service.list_suppressions(listing).await?))
}

/// Adds an address to the suppression list of a channel.
///
/// Campaign runs in progress apply it from their next job on. If the address is already on the
/// list, the existing entry is returned.
#[utoipa::path(
    post, path = "/v1/suppressions", tag = "campaigns", operation_id = "addSuppression", request_body = AddSuppressionRequest,
    responses(
        (status = 200, description = "The entry of the suppression list", body = SuppressionEntry),
        error_responses::CommonErrors, error_responses::BodyErrors,
    ),
)]
pub(super) async fn add_suppression(
    service: Authorized<OperateAccess>,
    JsonBody(suppress): JsonBody<AddSuppressionRequest>,
) -> JsonResult<SuppressionEntry> {
    Ok(Json(service.add_suppression(suppress).await?))
}

/// Removes an address from the suppression list of a channel.
#[utoipa::path(
    delete, path = "/v1/suppressions/{channel}/{address}", tag = "campaigns", operation_id = "removeSuppression",
    params(
        ("channel" = ChannelName, Path, description = "The channel of the suppression list"),
        ("address" = String, Path, description = "The address to remove, in the format of the channel"),
    ),
    responses(
        (status = 200, description = "The address that is no longer on the suppression list", body = RemoveSuppressionResponse),
        error_responses::CommonErrors, error_responses::UnprocessableErrors,
    ),
)]
pub(super) async fn remove_suppression(
    service: Authorized<OperateAccess>,
    PathParams((channel, address)): PathParams<(ChannelName, String)>,
) -> JsonResult<RemoveSuppressionResponse> {
    Ok(Json(service.remove_suppression(channel, &address).await?))
}
