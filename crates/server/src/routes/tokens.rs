//! Tokens of the asker's tenant, project and environment.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onward_api::problem::{Code, Problem};
use onward_api::token::{Deed, MadeToken, NewToken, TokenList};

use super::refusals;
use crate::access::Access;
use crate::answer::{Answer, Body, Failed, Named};
use crate::token;

/// Makes a token. It is shown this once.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "administration", operation_id = "createToken", request_body = NewToken,
    responses(
        (status = 201, description = "It is good from now on", body = MadeToken),
        refusals::Usual, refusals::Body, refusals::Conflict,
    ),
)]
pub(super) async fn create(access: Access, Body(new): Body<NewToken>) -> Result<Response, Failed> {
    let client = access.to(Deed::Administer)?.client();
    let expires_at = new.expires_at.as_deref().map(str::parse).transpose();
    let expires_at = expires_at.map_err(|error| Problem::new(Code::Unprocessable, format!("expiresAt: {error}")))?;
    let token = token::create(&**client.store(), client.scope(), &new.name, new.role, expires_at).await?;
    Ok((StatusCode::CREATED, Json(MadeToken { name: new.name, token })).into_response())
}

/// Lists tokens, without what they read.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "administration", operation_id = "listTokens",
    responses(
        (status = 200, description = "All of them", body = TokenList),
        refusals::Usual,
    ),
)]
pub(super) async fn list(access: Access) -> Answer<TokenList> {
    let client = access.to(Deed::Administer)?.client();
    Ok(Json(TokenList { tokens: token::list(&**client.store(), client.scope()).await? }))
}

/// Takes a token back. Servers that have seen it know after two seconds at most.
#[utoipa::path(
    delete, path = "/v1/tokens/{name}", tag = "administration", operation_id = "revokeToken",
    params(("name" = String, Path, description = "What it is called")),
    responses(
        (status = 204, description = "It is no longer good"),
        refusals::Usual, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn revoke(access: Access, Named(name): Named) -> Result<StatusCode, Failed> {
    let client = access.to(Deed::Administer)?.client();
    token::revoke(&**client.store(), client.scope(), &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
