//! Routes for executions: start, list, show, explain, signal and cancel.

use axum::Json;
use axum::body::Body;
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, stream};
use onward_api::OnwardApi as _;
use onward_api::execution::{
    AcceptedMessage, CancelExecutionRequest, ExecutionPage, ExecutionResult, ExecutionView,
    ListExecutionsQuery, SignalExecutionRequest, StartExecutionRequest, StartExecutionResponse,
};
use onward_api::explanation::ExecutionExplanation;
use onward_api::problem::{Code, Problem};
use onward_service::{ApiService, JournalLinesPage};
use serde::Deserialize;
use utoipa::IntoParams;

use super::error_responses;
use crate::auth::{Authorized, OperateAccess, ReadAccess};
use crate::http_types::{JsonBody, JsonResult, PathName, ProblemResponse, QueryParams};

/// Maximum wait of a long poll in milliseconds. Proxies between client and server close connections
/// that wait longer.
const WAIT_MS_MAX: u64 = 60_000;

/// Converts a number from a request into the sequence of an event. Fails if it is negative.
pub(super) fn parse_sequence(number: i64) -> Result<u64, ProblemResponse> {
    let negative = |_| {
        Problem::new(
            Code::InvalidRequest,
            format!("{number} is not the sequence of an event: it must not be negative"),
        )
    };
    Ok(u64::try_from(number).map_err(negative)?)
}

/// Returns the requested wait. Fails if it exceeds [`WAIT_MS_MAX`].
pub(super) fn check_wait_ms(wait_ms: u64) -> Result<u64, ProblemResponse> {
    if wait_ms <= WAIT_MS_MAX {
        return Ok(wait_ms);
    }
    let detail = format!(
        "waitMs: {wait_ms} is out of range: must be at most {WAIT_MS_MAX}; to wait longer, repeat \
         the request"
    );
    Err(Problem::new(Code::InvalidRequest, detail).into())
}

/// Media type of JSON Lines.
pub(super) const JSON_LINES: &str = "application/jsonl";

