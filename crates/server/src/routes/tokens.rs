//! Routes for the API tokens of the caller's tenant, project and environment.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onward_api::problem::{Code, Problem};
use onward_api::token::{CreateTokenRequest, CreateTokenResponse, TokenList};

use super::error_responses;
use crate::auth::{AdministerAccess, Authorized};
use crate::http_types::{JsonBody, JsonResult, PathName, ProblemResponse};
use onward_service::token;

/// Creates a token.
///
/// Its value is returned only in this response.
#[utoipa::path(
    post, path = "/v1/tokens", tag = "administration", operation_id = "createToken", request_body = CreateTokenRequest,
    responses(
        (status = 201, description = "The token was created", body = CreateTokenResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn create_token(
    service: Authorized<AdministerAccess>,
    JsonBody(new): JsonBody<CreateTokenRequest>,
) -> Result<Response, ProblemResponse> {
    let client = service.engine_client();
    let expires_at = new.expires_at.as_deref().map(str::parse).transpose();
    let expires_at = expires_at
        .map_err(|error| Problem::new(Code::Unprocessable, format!("expiresAt: {error}")))?;
    let token = token::create_token(
        &**client.store(),
        client.scope(),
        &new.name,
        new.role,
        expires_at,
    )
    .await?;
    Ok((
        StatusCode::CREATED,
        Json(CreateTokenResponse {
            name: new.name,
            token,
        }),
    )
        .into_response())
}

/// Lists the tokens, without their values.
#[utoipa::path(
    get, path = "/v1/tokens", tag = "administration", operation_id = "listTokens",
    responses(
        (status = 200, description = "The tokens of the scope", body = TokenList),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn list_tokens(service: Authorized<AdministerAccess>) -> JsonResult<TokenList> {
    let client = service.engine_client();
    Ok(Json(TokenList {
        tokens: token::list_tokens(&**client.store(), client.scope()).await?,
    }))
}

/// Revokes a token.
///
/// Servers that have cached the token reject it after at most two seconds.
#[utoipa::path(
    delete, path = "/v1/tokens/{name}", tag = "administration", operation_id = "revokeToken",
    params(("name" = String, Path, description = "The name of the token")),
    responses(
        (status = 204, description = "The token was revoked"),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn revoke_token(
    service: Authorized<AdministerAccess>,
    PathName(name): PathName,
) -> Result<StatusCode, ProblemResponse> {
    let client = service.engine_client();
    token::revoke_token(&**client.store(), client.scope(), &name).await?;
    Ok(StatusCode::NO_CONTENT)
}
