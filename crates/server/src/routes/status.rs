//! Whether the server is alive, whether it can work, and how it does.

use std::sync::Arc;

use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use onward_api::problem::{Code, Problem};

use crate::App;
use crate::answer::Failed;

/// It answers.
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// It answers, its store does, and it is not about to stop.
pub(super) async fn readyz(State(app): State<Arc<App>>) -> Result<&'static str, Failed> {
    if app.is_leaving() {
        return Err(Problem::new(Code::Unavailable, "the server is stopping").into());
    }
    app.service.client().store().now().await.map_err(crate::service::store)?;
    Ok("ready\n")
}

/// What is measured, for Prometheus.
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    if let Some(node) = app.service.node() {
        metrics::gauge!("onward_executions_in_memory").set(node.in_memory() as f64);
    }
    let text = app.metrics.as_ref().map(metrics_exporter_prometheus::PrometheusHandle::render).unwrap_or_default();
    ([(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}
