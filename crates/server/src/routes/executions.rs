//! Executions: start, list, show, signal, cancel.

use axum::Json;
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use onward_api::OnwardApi as _;
use onward_api::execution::{
    AcceptedMessage, CancelExecutionRequest, ExecutionPage, ExecutionResult, ExecutionView,
    ListExecutionsQuery, SignalExecutionRequest, StartExecutionRequest, StartExecutionResponse,
};
use onward_api::explanation::ExecutionExplanation;
use onward_api::problem::{Code, Problem};
use onward_api::token::Permission;
use serde::Deserialize;
use utoipa::IntoParams;

use super::error_responses;
use crate::auth::AuthenticatedCaller;
use crate::http_types::{JsonBody, JsonResult, PathName, ProblemResponse, QueryParams};

/// Nobody waits longer, in milliseconds: what is between would give up.
const WAIT_MS_MAX: u64 = 60_000;

/// The sequence of an event, from a number as others write it.
pub(super) fn parse_sequence(number: i64) -> Result<u64, ProblemResponse> {
    let wrong = |_| {
        Problem::new(
            Code::InvalidRequest,
            format!("{number} is not the sequence of an event"),
        )
    };
    Ok(u64::try_from(number).map_err(wrong)?)
}

/// How long somebody wants to wait, if that is not too long.
pub(super) fn check_wait_ms(wait_ms: u64) -> Result<u64, ProblemResponse> {
    let words = || format!("waitMs: {wait_ms} is more than {WAIT_MS_MAX}: ask again instead");
    if wait_ms > WAIT_MS_MAX {
        Err(Problem::new(Code::InvalidRequest, words()).into())
    } else {
        Ok(wait_ms)
    }
}

/// The media type of JSON Lines.
pub(super) const JSON_LINES: &str = "application/jsonl";

