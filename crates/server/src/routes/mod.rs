//! The router. Each route is described for OpenAPI next to its handler.

mod campaigns;
mod components;
mod doctor;
mod error_responses;
mod execution_events;
mod executions;
mod health;
mod openapi;
mod outbox;
mod runs;
mod tasks;
mod tokens;

use std::sync::Arc;

use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::get;
use axum::{Extension, Router};
use onward_api::finding::{DoctorFinding, DoctorReport};
use onward_api::problem::{Code, Problem};
use onward_api::run::{VerifyFinding, VerifyReport};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::openapi::OpenApiBytes;
use crate::http_types::ProblemResponse;
use crate::request_body::BodyLimit;
use crate::{HostCheck, ServerState, host_check, request_limits, unread_body};

/// Maximum size of a body in bytes, for routes without a limit of their own.
const BODY_BYTES_MAX: usize = 2 << 20;

/// Maximum size in bytes of a campaign with its templates, and of one part of its audience.
const CAMPAIGN_BYTES_MAX: usize = 16 << 20;

/// Maximum size of a component in bytes. No other body may be larger.
pub(crate) const COMPONENT_BYTES_MAX: usize = 64 << 20;

/// Maximum size in bytes of a request that appends run events.
const EVENTS_BYTES_MAX: usize = 16 << 20;

#[derive(OpenApi)]
#[openapi(
    info(title = "Onward", description = "Durable execution: completed steps survive crashes and are not repeated, and the API explains what every execution waits for."),
    tags(
        (name = "executions", description = "Start, list, show, signal and cancel executions of workflows"),
        (name = "tasks", description = "Claim and complete tasks, for workers in any language"),
        (name = "campaigns", description = "Campaigns, their outbox items and jobs, and the suppression list"),
        (name = "components", description = "Components and the functions that they export"),
        (name = "runs", description = "Append and read run events; read run snapshots"),
        (name = "administration", description = "Tokens, and checks of stored data"),
    ),
    components(schemas(Problem, DoctorFinding, DoctorReport, VerifyFinding, VerifyReport)),
    security(("token" = []), ()),
)]
struct OpenApiRoot;

fn openapi_routes() -> OpenApiRouter<Arc<ServerState>> {
    let default_limit = OpenApiRouter::new()
        .routes(routes!(
            executions::start_execution,
            executions::list_executions
        ))
        .routes(routes!(executions::get_execution))
        .routes(routes!(executions::get_execution_result))
        .routes(routes!(executions::get_execution_journal))
        .routes(routes!(executions::get_execution_component))
        .routes(routes!(executions::explain_execution))
        .routes(routes!(executions::signal_execution))
        .routes(routes!(executions::cancel_execution))
        .routes(routes!(execution_events::follow_execution))
        .routes(routes!(components::list_functions))
        .routes(routes!(components::list_components))
        .routes(routes!(runs::get_run_events))
        .routes(routes!(runs::get_run_snapshot))
        .routes(routes!(tasks::list_tasks))
        .routes(routes!(tasks::claim_tasks))
        .routes(routes!(tasks::heartbeat_task))
        .routes(routes!(tasks::release_task))
        .routes(routes!(tasks::complete_task))
        .routes(routes!(tasks::fail_task))
        .routes(routes!(tokens::create_token, tokens::list_tokens))
        .routes(routes!(tokens::revoke_token))
        .routes(routes!(campaigns::get_campaign_run))
        .routes(routes!(campaigns::list_audit_entries))
        .routes(routes!(campaigns::pause_campaign_run))
        .routes(routes!(campaigns::resume_campaign_run))
        .routes(routes!(campaigns::cancel_campaign_run))
        .routes(routes!(campaigns::retry_campaign_run))
        .routes(routes!(outbox::list_outbox_items))
        .routes(routes!(outbox::list_in_doubt_items))
        .routes(routes!(outbox::settle_item))
        .routes(routes!(outbox::settle_items))
        .routes(routes!(outbox::list_jobs))
        .routes(routes!(outbox::redrive_job))
        .routes(routes!(outbox::list_suppressions, outbox::add_suppression))
        .routes(routes!(outbox::remove_suppression))
        .routes(routes!(doctor::run_doctor))
        .routes(routes!(doctor::verify_runs))
        .layer(Extension(BodyLimit(BODY_BYTES_MAX)));
    let campaigns = OpenApiRouter::new()
        .routes(routes!(campaigns::check_campaign))
        .routes(routes!(campaigns::preview_campaign))
        .routes(routes!(campaigns::put_audience_part))
        .routes(routes!(
            campaigns::deploy_campaign,
            campaigns::list_campaign_runs
        ))
        .layer(Extension(BodyLimit(CAMPAIGN_BYTES_MAX)));
    let components = OpenApiRouter::new()
        .routes(routes!(components::deploy_component))
        .layer(Extension(BodyLimit(COMPONENT_BYTES_MAX)));
    let appends = OpenApiRouter::new()
        .routes(routes!(runs::append_run_events))
        .layer(Extension(BodyLimit(EVENTS_BYTES_MAX)));
    OpenApiRouter::with_openapi(OpenApiRoot::openapi())
        .merge(default_limit)
        .merge(campaigns)
        .merge(components)
        .merge(appends)
}

