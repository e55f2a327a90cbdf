//! Items, jobs and suppressions over HTTP.

use axum::Json;
use onward_api::campaign::{By, Campaigning as _, ChannelName};
use onward_api::outbox::{
    DoubtListing, Job, JobListing, JobPage, OutboxItem, OutboxListing, OutboxPage, Settle, SettleMany, Settlement,
    Suppress, Suppression, SuppressionListing, SuppressionPage, Unsuppressed,
};
use onward_api::token::Deed;

use super::refusals;
use crate::access::Access;
use crate::answer::{Answer, Body, InPath, Named, Params};

/// Lists items of a campaign run: what was sent to whom, or why not.
#[utoipa::path(
    get, path = "/v1/outbox", tag = "campaigns", operation_id = "listOutbox", params(OutboxListing),
    responses(
        (status = 200, description = "A page", body = OutboxPage),
        refusals::Usual, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn list(access: Access, Params(listing): Params<OutboxListing>) -> Answer<OutboxPage> {
    Ok(Json(access.to(Deed::Read)?.outbox(listing).await?))
}

/// Lists items in doubt of all campaign runs: nobody knows whether the provider has taken them.
#[utoipa::path(
    get, path = "/v1/outbox/in-doubt", tag = "campaigns", operation_id = "listInDoubt", params(DoubtListing),
    responses(
        (status = 200, description = "A page", body = OutboxPage),
        refusals::Usual,
    ),
)]
pub(super) async fn in_doubt(access: Access, Params(listing): Params<DoubtListing>) -> Answer<OutboxPage> {
    Ok(Json(access.to(Deed::Read)?.outbox_in_doubt(listing).await?))
}

/// Says what became of an item in doubt, and how that is known.
#[utoipa::path(
    post, path = "/v1/outbox/{item}/settle", tag = "campaigns", operation_id = "settleItem",
    params(("item" = String, Path, description = "The item")), request_body = Settle,
    responses(
        (status = 200, description = "It is settled", body = OutboxItem),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn settle(access: Access, Named(item): Named, Body(settle): Body<Settle>) -> Answer<OutboxItem> {
    Ok(Json(access.to(Deed::Operate)?.settle(&item, settle).await?))
}

/// Says the same of many items in doubt, and how that is known. Those of one job are settled together; what could not be
/// settled is listed with why.
#[utoipa::path(
    post, path = "/v1/outbox/settle", tag = "campaigns", operation_id = "settleItems", request_body = SettleMany,
    responses(
        (status = 200, description = "What came of it", body = Settlement),
        refusals::Usual, refusals::Body,
    ),
)]
pub(super) async fn settle_many(access: Access, Body(settle): Body<SettleMany>) -> Answer<Settlement> {
    Ok(Json(access.to(Deed::Operate)?.settle_many(settle).await?))
}

/// Lists jobs of campaign runs.
#[utoipa::path(
    get, path = "/v1/jobs", tag = "campaigns", operation_id = "listJobs", params(JobListing),
    responses(
        (status = 200, description = "A page", body = JobPage),
        refusals::Usual, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn jobs(access: Access, Params(listing): Params<JobListing>) -> Answer<JobPage> {
    Ok(Json(access.to(Deed::Read)?.jobs(listing).await?))
}

/// Tries a dead job again: those of its items that nobody tried any more. One that waits for its time is tried now.
#[utoipa::path(
    post, path = "/v1/jobs/{job}/redrive", tag = "campaigns", operation_id = "redriveJob",
    params(("job" = String, Path, description = "The job")), request_body = By,
    responses(
        (status = 200, description = "It is tried again", body = Job),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn redrive(access: Access, Named(job): Named, Body(by): Body<By>) -> Answer<Job> {
    Ok(Json(access.to(Deed::Operate)?.redrive(&job, by).await?))
}

/// Lists those who want nothing more by a channel.
#[utoipa::path(
    get, path = "/v1/suppressions", tag = "campaigns", operation_id = "listSuppressions", params(SuppressionListing),
    responses(
        (status = 200, description = "A page", body = SuppressionPage),
        refusals::Usual,
    ),
)]
pub(super) async fn suppressions(
    access: Access,
    Params(listing): Params<SuppressionListing>,
) -> Answer<SuppressionPage> {
    Ok(Json(access.to(Deed::Read)?.suppressions(listing).await?))
}

/// Reaches somebody no more by a channel. Runs that are under way heed it from their next job on.
#[utoipa::path(
    post, path = "/v1/suppressions", tag = "campaigns", operation_id = "suppress", request_body = Suppress,
    responses(
        (status = 200, description = "They are left alone", body = Suppression),
        refusals::Usual, refusals::Body,
    ),
)]
pub(super) async fn suppress(access: Access, Body(suppress): Body<Suppress>) -> Answer<Suppression> {
    Ok(Json(access.to(Deed::Operate)?.suppress(suppress).await?))
}

/// Reaches somebody again by a channel.
#[utoipa::path(
    delete, path = "/v1/suppressions/{channel}/{address}", tag = "campaigns", operation_id = "unsuppress",
    params(
        ("channel" = ChannelName, Path, description = "The channel"),
        ("address" = String, Path, description = "Where they are reached"),
    ),
    responses(
        (status = 200, description = "They are reached again", body = Unsuppressed),
        refusals::Usual, refusals::Unfit,
    ),
)]
pub(super) async fn unsuppress(
    access: Access,
    InPath((channel, address)): InPath<(ChannelName, String)>,
) -> Answer<Unsuppressed> {
    Ok(Json(access.to(Deed::Operate)?.unsuppress(channel, &address).await?))
}
