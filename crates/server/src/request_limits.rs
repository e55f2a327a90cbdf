//! Limits that hold for every request: how long it may take, and that a panic takes nobody along.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use axum::extract::{MatchedPath, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use onward_api::problem::{Code, Problem};
use tokio::time::Instant;

use crate::http_types::ProblemResponse;

/// Until an answer begins: whoever waits for something waits a minute at most.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(75);

/// Answers in time, whatever happens, and counts.
pub(crate) async fn enforce_limits(request: Request, next: Next) -> Response {
    let begun = Instant::now();
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
        Ok(Err(_)) => {
            ProblemResponse::from(Problem::new(Code::TimedOut, "it took longer than 75 s"))
                .into_response()
        }
        Err(_) => {
            ProblemResponse::from(Problem::new(Code::Internal, "a defect; the log says more"))
                .into_response()
        }
    };
    let status = response.status().as_u16().to_string();
    let labels = [("method", method), ("path", path), ("status", status)];
    metrics::histogram!("onward_http_request_seconds", &labels)
        .record(begun.elapsed().as_secs_f64());
    response
}