/// Returns the OpenAPI document of all described routes, including the bearer token scheme.
pub fn openapi_document() -> utoipa::openapi::OpenApi {
    let mut api = openapi_routes().into_openapi();
    let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    api.components
        .get_or_insert_default()
        .add_security_scheme("token", scheme);
    api
}

/// Builds the router with all routes, the OpenAPI document, health checks, metrics, the check of
/// the host and request limits.
pub(crate) fn build_router(
    app: Arc<ServerState>,
    metrics: MetricsPlace,
    host_check: HostCheck,
) -> Router {
    let document = OpenApiBytes::serialize(&openapi_document());
    let (described, _) = openapi_routes().split_for_parts();
    let mut router = described
        .route(
            "/openapi.json",
            get(move |headers: HeaderMap| async move { document.respond(&headers) }),
        )
        .route("/healthz", get(health::check_liveness))
        .route("/readyz", get(health::check_readiness));
    if metrics == MetricsPlace::WithApi {
        router = router.route("/metrics", get(health::render_metrics));
    }
    finish_router(router, app, host_check)
}

/// Builds the router of the address that serves nothing but metrics.
pub(crate) fn build_metrics_router(app: Arc<ServerState>, host_check: HostCheck) -> Router {
    let router = Router::new().route("/metrics", get(health::render_metrics));
    finish_router(router, app, host_check)
}

/// Where `/metrics` is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetricsPlace {
    /// At the address of the API.
    WithApi,
    /// At an address of its own.
    OwnAddress,
}

/// Adds the responses for other paths and methods, the check of the host, and the limits of every
/// request.
fn finish_router(
    router: Router<Arc<ServerState>>,
    app: Arc<ServerState>,
    host_check: HostCheck,
) -> Router {
    let hosts = axum::middleware::from_fn_with_state(host_check, host_check::enforce_host_check);
    let limits =
        axum::middleware::from_fn_with_state(Arc::clone(&app), request_limits::enforce_limits);
    router
        .fallback(|| async {
            ProblemResponse::from(Problem::new(
                Code::NotFound,
                "the API has no such path: see /openapi.json",
            ))
            .into_response()
        })
        .method_not_allowed_fallback(|| async {
            ProblemResponse::from(Problem::new(
                Code::MethodNotAllowed,
                "the path does not support this method: see /openapi.json",
            ))
            .into_response()
        })
        .layer(hosts)
        .layer(axum::middleware::from_fn(unread_body::drain_unread_body))
        .layer(limits)
        .with_state(app)
}
