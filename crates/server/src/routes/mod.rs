//! What is where. Every route is described for OpenAPI beside the code that answers it.

mod campaigns;
mod components;
mod doctor;
mod events;
mod executions;
mod outbox;
mod refusals;
mod runs;
mod status;
mod tasks;
mod tokens;

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::response::IntoResponse;
use axum::routing::get;
use onward_api::problem::{Code, Problem};
use utoipa::OpenApi;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::answer::Failed;
use crate::{App, within};

/// Bytes of a body, unless the route says otherwise.
const BODY_BYTES_MAX: usize = 2 << 20;

/// Bytes of a campaign with its templates, and of a part of its audience.
const CAMPAIGN_BYTES_MAX: usize = 16 << 20;

/// Bytes of a component.
const COMPONENT_BYTES_MAX: usize = 64 << 20;

/// Bytes of run events that are appended together.
const EVENTS_BYTES_MAX: usize = 16 << 20;

#[derive(OpenApi)]
#[openapi(
    info(title = "Onward", description = "Durable execution: work that has been done is never lost, never silently repeated, and always explainable."),
    tags(
        (name = "executions", description = "Workflows at work"),
        (name = "tasks", description = "Work for workers in any language"),
        (name = "campaigns", description = "Reaching many people, each once"),
        (name = "components", description = "Code and its names"),
        (name = "runs", description = "Run events and snapshots"),
        (name = "administration", description = "Tokens, and the store as a whole"),
    ),
    components(schemas(Problem)),
    security(("token" = []), ()),
)]
struct Described;

fn described() -> OpenApiRouter<Arc<App>> {
    let usual = OpenApiRouter::new()
        .routes(routes!(executions::start, executions::list))
        .routes(routes!(executions::show))
        .routes(routes!(executions::result))
        .routes(routes!(executions::journal))
        .routes(routes!(executions::component))
        .routes(routes!(executions::why))
        .routes(routes!(executions::signal))
        .routes(routes!(executions::cancel))
        .routes(routes!(events::follow))
        .routes(routes!(components::functions))
        .routes(routes!(components::list))
        .routes(routes!(runs::events))
        .routes(routes!(runs::snapshot))
        .routes(routes!(tasks::list))
        .routes(routes!(tasks::claim))
        .routes(routes!(tasks::heartbeat))
        .routes(routes!(tasks::release))
        .routes(routes!(tasks::complete))
        .routes(routes!(tasks::fail))
        .routes(routes!(tokens::create, tokens::list))
        .routes(routes!(tokens::revoke))
        .routes(routes!(campaigns::show))
        .routes(routes!(campaigns::audit))
        .routes(routes!(campaigns::pause))
        .routes(routes!(campaigns::resume))
        .routes(routes!(campaigns::cancel))
        .routes(routes!(campaigns::retry))
        .routes(routes!(outbox::list))
        .routes(routes!(outbox::in_doubt))
        .routes(routes!(outbox::settle))
        .routes(routes!(outbox::settle_many))
        .routes(routes!(outbox::jobs))
        .routes(routes!(outbox::redrive))
        .routes(routes!(outbox::suppressions, outbox::suppress))
        .routes(routes!(outbox::unsuppress))
        .routes(routes!(doctor::doctor))
        .routes(routes!(doctor::verify))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX));
    let campaigns = OpenApiRouter::new()
        .routes(routes!(campaigns::check))
        .routes(routes!(campaigns::preview))
        .routes(routes!(campaigns::put_part))
        .routes(routes!(campaigns::deploy, campaigns::list))
        .layer(DefaultBodyLimit::max(CAMPAIGN_BYTES_MAX));
    let components =
        OpenApiRouter::new().routes(routes!(components::deploy)).layer(DefaultBodyLimit::max(COMPONENT_BYTES_MAX));
    let appends = OpenApiRouter::new().routes(routes!(runs::append)).layer(DefaultBodyLimit::max(EVENTS_BYTES_MAX));
    OpenApiRouter::with_openapi(Described::openapi()).merge(usual).merge(campaigns).merge(components).merge(appends)
}

/// The description of all of it.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut api = described().into_openapi();
    let scheme = SecurityScheme::Http(HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build());
    api.components.get_or_insert_default().add_security_scheme("token", scheme);
    api
}

/// Everything that is answered.
pub(crate) fn router(app: Arc<App>) -> Router {
    let document = openapi();
    let (described, _) = described().split_for_parts();
    described
        .route("/openapi.json", get(move || async move { axum::Json(document) }))
        .route("/healthz", get(status::healthz))
        .route("/readyz", get(status::readyz))
        .route("/metrics", get(status::metrics))
        .fallback(|| async {
            Failed::from(Problem::new(Code::NotFound, "there is nothing at this path")).into_response()
        })
        .method_not_allowed_fallback(|| async {
            Failed::from(Problem::new(Code::MethodNotAllowed, "the path is there, the method is not")).into_response()
        })
        .layer(axum::middleware::from_fn(within::limits))
        .with_state(app)
}
