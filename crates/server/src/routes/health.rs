//! Liveness, readiness and metrics of the server, for orchestrators and Prometheus.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use onward_api::problem::{Code, Problem};

use crate::ServerState;
use crate::http_types::ProblemResponse;

/// Liveness: succeeds whenever the server can respond.
pub(super) async fn check_liveness() -> &'static str {
    "ok\n"
}

/// How long the store may take to respond until the server counts as not ready.
const STORE_RESPONSE_MAX: Duration = Duration::from_secs(2);

/// Readiness: succeeds if the store can be read and written and the server is not about to stop.
/// Responds within seconds whatever the store does.
pub(super) async fn check_readiness(
    State(app): State<Arc<ServerState>>,
) -> Result<&'static str, ProblemResponse> {
    if app.is_draining() {
        return Err(Problem::new(Code::Unavailable, "the server is stopping").into());
    }
    if let Some(node) = app.service.local_node() {
        node.check_store_writable()
            .map_err(onward_service::store_problem)?;
    }
    let store = app.service.engine_client().store();
    tokio::time::timeout(STORE_RESPONSE_MAX, store.now())
        .await
        .map_err(|_| Problem::new(Code::Unavailable, "the store does not respond"))?
        .map_err(onward_service::store_problem)?;
    Ok("ready\n")
}

/// Returns the metrics in the Prometheus text format.
pub(super) async fn render_metrics(State(app): State<Arc<ServerState>>) -> Response {
    if let Some(node) = app.service.local_node() {
        metrics::gauge!("onward_executions_in_memory").set(node.executions_in_memory() as f64);
    }
    let text = app
        .metrics
        .as_ref()
        .map(metrics_exporter_prometheus::PrometheusHandle::render)
        .unwrap_or_default();
    (
        [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")],
        text,
    )
        .into_response()
}
