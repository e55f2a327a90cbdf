//! Campaigns over HTTP.

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
use crate::auth::AuthenticatedCaller;
use crate::http_types::{JsonBody, JsonResult, PathName, PathParams, ProblemResponse, QueryParams};

/// Checks whether a campaign can be deployed, as far as that can be told without its audience.
#[utoipa::path(
    post, path = "/v1/campaigns/check", tag = "campaigns", operation_id = "checkCampaign", request_body = CheckCampaignRequest,
    responses(
        (status = 200, description = "What was found", body = CheckCampaignResponse),
        error_responses::CommonErrors, error_responses::BodyErrors,
    ),
)]
pub(super) async fn check_campaign(
    access: AuthenticatedCaller,
    JsonBody(check): JsonBody<CheckCampaignRequest>,
) -> JsonResult<CheckCampaignResponse> {
    Ok(Json(
        access
            .require_permission(permission_to_check(&check.campaign))?
            .check_campaign(check.campaign)
            .await?,
    ))
}

/// What whoever has a campaign checked does. A provider that the campaign defines is made for that, with secrets and files of
/// this server that it names: that is for those alone who may deploy it.
fn permission_to_check(campaign: &onward_api::RawJson) -> Permission {
    match Campaign::from_document(campaign.as_str()) {
        Ok(Campaign {
            provider: ProviderRef::Inline(_),
            ..
        }) => Permission::Build,
        _ => Permission::Read,
    }
}

/// Shows what some recipients would be sent. Nothing is sent or stored.
#[utoipa::path(
    post, path = "/v1/campaigns/preview", tag = "campaigns", operation_id = "previewCampaign", request_body = PreviewCampaignRequest,
    responses(
        (status = 200, description = "A message for each", body = PreviewCampaignResponse),
        error_responses::CommonErrors, error_responses::BodyErrors,
    ),
)]
pub(super) async fn preview_campaign(
    access: AuthenticatedCaller,
    JsonBody(preview): JsonBody<PreviewCampaignRequest>,
) -> JsonResult<PreviewCampaignResponse> {
    Ok(Json(
        access
            .require_permission(Permission::Read)?
            .preview_campaign(preview)
            .await?,
    ))
}

