//! Middleware for every request: refusal of malformed requests, response timeout, budget of bodies,
//! isolation of panics, and metrics.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::HeaderValue;
use axum::http::header::{CONNECTION, TRANSFER_ENCODING};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use onward_api::problem::{Code, Problem};
use tokio::time::Instant;

use crate::ServerState;
use crate::http_types::ProblemResponse;
use crate::request_checks::{find_refusal, method_label};
use crate::routes::COMPONENT_BYTES_MAX;

/// Timeout until the response begins. It exceeds the maximum wait of a long poll, which is 60 s.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(75);

/// Refuses malformed requests, responds with a problem if the handler panics or exceeds the
/// timeout, and records the duration of the request.
pub(crate) async fn enforce_limits(
    State(app): State<Arc<ServerState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let started_at = Instant::now();
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("other", MatchedPath::as_str)
        .to_owned();
    let method = method_label(request.method());
    // The bytes after such a request are not scanned for conflicting lengths.
    let mut closes_connection = request.headers().contains_key(TRANSFER_ENCODING);
    let mut response = match find_refusal(&request, COMPONENT_BYTES_MAX as u64) {
        Some(problem) => {
            closes_connection = true;
            ProblemResponse::from(problem).into_response()
        }
        None => {
            let share = app.body_budget.new_share();
            request.extensions_mut().insert(share.clone());
            let response = respond_in_time(request, next).await;
            drop(share);
            response
        }
    };
    if closes_connection {
        let headers = response.headers_mut();
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    let status = response.status().as_u16().to_string();
    let labels = [
        ("method", method.to_owned()),
        ("path", path),
        ("status", status),
    ];
    metrics::histogram!("onward_http_request_seconds", &labels)
        .record(started_at.elapsed().as_secs_f64());
    response
}

async fn respond_in_time(request: Request, next: Next) -> Response {
    let work =
        AssertUnwindSafe(tokio::time::timeout(RESPONSE_TIMEOUT, next.run(request))).catch_unwind();
    match work.await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => ProblemResponse::from(Problem::new(
            Code::TimedOut,
            "the server did not respond within 75 s",
        ))
        .into_response(),
        Err(_) => ProblemResponse::from(Problem::new(
            Code::Internal,
            "the server has a defect; its log has the details",
        ))
        .into_response(),
    }
}