/// Starts a workflow.
///
/// The idempotency key can be given in the body or in the header `Idempotency-Key`. If the key has
/// already started an execution, that execution is returned with status 200.
#[utoipa::path(
    post, path = "/v1/executions", tag = "executions", operation_id = "startExecution",
    params(("idempotency-key" = Option<String>, Header, description = "Idempotency key; alternative to `key` in the body", max_length = 500)),
    request_body = StartExecutionRequest,
    responses(
        (status = 201, description = "The execution was started", body = StartExecutionResponse),
        (status = 200, description = "The idempotency key has already started this execution", body = StartExecutionResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn start_execution(
    service: Authorized<OperateAccess>,
    headers: HeaderMap,
    JsonBody(mut start): JsonBody<StartExecutionRequest>,
) -> Result<Response, ProblemResponse> {
    if let Some(key) = headers.get("idempotency-key") {
        let key = key.to_str().map_err(|_| {
            let detail = "header Idempotency-Key: must contain only visible ASCII characters";
            Problem::new(Code::InvalidRequest, detail)
        })?;
        match &start.key {
            Some(other) if other != key => {
                let detail =
                    "the header Idempotency-Key and `key` in the body differ: send only one";
                return Err(Problem::new(Code::InvalidRequest, detail).into());
            }
            _ => start.key = Some(key.to_owned()),
        }
    }
    start.wait_ms.map(check_wait_ms).transpose()?;
    let started = service.start_execution(start).await?;
    let status = if started.existed {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    };
    Ok((status, Json(started)).into_response())
}

/// Lists executions, newest first by default.
///
/// A page may have fewer executions than the limit, or none, and still not be the last: continue as
/// long as the response has a `next`.
#[utoipa::path(
    get, path = "/v1/executions", tag = "executions", operation_id = "listExecutions", params(ListExecutionsQuery),
    responses(
        (status = 200, description = "One page of executions", body = ExecutionPage),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn list_executions(
    service: Authorized<ReadAccess>,
    QueryParams(listing): QueryParams<ListExecutionsQuery>,
) -> JsonResult<ExecutionPage> {
    Ok(Json(service.list_executions(listing).await?))
}

/// Returns an execution with its children and its result.
#[utoipa::path(
    get, path = "/v1/executions/{execution}", tag = "executions", operation_id = "getExecution",
    params(("execution" = String, Path, description = "The execution id, or a unique prefix of at least four hexadecimal digits", pattern = "^[0-9a-fA-F]{4,64}$")),
    responses(
        (status = 200, description = "The execution", body = ExecutionView),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn get_execution(
    service: Authorized<ReadAccess>,
    PathName(execution): PathName,
) -> JsonResult<ExecutionView> {
    Ok(Json(service.get_execution(&execution).await?))
}

/// Query of the result of an execution.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecutionResultQuery {
    /// Maximum time in milliseconds to wait for the execution to end; default: 0, at most 60000.
    #[serde(rename = "waitMs", default)]
    #[param(maximum = 60_000)]
    wait_ms: u64,
}

/// Returns the result or the error of an execution.
///
/// Neither is set while the execution has not ended; `waitMs` waits for its end.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/result", tag = "executions", operation_id = "getExecutionResult",
    params(("execution" = String, Path, description = "The execution id, or a unique prefix of at least four hexadecimal digits", pattern = "^[0-9a-fA-F]{4,64}$"), ExecutionResultQuery),
    responses(
        (status = 200, description = "The result or the error; neither is set while the execution has not ended", body = ExecutionResult),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn get_execution_result(
    service: Authorized<ReadAccess>,
    PathName(execution): PathName,
    QueryParams(ExecutionResultQuery { wait_ms }): QueryParams<ExecutionResultQuery>,
) -> JsonResult<ExecutionResult> {
    Ok(Json(
        service
            .get_execution_result(&execution, check_wait_ms(wait_ms)?)
            .await?,
    ))
}

/// Query of the journal of an execution.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecutionJournalQuery {
    /// Sequence of the first event to return; default: 0.
    #[serde(default)]
    #[param(minimum = 0)]
    from: i64,
    /// Maximum time in milliseconds to wait for an event if there is none yet; default: 0, at most
    /// 60000.
    #[serde(rename = "waitMs", default)]
    #[param(maximum = 60_000)]
    wait_ms: u64,
}

/// Returns the journal of an execution as JSON Lines.
///
/// `onward journal check` reads this format.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/journal", tag = "executions", operation_id = "getExecutionJournal",
    params(("execution" = String, Path, description = "The execution id, or a unique prefix of at least four hexadecimal digits", pattern = "^[0-9a-fA-F]{4,64}$"), ExecutionJournalQuery),
    responses(
        (status = 200, description = "One event per line", body = String, content_type = "application/jsonl"),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn get_execution_journal(
    service: Authorized<ReadAccess>,
    PathName(execution): PathName,
    QueryParams(ExecutionJournalQuery { from, wait_ms }): QueryParams<ExecutionJournalQuery>,
) -> Result<Response, ProblemResponse> {
    let (from, wait_ms) = (parse_sequence(from)?, check_wait_ms(wait_ms)?);
    let first = service.follow_journal(&execution, from, wait_ms).await?;
    let body = Body::from_stream(stream_journal(service.into_service(), execution, first));
    Ok(([(CONTENT_TYPE, JSON_LINES)], body).into_response())
}

/// Streams the pages of a journal up to its end, so that one page at a time is in memory. An error
/// after the first page closes the connection before the end of the response.
fn stream_journal(
    service: ApiService,
    execution: String,
    first: JournalLinesPage,
) -> impl Stream<Item = Result<String, Problem>> {
    let from = first.next;
    stream::try_unfold(
        (service, execution, Some(first), from),
        |(service, execution, first, from)| async move {
            let page = match first {
                Some(first) => first,
                None => service.follow_journal(&execution, from, 0).await?,
            };
            if page.lines.is_empty() {
                return Ok(None);
            }
            Ok(Some((page.lines, (service, execution, None, page.next))))
        },
    )
}

/// Returns the bytes of the component that an execution runs.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/component", tag = "executions", operation_id = "getExecutionComponent",
    params(("execution" = String, Path, description = "The execution id, or a unique prefix of at least four hexadecimal digits", pattern = "^[0-9a-fA-F]{4,64}$")),
    responses(
        (status = 200, description = "The bytes of the component", content_type = "application/wasm"),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn get_execution_component(
    service: Authorized<ReadAccess>,
    PathName(execution): PathName,
) -> Result<Response, ProblemResponse> {
    let code = service.get_execution_component(&execution).await?;
    Ok(([(CONTENT_TYPE, "application/wasm")], code).into_response())
}

/// Explains why an execution makes no progress.
///
/// Reports what it waits for, since when, which process owns it, and what happens next.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/why", tag = "executions", operation_id = "explainExecution",
    params(("execution" = String, Path, description = "The execution id, or a unique prefix of at least four hexadecimal digits", pattern = "^[0-9a-fA-F]{4,64}$")),
    responses(
        (status = 200, description = "What the execution waits for, since when, and what happens next", body = ExecutionExplanation),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn explain_execution(
    service: Authorized<ReadAccess>,
    PathName(execution): PathName,
) -> JsonResult<ExecutionExplanation> {
    Ok(Json(service.explain_execution(&execution).await?))
}

/// Sends a signal to an execution.
///
/// The signal is kept until the execution waits for it.
#[utoipa::path(
    post, path = "/v1/executions/{execution}/signals", tag = "executions", operation_id = "signalExecution",
    params(("execution" = String, Path, description = "The execution id, or a unique prefix of at least four hexadecimal digits", pattern = "^[0-9a-fA-F]{4,64}$")),
    request_body = SignalExecutionRequest,
    responses(
        (status = 202, description = "The signal was accepted and will be delivered", body = AcceptedMessage),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn signal_execution(
    service: Authorized<OperateAccess>,
    PathName(execution): PathName,
    JsonBody(signal): JsonBody<SignalExecutionRequest>,
) -> Result<Response, ProblemResponse> {
    let sent = service.signal_execution(&execution, signal).await?;
    Ok((StatusCode::ACCEPTED, Json(sent)).into_response())
}

/// Requests cancellation of an execution.
///
/// The workflow may clean up before it ends.
#[utoipa::path(
    post, path = "/v1/executions/{execution}/cancel", tag = "executions", operation_id = "cancelExecution",
    params(("execution" = String, Path, description = "The execution id, or a unique prefix of at least four hexadecimal digits", pattern = "^[0-9a-fA-F]{4,64}$")),
    request_body = CancelExecutionRequest,
    responses(
        (status = 202, description = "The cancellation was requested", body = AcceptedMessage),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn cancel_execution(
    service: Authorized<OperateAccess>,
    PathName(execution): PathName,
    JsonBody(cancel): JsonBody<CancelExecutionRequest>,
) -> Result<Response, ProblemResponse> {
    let sent = service.cancel_execution(&execution, cancel).await?;
    Ok((StatusCode::ACCEPTED, Json(sent)).into_response())
}
