//! Code, and by which names it is called.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onward_api::Onward as _;
use onward_api::component::{Components, Deployed, NamedFunctions};
use onward_api::token::Deed;
use serde::Deserialize;
use utoipa::IntoParams;

use super::refusals;
use crate::access::Access;
use crate::answer::{Answer, Failed, Params, Raw};

/// What functions of a component may do.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Permissions {
    /// Hosts that its functions may send requests to, with commas between them: `api.example.com,*.example.org`.
    #[serde(rename = "allowHosts", default)]
    allow_hosts: String,
}

/// Deploys a component: its functions can be started and invoked from now on.
///
/// Executions that have started keep the code they started with.
#[utoipa::path(
    post, path = "/v1/components", tag = "components", operation_id = "deployComponent", params(Permissions),
    request_body(content = Vec<u8>, content_type = "application/wasm", description = "The bytes of the component"),
    responses(
        (status = 201, description = "It is deployed", body = Deployed),
        refusals::Usual, refusals::Body, refusals::Conflict,
    ),
)]
pub(super) async fn deploy(
    access: Access,
    Params(permissions): Params<Permissions>,
    Raw(code): Raw,
) -> Result<Response, Failed> {
    let hosts = permissions.allow_hosts.split(',').map(str::trim).filter(|host| !host.is_empty());
    let hosts = hosts.map(str::to_owned).collect();
    let deployed = access.to(Deed::Build)?.deploy(code.to_vec(), hosts).await?;
    Ok((StatusCode::CREATED, Json(deployed)).into_response())
}

/// What names stand for.
#[utoipa::path(
    get, path = "/v1/functions", tag = "components", operation_id = "listFunctions",
    responses(
        (status = 200, description = "All of them", body = NamedFunctions),
        refusals::Usual,
    ),
)]
pub(super) async fn functions(access: Access) -> Answer<NamedFunctions> {
    Ok(Json(NamedFunctions { functions: access.to(Deed::Read)?.functions().await? }))
}

/// What is deployed: the components that names stand for.
#[utoipa::path(
    get, path = "/v1/components", tag = "components", operation_id = "listComponents",
    responses(
        (status = 200, description = "All of them, the last deployed first", body = Components),
        refusals::Usual,
    ),
)]
pub(super) async fn list(access: Access) -> Answer<Components> {
    Ok(Json(Components::of(access.to(Deed::Read)?.functions().await?)))
}
