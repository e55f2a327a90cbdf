//! Requests and responses of the HTTP client: URLs, timeouts, retries after rate limiting, and the
//! conversion of failures to problems.

use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::header::RETRY_AFTER;
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ApiClient, RESPONSE_TIMEOUT};
use crate::problem::{Code, Problem};

/// Maximum total time that one request waits because of rate limiting.
const RATE_LIMIT_WAIT_MAX: Duration = Duration::from_secs(10);

/// The size of the largest request that any path of a server accepts: a component.
const REQUEST_BYTES_MAX: usize = 64 << 20;

/// Timeout of a response that streams findings.
const STREAM_TIMEOUT: Duration = Duration::from_secs(24 * 3_600);

impl ApiClient {
    /// Builds a request to a path below `/v1`; the path segments are percent-encoded.
    pub(super) fn build_request(
        &self,
        method: Method,
        path: &[&str],
    ) -> Result<RequestBuilder, Problem> {
        let url = self.endpoint_url(&[&["v1"], path].concat())?;
        Ok(self.http.request(method, url).timeout(RESPONSE_TIMEOUT))
    }

    pub(super) fn endpoint_url(&self, path: &[&str]) -> Result<Url, Problem> {
        let mut url = self.base_url.clone();
        let mut segments = url
            .path_segments_mut()
            .map_err(|()| Problem::new(Code::InvalidRequest, "the URL has no path"))?;
        segments.pop_if_empty().extend(path);
        drop(segments);
        Ok(url)
    }

    pub(super) fn build_get_request(
        &self,
        path: &[&str],
        query: &impl Serialize,
        wait_ms: u64,
    ) -> Result<RequestBuilder, Problem> {
        let timeout = RESPONSE_TIMEOUT + Duration::from_millis(wait_ms);
        Ok(self
            .build_request(Method::GET, path)?
            .query(query)
            .timeout(timeout))
    }

    pub(super) async fn send_for_json<T: DeserializeOwned>(
        &self,
        request: RequestBuilder,
    ) -> Result<T, Problem> {
        let bytes = self
            .send_with_retry(request)
            .await?
            .bytes()
            .await
            .map_err(|error| unreachable_problem(&error))?;
        serde_json::from_slice(&bytes)
            .map_err(|error| unexpected_response_problem(&error.to_string()))
    }

    pub(super) async fn send_for_text(&self, request: RequestBuilder) -> Result<String, Problem> {
        self.send_with_retry(request)
            .await?
            .text()
            .await
            .map_err(|error| unreachable_problem(&error))
    }

    /// Reads one finding per line and the report on the last line. The server may read the whole
    /// store, so the duration is unknown and the timeout is long.
    pub(super) async fn stream_findings<F: DeserializeOwned, V: DeserializeOwned>(
        &self,
        request: RequestBuilder,
        found: &mut (dyn FnMut(F) + Send),
    ) -> Result<V, Problem> {
        let mut chunks = self
            .send_with_retry(request.timeout(STREAM_TIMEOUT))
            .await?
            .bytes_stream();
        let mut rest = Vec::new();
        while let Some(chunk) = chunks.next().await {
            rest.extend_from_slice(&chunk.map_err(|error| unreachable_problem(&error))?);
            while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = rest.drain(..=end).collect();
                if let Ok(finding) = serde_json::from_slice(&line) {
                    found(finding);
                } else if let Ok(report) = serde_json::from_slice(&line) {
                    return Ok(report);
                } else {
                    return Err(serde_json::from_slice(&line).unwrap_or_else(|_| {
                        unexpected_response_problem("a line is neither a finding nor a report")
                    }));
                }
            }
        }
        Err(unexpected_response_problem(
            "the stream ended before the final report",
        ))
    }

    pub(super) async fn send_with_retry(
        &self,
        mut request: RequestBuilder,
    ) -> Result<Response, Problem> {
        check_body_size(&request)?;
        let mut remaining = RATE_LIMIT_WAIT_MAX;
        let response = loop {
            let retry = request.try_clone();
            let response = request
                .send()
                .await
                .map_err(|error| unreachable_problem(&error))?;
            // A rate-limited request was not carried out, so repeating it after the `Retry-After`
            // time is safe.
            match (retry, retry_after(&response)) {
                (Some(retry), Some(wait)) if wait <= remaining => {
                    tokio::time::sleep(wait).await;
                    (request, remaining) = (retry, remaining - wait);
                }
                _ => break response,
            }
        };
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        let text = response
            .text()
            .await
            .map_err(|error| unreachable_problem(&error))?;
        // A proxy may have sent the response, so its body need not be a problem document.
        Err(serde_json::from_str(&text)
            .unwrap_or_else(|_| unexpected_response_problem(&format!("status {status}"))))
    }
}

/// Fails if the body is larger than any request may be. The server would close the connection while
/// the body is sent, and its response could be lost.
fn check_body_size(request: &RequestBuilder) -> Result<(), Problem> {
    let built = request.try_clone().and_then(|request| request.build().ok());
    let bytes = (built.as_ref().and_then(|built| built.body()?.as_bytes())).map_or(0, <[u8]>::len);
    if bytes <= REQUEST_BYTES_MAX {
        return Ok(());
    }
    let detail =
        format!("the request has {bytes} bytes, but a server accepts at most {REQUEST_BYTES_MAX}");
    Err(Problem::new(Code::TooLarge, detail))
}

/// The time from the `Retry-After` header of a response with status 429; `None` for other
/// responses.
fn retry_after(response: &Response) -> Option<Duration> {
    let seconds = response
        .headers()
        .get(RETRY_AFTER)
        .filter(|_| response.status() == StatusCode::TOO_MANY_REQUESTS);
    Some(Duration::from_secs(seconds?.to_str().ok()?.parse().ok()?))
}

pub(super) fn unreachable_problem(error: &reqwest::Error) -> Problem {
    let mut detail = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        detail = format!("{detail}: {deeper}");
        cause = deeper.source();
    }
    Problem::new(
        Code::Unavailable,
        format!("the server cannot be reached: {detail}"),
    )
}

fn unexpected_response_problem(reason: &str) -> Problem {
    Problem::new(
        Code::Internal,
        format!("the response is not from an Onward server: {reason}"),
    )
}
