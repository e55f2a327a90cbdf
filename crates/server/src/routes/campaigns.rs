//! Routes for campaigns, audiences and campaign runs.

use axum::Json;
use axum::http::StatusCode;
use onward_api::campaign::{
    CampaignApi as _, CampaignAuditPage, CampaignControl, CampaignRunPage, CampaignRunView,
    CheckCampaignRequest, CheckCampaignResponse, DeployCampaignRequest, DeployCampaignResponse,
    ListAuditEntriesQuery, ListCampaignRunsQuery, OperatorActionRequest, PreviewCampaignRequest,
    PreviewCampaignResponse, PutAudiencePartRequest,
};
use onward_api::token::Permission;
use onward_campaign_file::{Campaign, ProviderRef};

use super::error_responses;
use crate::auth::{Authorized, BuildAccess, OperateAccess, ReadAccess};
use crate::http_types::{JsonBody, JsonResult, PathName, PathParams, ProblemResponse, QueryParams};

/// Checks whether a campaign can be deployed, as far as this is possible without its audience.
///
/// Requires the role `viewer`, or `engineer` if the campaign defines its provider inline.
#[utoipa::path(
    post, path = "/v1/campaigns/check", tag = "campaigns", operation_id = "checkCampaign", request_body = CheckCampaignRequest,
    responses(
        (status = 200, description = "The prerequisites that were checked", body = CheckCampaignResponse),
        error_responses::CommonErrors, error_responses::BodyErrors,
    ),
)]
pub(super) async fn check_campaign(
    service: Authorized<ReadAccess>,
    JsonBody(check): JsonBody<CheckCampaignRequest>,
) -> JsonResult<CheckCampaignResponse> {
    Ok(Json(
        service
            .require_permission(permission_to_check(&check.campaign))?
            .check_campaign(check.campaign)
            .await?,
    ))
}

/// Permission that is required to check a campaign. If the campaign defines its provider inline,
/// the check creates that provider with the secrets and files of this server that the campaign
/// names; only callers that may deploy the campaign may do this.
fn permission_to_check(campaign: &onward_api::RawJson) -> Permission {
    match Campaign::from_document(campaign.as_str()) {
        Ok(Campaign {
            provider: ProviderRef::Inline(_),
            ..
        }) => Permission::Build,
        _ => Permission::Read,
    }
}

/// Returns the messages that the given recipients would receive.
///
/// Sends and stores nothing.
#[utoipa::path(
    post, path = "/v1/campaigns/preview", tag = "campaigns", operation_id = "previewCampaign", request_body = PreviewCampaignRequest,
    responses(
        (status = 200, description = "One message for each recipient", body = PreviewCampaignResponse),
        error_responses::CommonErrors, error_responses::BodyErrors,
    ),
)]
pub(super) async fn preview_campaign(
    service: Authorized<ReadAccess>,
    JsonBody(preview): JsonBody<PreviewCampaignRequest>,
) -> JsonResult<PreviewCampaignResponse> {
    Ok(Json(service.preview_campaign(preview).await?))
}

