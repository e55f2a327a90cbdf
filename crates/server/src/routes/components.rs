//! Routes for components and the function names that resolve to them.

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use onward_api::OnwardApi as _;
use onward_api::component::{
    ComponentDeployment, ComponentList, DeployComponentResponse, FunctionList,
};
use serde::Deserialize;
use utoipa::IntoParams;

use super::error_responses;
use crate::auth::{Authorized, BuildAccess, ReadAccess};
use crate::http_types::{ComponentBody, JsonResult, ProblemResponse, QueryParams};

/// Query of a deployment.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct DeployComponentQuery {
    /// Hosts to which the component's functions may send requests, separated by commas:
    /// `api.example.com,*.example.org`; default: none.
    #[serde(rename = "allowHosts", default)]
    allow_hosts: String,
    /// Whether the component may take over names of functions of another component; default: false.
    /// A new build of a component, which has all of its function names, needs no permission.
    #[serde(default)]
    replace: bool,
}

/// Deploys a component.
///
/// Its functions can be started and invoked from now on. Executions that have already started keep
/// the component with which they started. A component that has names of functions of another
/// component is refused with `functions_taken`, unless `replace` is set.
#[utoipa::path(
    post, path = "/v1/components", tag = "components", operation_id = "deployComponent", params(DeployComponentQuery),
    request_body(content = Vec<u8>, content_type = "application/wasm", description = "The bytes of the component"),
    responses(
        (status = 201, description = "The component is deployed", body = DeployComponentResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn deploy_component(
    service: Authorized<BuildAccess>,
    QueryParams(query): QueryParams<DeployComponentQuery>,
    ComponentBody(code): ComponentBody,
) -> Result<Response, ProblemResponse> {
    let hosts = query
        .allow_hosts
        .split(',')
        .map(str::trim)
        .filter(|host| !host.is_empty());
    let hosts = hosts.map(str::to_owned).collect();
    let deployed = service
        .deploy_component(ComponentDeployment {
            code: code.to_vec(),
            hosts,
            replace: query.replace,
        })
        .await?;
    Ok((StatusCode::CREATED, Json(deployed)).into_response())
}

/// Lists the deployed functions, each with the component that its name resolves to.
#[utoipa::path(
    get, path = "/v1/functions", tag = "components", operation_id = "listFunctions",
    responses(
        (status = 200, description = "All deployed functions", body = FunctionList),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn list_functions(service: Authorized<ReadAccess>) -> JsonResult<FunctionList> {
    Ok(Json(FunctionList {
        functions: service.list_functions().await?,
    }))
}

/// Lists the deployed components: those to which at least one function name resolves.
#[utoipa::path(
    get, path = "/v1/components", tag = "components", operation_id = "listComponents",
    responses(
        (status = 200, description = "All deployed components, the last deployed first", body = ComponentList),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn list_components(service: Authorized<ReadAccess>) -> JsonResult<ComponentList> {
    Ok(Json(ComponentList::from_functions(
        service.list_functions().await?,
    )))
}
