//! Middleware for every request: response timeout, isolation of panics, and metrics.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use onward_api::problem::{Code, Problem};
use tokio::time::Instant;

use crate::http_types::ProblemResponse;

/// Timeout until the response begins. It exceeds the maximum wait of a long poll, which is 60 s.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(75);

/// Responds with a problem if the handler panics or exceeds the timeout, and records the duration
/// of the request.
pub(crate) async fn enforce_limits(request: Request, next: Next) -> Response {
    let started_at = Instant::now();
    let path = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("other", MatchedPath::as_str)
        .to_owned();
    let method = request.method().to_string();
    let work =
        AssertUnwindSafe(tokio::time::timeout(RESPONSE_TIMEOUT, next.run(request))).catch_unwind();
    let response = match work.await {
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
    };
    let status = response.status().as_u16().to_string();
    let labels = [("method", method), ("path", path), ("status", status)];
    metrics::histogram!("onward_http_request_seconds", &labels)
        .record(started_at.elapsed().as_secs_f64());
    response
}