/// Starts a workflow.
///
/// The key can be given in the body or as the header `Idempotency-Key`.
#[utoipa::path(
    post, path = "/v1/executions", tag = "executions", operation_id = "startExecution",
    params(("idempotency-key" = Option<String>, Header, description = "The key, unless the body has one", max_length = 500)),
    request_body = StartExecutionRequest,
    responses(
        (status = 201, description = "It was started", body = StartExecutionResponse),
        (status = 200, description = "The key had started it before", body = StartExecutionResponse),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn start_execution(
    access: AuthenticatedCaller,
    headers: HeaderMap,
    JsonBody(mut start): JsonBody<StartExecutionRequest>,
) -> Result<Response, ProblemResponse> {
    let service = access.require_permission(Permission::Operate)?;
    if let Some(key) = headers.get("idempotency-key") {
        let key = key
            .to_str()
            .map_err(|_| Problem::new(Code::InvalidRequest, "the key is not plain text"))?;
        match &start.key {
            Some(other) if other != key => {
                let words = "there is one key in the body and another in the header";
                return Err(Problem::new(Code::InvalidRequest, words).into());
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

/// Lists executions, the last that was started first unless asked otherwise.
///
/// A page may be short, or empty, without being the last: go on as long as there is a `next`.
#[utoipa::path(
    get, path = "/v1/executions", tag = "executions", operation_id = "listExecutions", params(ListExecutionsQuery),
    responses(
        (status = 200, description = "A page", body = ExecutionPage),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn list_executions(
    access: AuthenticatedCaller,
    QueryParams(listing): QueryParams<ListExecutionsQuery>,
) -> JsonResult<ExecutionPage> {
    Ok(Json(
        access
            .require_permission(Permission::Read)?
            .list_executions(listing)
            .await?,
    ))
}

/// Shows an execution, by its id or four or more digits that it begins with.
#[utoipa::path(
    get, path = "/v1/executions/{execution}", tag = "executions", operation_id = "getExecution",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$")),
    responses(
        (status = 200, description = "The execution", body = ExecutionView),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn get_execution(
    access: AuthenticatedCaller,
    PathName(execution): PathName,
) -> JsonResult<ExecutionView> {
    Ok(Json(
        access
            .require_permission(Permission::Read)?
            .get_execution(&execution)
            .await?,
    ))
}

/// For how long to wait.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecutionResultQuery {
    /// How many milliseconds to wait for it; at most a minute.
    #[serde(rename = "waitMs", default)]
    #[param(maximum = 60_000)]
    wait_ms: u64,
}

/// What an execution ended with; neither result nor error while it has not.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/result", tag = "executions", operation_id = "getResult",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$"), ExecutionResultQuery),
    responses(
        (status = 200, description = "What is known", body = ExecutionResult),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn get_execution_result(
    access: AuthenticatedCaller,
    PathName(execution): PathName,
    QueryParams(patience): QueryParams<ExecutionResultQuery>,
) -> JsonResult<ExecutionResult> {
    Ok(Json(
        access
            .require_permission(Permission::Read)?
            .get_execution_result(&execution, self::check_wait_ms(patience.wait_ms)?)
            .await?,
    ))
}

/// From where, and for how long to wait.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct ExecutionJournalQuery {
    /// The sequence of the first event that is wanted.
    #[serde(default)]
    #[param(minimum = 0)]
    from: i64,
    /// How many milliseconds to wait for an event, where there is none; at most a minute.
    #[serde(rename = "waitMs", default)]
    #[param(maximum = 60_000)]
    wait_ms: u64,
}

/// The journal of an execution as JSON Lines, in the form that `onward journal check` reads.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/journal", tag = "executions", operation_id = "getJournal",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$"), ExecutionJournalQuery),
    responses(
        (status = 200, description = "One event a line", body = String, content_type = "application/jsonl"),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn get_execution_journal(
    access: AuthenticatedCaller,
    PathName(execution): PathName,
    QueryParams(ExecutionJournalQuery { from, wait_ms }): QueryParams<ExecutionJournalQuery>,
) -> Result<Response, ProblemResponse> {
    let lines = access
        .require_permission(Permission::Read)?
        .get_execution_journal(&execution, parse_sequence(from)?, check_wait_ms(wait_ms)?)
        .await?;
    Ok(([(CONTENT_TYPE, JSON_LINES)], lines).into_response())
}

/// The component that an execution runs.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/component", tag = "executions", operation_id = "getComponent",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$")),
    responses(
        (status = 200, description = "Its bytes", content_type = "application/wasm"),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn get_execution_component(
    access: AuthenticatedCaller,
    PathName(execution): PathName,
) -> Result<Response, ProblemResponse> {
    let code = access
        .require_permission(Permission::Read)?
        .get_execution_component(&execution)
        .await?;
    Ok(([(CONTENT_TYPE, "application/wasm")], code).into_response())
}

/// Why an execution does not go on: what it waits for, since when, and what happens next.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/why", tag = "executions", operation_id = "explainExecution",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$")),
    responses(
        (status = 200, description = "An explanation", body = ExecutionExplanation),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn explain_execution(
    access: AuthenticatedCaller,
    PathName(execution): PathName,
) -> JsonResult<ExecutionExplanation> {
    Ok(Json(
        access
            .require_permission(Permission::Read)?
            .explain_execution(&execution)
            .await?,
    ))
}

/// Sends a signal. It is kept until the execution waits for it.
#[utoipa::path(
    post, path = "/v1/executions/{execution}/signals", tag = "executions", operation_id = "signalExecution",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$")),
    request_body = SignalExecutionRequest,
    responses(
        (status = 202, description = "It is on its way", body = AcceptedMessage),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn signal_execution(
    access: AuthenticatedCaller,
    PathName(execution): PathName,
    JsonBody(signal): JsonBody<SignalExecutionRequest>,
) -> Result<Response, ProblemResponse> {
    let sent = access
        .require_permission(Permission::Operate)?
        .signal_execution(&execution, signal)
        .await?;
    Ok((StatusCode::ACCEPTED, Json(sent)).into_response())
}

/// Asks an execution to stop. It may clean up first.
#[utoipa::path(
    post, path = "/v1/executions/{execution}/cancel", tag = "executions", operation_id = "cancelExecution",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$")),
    request_body = CancelExecutionRequest,
    responses(
        (status = 202, description = "It is asked", body = AcceptedMessage),
        error_responses::CommonErrors, error_responses::BodyErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn cancel_execution(
    access: AuthenticatedCaller,
    PathName(execution): PathName,
    JsonBody(cancel): JsonBody<CancelExecutionRequest>,
) -> Result<Response, ProblemResponse> {
    let sent = access
        .require_permission(Permission::Operate)?
        .cancel_execution(&execution, cancel)
        .await?;
    Ok((StatusCode::ACCEPTED, Json(sent)).into_response())
}