/// Stores a part of an audience. Whoever stores it chooses its name, best at random; parts are numbered from 0.
///
/// Storing a part again does nothing; another cannot take its place.
#[utoipa::path(
    put, path = "/v1/audiences/{audience}/parts/{number}", tag = "campaigns", operation_id = "putAudiencePart",
    params(
        ("audience" = String, Path, description = "The audience", pattern = "^[A-Za-z0-9_-]{1,100}$"),
        ("number" = u32, Path, description = "Which part", maximum = 98_999),
    ),
    request_body = PutAudiencePartRequest,
    responses(
        (status = 204, description = "It is stored"),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn put_audience_part(
    access: AuthenticatedCaller,
    PathParams((audience, number)): PathParams<(String, u32)>,
    JsonBody(part): JsonBody<PutAudiencePartRequest>,
) -> Result<StatusCode, ProblemResponse> {
    access
        .require_permission(Permission::Build)?
        .put_audience_part(&audience, number, part)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deploys a campaign for an audience whose parts are stored: a run and its jobs, all of it or nothing.
///
/// All of the audience is looked at before: what does not pass is told in `prerequisites` of a problem with the status 422. If
/// earlier runs of the campaign have reached any of its people, or are to, it is refused (409, `reached_before`), unless
/// `reached` says otherwise.
#[utoipa::path(
    post, path = "/v1/campaign-runs", tag = "campaigns", operation_id = "deployCampaign",
    request_body = DeployCampaignRequest,
    responses(
        (status = 200, description = "It is deployed, or was before", body = DeployCampaignResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn deploy_campaign(
    access: AuthenticatedCaller,
    JsonBody(deploy): JsonBody<DeployCampaignRequest>,
) -> JsonResult<DeployCampaignResponse> {
    Ok(Json(
        access
            .require_permission(Permission::Build)?
            .deploy_campaign(deploy)
            .await?,
    ))
}

/// Lists campaign runs, the newest first.
#[utoipa::path(
    get, path = "/v1/campaign-runs", tag = "campaigns", operation_id = "listCampaignRuns", params(ListCampaignRunsQuery),
    responses(
        (status = 200, description = "A page", body = CampaignRunPage),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn list_campaign_runs(
    access: AuthenticatedCaller,
    QueryParams(listing): QueryParams<ListCampaignRunsQuery>,
) -> JsonResult<CampaignRunPage> {
    Ok(Json(
        access
            .require_permission(Permission::Read)?
            .list_campaign_runs(listing)
            .await?,
    ))
}

/// Shows a campaign run, and how many were reached.
#[utoipa::path(
    get, path = "/v1/campaign-runs/{run}", tag = "campaigns", operation_id = "showCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id")),
    responses(
        (status = 200, description = "The campaign run", body = CampaignRunView),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn get_campaign_run(
    access: AuthenticatedCaller,
    PathName(run): PathName,
) -> JsonResult<CampaignRunView> {
    Ok(Json(
        access
            .require_permission(Permission::Read)?
            .get_campaign_run(&run)
            .await?,
    ))
}

/// Lists what happened to a campaign run, in order.
#[utoipa::path(
    get, path = "/v1/campaign-runs/{run}/audit", tag = "campaigns", operation_id = "auditCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id"), ListAuditEntriesQuery),
    responses(
        (status = 200, description = "A page", body = CampaignAuditPage),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn list_audit_entries(
    access: AuthenticatedCaller,
    PathName(run): PathName,
    QueryParams(listing): QueryParams<ListAuditEntriesQuery>,
) -> JsonResult<CampaignAuditPage> {
    Ok(Json(
        access
            .require_permission(Permission::Read)?
            .list_audit_entries(&run, listing)
            .await?,
    ))
}

/// Begins nothing more of a campaign run until it is resumed. What is under way is settled.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/pause", tag = "campaigns", operation_id = "pauseCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id")), request_body = OperatorActionRequest,
    responses(
        (status = 200, description = "It is paused", body = CampaignRunView),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn pause_campaign_run(
    access: AuthenticatedCaller,
    PathName(run): PathName,
    JsonBody(by): JsonBody<OperatorActionRequest>,
) -> JsonResult<CampaignRunView> {
    Ok(Json(
        access
            .require_permission(Permission::Operate)?
            .control_campaign_run(&run, CampaignControl::Paused, by)
            .await?,
    ))
}

/// Goes on with a campaign run that was paused.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/resume", tag = "campaigns", operation_id = "resumeCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id")), request_body = OperatorActionRequest,
    responses(
        (status = 200, description = "It goes on", body = CampaignRunView),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn resume_campaign_run(
    access: AuthenticatedCaller,
    PathName(run): PathName,
    JsonBody(by): JsonBody<OperatorActionRequest>,
) -> JsonResult<CampaignRunView> {
    Ok(Json(
        access
            .require_permission(Permission::Operate)?
            .control_campaign_run(&run, CampaignControl::Active, by)
            .await?,
    ))
}

/// Begins nothing more of a campaign run, ever: whoever was not reached by then is skipped.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/cancel", tag = "campaigns", operation_id = "cancelCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id")), request_body = OperatorActionRequest,
    responses(
        (status = 200, description = "It is cancelled", body = CampaignRunView),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn cancel_campaign_run(
    access: AuthenticatedCaller,
    PathName(run): PathName,
    JsonBody(by): JsonBody<OperatorActionRequest>,
) -> JsonResult<CampaignRunView> {
    Ok(Json(
        access
            .require_permission(Permission::Operate)?
            .control_campaign_run(&run, CampaignControl::Cancelled, by)
            .await?,
    ))
}

/// Tries a campaign run again that is over: another run reaches those whom it did not. Asked again, it is the same run.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/retry", tag = "campaigns", operation_id = "retryCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id")), request_body = OperatorActionRequest,
    responses(
        (status = 200, description = "The other run", body = DeployCampaignResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn retry_campaign_run(
    access: AuthenticatedCaller,
    PathName(run): PathName,
    JsonBody(by): JsonBody<OperatorActionRequest>,
) -> JsonResult<DeployCampaignResponse> {
    Ok(Json(
        access
            .require_permission(Permission::Operate)?
            .retry_campaign_run(&run, by)
            .await?,
    ))
}
