//! Campaigns over HTTP.

use axum::Json;
use axum::http::StatusCode;
use onward_api::campaign::{
    AudiencePart, AuditListing, AuditPage, By, CampaignListing, CampaignPage, CampaignRun, Campaigning as _, Check,
    Checked, Control, DeployCampaign, DeployedCampaign, Preview, Previewed,
};
use onward_api::token::Deed;
use onward_campaign::{Campaign, ProviderRef};

use super::refusals;
use crate::access::Access;
use crate::answer::{Answer, Body, Failed, InPath, Named, Params};

/// Checks whether a campaign can be deployed, as far as that can be told without its audience.
#[utoipa::path(
    post, path = "/v1/campaigns/check", tag = "campaigns", operation_id = "checkCampaign", request_body = Check,
    responses(
        (status = 200, description = "What was found", body = Checked),
        refusals::Usual, refusals::Body,
    ),
)]
pub(super) async fn check(access: Access, Body(check): Body<Check>) -> Answer<Checked> {
    Ok(Json(access.to(looking(&check.campaign))?.check_campaign(check.campaign).await?))
}

/// What whoever has a campaign checked does. A provider that the campaign defines is made for that, with secrets and files of
/// this server that it names: that is for those alone who may deploy it.
fn looking(campaign: &onward_api::Json) -> Deed {
    match Campaign::from_document(campaign.as_str()) {
        Ok(Campaign { provider: ProviderRef::Inline(_), .. }) => Deed::Build,
        _ => Deed::Read,
    }
}

/// Shows what some recipients would be sent. Nothing is sent or stored.
#[utoipa::path(
    post, path = "/v1/campaigns/preview", tag = "campaigns", operation_id = "previewCampaign", request_body = Preview,
    responses(
        (status = 200, description = "A message for each", body = Previewed),
        refusals::Usual, refusals::Body,
    ),
)]
pub(super) async fn preview(access: Access, Body(preview): Body<Preview>) -> Answer<Previewed> {
    Ok(Json(access.to(Deed::Read)?.preview_campaign(preview).await?))
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
    request_body = AudiencePart,
    responses(
        (status = 204, description = "It is stored"),
        refusals::Usual, refusals::Body, refusals::Conflict,
    ),
)]
pub(super) async fn put_part(
    access: Access,
    InPath((audience, number)): InPath<(String, u32)>,
    Body(part): Body<AudiencePart>,
) -> Result<StatusCode, Failed> {
    access.to(Deed::Build)?.put_audience_part(&audience, number, part).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Deploys a campaign for an audience whose parts are stored: a run and its jobs, all of it or nothing.
///
/// All of the audience is looked at before: what does not pass is told in `prerequisites` of a problem with the status 422. If
/// earlier runs of the campaign have reached any of its people, or are to, it is refused (409, `reached_before`), unless
/// `reached` says otherwise.
#[utoipa::path(
    post, path = "/v1/campaign-runs", tag = "campaigns", operation_id = "deployCampaign",
    request_body = DeployCampaign,
    responses(
        (status = 200, description = "It is deployed, or was before", body = DeployedCampaign),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn deploy(access: Access, Body(deploy): Body<DeployCampaign>) -> Answer<DeployedCampaign> {
    Ok(Json(access.to(Deed::Build)?.deploy_campaign(deploy).await?))
}

/// Lists campaign runs, the newest first.
#[utoipa::path(
    get, path = "/v1/campaign-runs", tag = "campaigns", operation_id = "listCampaignRuns", params(CampaignListing),
    responses(
        (status = 200, description = "A page", body = CampaignPage),
        refusals::Usual,
    ),
)]
pub(super) async fn list(access: Access, Params(listing): Params<CampaignListing>) -> Answer<CampaignPage> {
    Ok(Json(access.to(Deed::Read)?.campaign_runs(listing).await?))
}

/// Shows a campaign run, and how many were reached.
#[utoipa::path(
    get, path = "/v1/campaign-runs/{run}", tag = "campaigns", operation_id = "showCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id")),
    responses(
        (status = 200, description = "The campaign run", body = CampaignRun),
        refusals::Usual, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn show(access: Access, Named(run): Named) -> Answer<CampaignRun> {
    Ok(Json(access.to(Deed::Read)?.campaign_run(&run).await?))
}

/// Lists what happened to a campaign run, in order.
#[utoipa::path(
    get, path = "/v1/campaign-runs/{run}/audit", tag = "campaigns", operation_id = "auditCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id"), AuditListing),
    responses(
        (status = 200, description = "A page", body = AuditPage),
        refusals::Usual, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn audit(
    access: Access,
    Named(run): Named,
    Params(listing): Params<AuditListing>,
) -> Answer<AuditPage> {
    Ok(Json(access.to(Deed::Read)?.campaign_audit(&run, listing).await?))
}

/// Begins nothing more of a campaign run until it is resumed. What is under way is settled.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/pause", tag = "campaigns", operation_id = "pauseCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id")), request_body = By,
    responses(
        (status = 200, description = "It is paused", body = CampaignRun),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn pause(access: Access, Named(run): Named, Body(by): Body<By>) -> Answer<CampaignRun> {
    Ok(Json(access.to(Deed::Operate)?.control_campaign(&run, Control::Paused, by).await?))
}

/// Goes on with a campaign run that was paused.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/resume", tag = "campaigns", operation_id = "resumeCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id")), request_body = By,
    responses(
        (status = 200, description = "It goes on", body = CampaignRun),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn resume(access: Access, Named(run): Named, Body(by): Body<By>) -> Answer<CampaignRun> {
    Ok(Json(access.to(Deed::Operate)?.control_campaign(&run, Control::Active, by).await?))
}

/// Begins nothing more of a campaign run, ever: whoever was not reached by then is skipped.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/cancel", tag = "campaigns", operation_id = "cancelCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id")), request_body = By,
    responses(
        (status = 200, description = "It is cancelled", body = CampaignRun),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn cancel(access: Access, Named(run): Named, Body(by): Body<By>) -> Answer<CampaignRun> {
    Ok(Json(access.to(Deed::Operate)?.control_campaign(&run, Control::Cancelled, by).await?))
}

/// Tries a campaign run again that is over: another run reaches those whom it did not. Asked again, it is the same run.
#[utoipa::path(
    post, path = "/v1/campaign-runs/{run}/retry", tag = "campaigns", operation_id = "retryCampaignRun",
    params(("run" = String, Path, description = "The campaign run, or the beginning of its id")), request_body = By,
    responses(
        (status = 200, description = "The other run", body = DeployedCampaign),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn retry(access: Access, Named(run): Named, Body(by): Body<By>) -> Answer<DeployedCampaign> {
    Ok(Json(access.to(Deed::Operate)?.retry_campaign(&run, by).await?))
}
