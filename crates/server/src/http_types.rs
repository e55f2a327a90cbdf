//! Extractors and responses that report every invalid request as a problem document.

use std::time::Duration;

use axum::Json as AxumJson;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use onward_api::problem::{Code, PROBLEM_JSON, Problem};
use serde::de::DeserializeOwned;

use crate::request_body::RawBody;

/// Error response: a problem document, with `Retry-After` if the client should try again.
pub(crate) struct ProblemResponse {
    problem: Box<Problem>,
    retry_after: Option<Duration>,
}

impl ProblemResponse {
    /// Creates an error response for a temporary problem; the client may retry after this duration.
    pub(crate) fn with_retry_after(problem: Problem, after: Duration) -> Self {
        Self {
            problem: Box::new(problem),
            retry_after: Some(after),
        }
    }
}

impl From<Problem> for ProblemResponse {
    fn from(problem: Problem) -> Self {
        let retry_after = (problem.status == 503).then_some(Duration::from_secs(1));
        Self {
            problem: Box::new(problem),
            retry_after,
        }
    }
}

impl IntoResponse for ProblemResponse {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        if status.is_server_error() {
            tracing::error!(code = self.problem.code.as_str(), detail = %self.problem.detail, "request failed");
        }
        let unauthenticated = self.problem.code == Code::Unauthenticated;
        let mut response = (status, AxumJson(*self.problem)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if unauthenticated {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(after) = self.retry_after {
            headers.insert(
                RETRY_AFTER,
                HeaderValue::from(after.as_secs() + u64::from(after.subsec_nanos() > 0)),
            );
        }
        response
    }
}

/// Result of a handler: a JSON document or a problem.
pub(crate) type JsonResult<T> = Result<AxumJson<T>, ProblemResponse>;

/// Extracts a JSON body; requires the content type `application/json`.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, state: &S) -> Result<Self, ProblemResponse> {
        require_media_type(&request, "application/json")?;
        let RawBody(bytes) = RawBody::from_request(request, state).await?;
        serde_json::from_slice(&bytes).map(Self).map_err(|error| {
            let code = if error.is_data() {
                Code::Unprocessable
            } else {
                Code::InvalidRequest
            };
            Problem::new(code, error.to_string()).into()
        })
    }
}

/// Fails if the content type of a request is not `expected`. A browser sends none of the types that
/// the API requires to another origin without asking that server first.
fn require_media_type(request: &Request, expected: &str) -> Result<(), ProblemResponse> {
    let media = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.split(';').next())
        .unwrap_or_default();
    if media.trim().eq_ignore_ascii_case(expected) {
        return Ok(());
    }
    let detail = format!("the header Content-Type must be {expected}");
    Err(Problem::new(Code::UnsupportedMediaType, detail).into())
}

/// Extracts the bytes of a component; requires the content type `application/wasm`.
pub(crate) struct ComponentBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for ComponentBody {
    type Rejection = ProblemResponse;

    async fn from_request(request: Request, state: &S) -> Result<Self, ProblemResponse> {
        require_media_type(&request, "application/wasm")?;
        RawBody::from_request(request, state)
            .await
            .map(|RawBody(bytes)| Self(bytes))
    }
}

/// Extracts the query parameters of the URL.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query
            .map(|Query(value)| Self(value))
            .map_err(|rejection| Problem::new(Code::InvalidRequest, rejection.body_text()).into())
    }
}

/// Extracts the only path parameter as text.
pub(crate) struct PathName(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        PathParams::from_request_parts(parts, state)
            .await
            .map(|PathParams(name)| Self(name))
    }
}

/// Extracts several or typed path parameters.
pub(crate) struct PathParams<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for PathParams<T> {
    type Rejection = ProblemResponse;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ProblemResponse> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(parts)| Self(parts))
            .map_err(|rejection| Problem::new(Code::InvalidRequest, rejection.body_text()).into())
    }
}