/// Stores one part of an audience.
///
/// The client chooses the name of the audience, preferably at random; parts are numbered from 0.
/// Storing the same part again changes nothing. A stored part cannot be replaced by a different
/// one.
#[utoipa::path(
    put, path = "/v1/audiences/{audience}/parts/{number}", tag = "campaigns", operation_id = "putAudiencePart",
    params(
        ("audience" = String, Path, description = "The name of the audience", pattern = "^[A-Za-z0-9_-]{1,100}$"),
        ("number" = u32, Path, description = "The number of the part; the first is 0", maximum = 98_999),
    ),
    request_body = PutAudiencePartRequest,
    responses(
        (status = 204, description = "The part is stored"),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn put_audience_part(
    service: Authorized<BuildAccess>,
    PathParams((audience, number)): PathParams<(String, u32)>,
    JsonBody(part): JsonBody<PutAudiencePartRequest>,
) -> Result<StatusCode, ProblemResponse> {
    service.put_audience_part(&audience, number, part).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deploys a campaign for an audience whose parts are already stored.
///
/// Creates a campaign run and its jobs, atomically. The whole audience is checked first: failed
/// checks are listed in `prerequisites` of a problem with status 422. If earlier runs of the
/// campaign have reached any of its recipients, or will reach them, the deployment is rejected with
/// status 409 and code `recipients_already_reached`, unless `previousRecipients` is `exclude` or
/// `resend`.
#[utoipa::path(
    post, path = "/v1/campaign-runs", tag = "campaigns", operation_id = "deployCampaign",
    request_body = DeployCampaignRequest,
    responses(
        (status = 200, description = "The campaign is deployed, or was deployed before with the same key", body = DeployCampaignResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn deploy_campaign(
    service: Authorized<BuildAccess>,
    JsonBody(deploy): JsonBody<DeployCampaignRequest>,
) -> JsonResult<DeployCampaignResponse> {
    Ok(Json(service.deploy_campaign(deploy).await?))
}

/// Lists campaign runs, newest first.
#[utoipa::path(
    get, path = "/v1/campaign-runs", tag = "campaigns", operation_id = "listCampaignRuns", params(ListCampaignRunsQuery),
    responses(
        (status = 200, description = "One page of campaign runs", body = CampaignRunPage),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn list_campaign_runs(
    service: Authorized<ReadAccess>,
    QueryParams(listing): QueryParams<ListCampaignRunsQuery>,
) -> JsonResult<CampaignRunPage> {
    Ok(Json(service.list_campaign_runs(listing).await?))
}

/// Returns a campaign run with the number of items in each state.
#[utoipa::path(
    get, path = "/v1/campaign-runs/{run}", tag = "campaigns", operation_id = "getCampaignRun",
    params(("run" = String, Path, description = "The id of the campaign run, or a unique prefix of at least four characters")),
    responses(
        (status = 200, description = "The campaign run", body = CampaignRunView),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn get_campaign_run(
    service: Authorized<ReadAccess>,
    PathName(run): PathName,
) -> JsonResult<CampaignRunView> {
    Ok(Json(service.get_campaign_run(&run).await?))
}

/// Lists the audit trail of a campaign run, in chronological order.
#[utoipa::path(
    get, path = "/v1/campaign-runs/{run}/audit", tag = "campaigns", operation_id = "listAuditEntries",
    params(("run" = String, Path, description = "The id of the campaign run, or a unique prefix of at least four characters"), ListAuditEntriesQuery),
    responses(
        (status = 200, description = "One page of audit entries", body = CampaignAuditPage),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn list_audit_entries(
    service: Authorized<ReadAccess>,
    PathName(run): PathName,
    QueryParams(listing): QueryParams<ListAuditEntriesQuery>,
) -> JsonResult<CampaignAuditPage> {
    Ok(Json(service.list_audit_entries(&run, listing).await?))
}

/// Pauses a campaign run.
///
/// No new sends are started until it is resumed. Sends in flight are settled.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/pause", tag = "campaigns", operation_id = "pauseCampaignRun",
    params(("run" = String, Path, description = "The id of the campaign run, or a unique prefix of at least four characters")), request_body = OperatorActionRequest,
    responses(
        (status = 200, description = "The paused campaign run", body = CampaignRunView),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn pause_campaign_run(
    service: Authorized<OperateAccess>,
    PathName(run): PathName,
    JsonBody(by): JsonBody<OperatorActionRequest>,
) -> JsonResult<CampaignRunView> {
    Ok(Json(
        service
            .control_campaign_run(&run, CampaignControl::Paused, by)
            .await?,
    ))
}

/// Resumes a paused campaign run.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/resume", tag = "campaigns", operation_id = "resumeCampaignRun",
    params(("run" = String, Path, description = "The id of the campaign run, or a unique prefix of at least four characters")), request_body = OperatorActionRequest,
    responses(
        (status = 200, description = "The resumed campaign run", body = CampaignRunView),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn resume_campaign_run(
    service: Authorized<OperateAccess>,
    PathName(run): PathName,
    JsonBody(by): JsonBody<OperatorActionRequest>,
) -> JsonResult<CampaignRunView> {
    Ok(Json(
        service
            .control_campaign_run(&run, CampaignControl::Active, by)
            .await?,
    ))
}

/// Cancels a campaign run for good.
///
/// No new sends are started, and items that are not sent yet are marked `skipped`.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/cancel", tag = "campaigns", operation_id = "cancelCampaignRun",
    params(("run" = String, Path, description = "The id of the campaign run, or a unique prefix of at least four characters")), request_body = OperatorActionRequest,
    responses(
        (status = 200, description = "The cancelled campaign run", body = CampaignRunView),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn cancel_campaign_run(
    service: Authorized<OperateAccess>,
    PathName(run): PathName,
    JsonBody(by): JsonBody<OperatorActionRequest>,
) -> JsonResult<CampaignRunView> {
    Ok(Json(
        service
            .control_campaign_run(&run, CampaignControl::Cancelled, by)
            .await?,
    ))
}

/// Retries a finished campaign run for the recipients that it did not reach.
///
/// Deploys another run for these recipients. Retrying the same run again returns the same new run.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/retry", tag = "campaigns", operation_id = "retryCampaignRun",
    params(("run" = String, Path, description = "The id of the campaign run, or a unique prefix of at least four characters")), request_body = OperatorActionRequest,
    responses(
        (status = 200, description = "The new campaign run", body = DeployCampaignResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn retry_campaign_run(
    service: Authorized<OperateAccess>,
    PathName(run): PathName,
    JsonBody(by): JsonBody<OperatorActionRequest>,
) -> JsonResult<DeployCampaignResponse> {
    Ok(Json(service.retry_campaign_run(&run, by).await?))
}
