//! Executions: start, list, show, signal, cancel.

use axum::Json;
use axum::http::HeaderMap;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use onward_api::Onward as _;
use onward_api::execution::{Cancel, Execution, ExecutionPage, Listing, Outcome, Sent, Signal, Start, Started};
use onward_api::explanation::Explanation;
use onward_api::problem::{Code, Problem};
use onward_api::token::Deed;
use serde::Deserialize;
use utoipa::IntoParams;

use super::refusals;
use crate::access::Access;
use crate::answer::{Answer, Body, Failed, Named, Params};

/// Nobody waits longer, in milliseconds: what is between would give up.
const WAIT_MS_MAX: u64 = 60_000;

/// The sequence of an event, from a number as others write it.
pub(super) fn sequence(number: i64) -> Result<u64, Failed> {
    let wrong = |_| Problem::new(Code::InvalidRequest, format!("{number} is not the sequence of an event"));
    Ok(u64::try_from(number).map_err(wrong)?)
}

/// How long somebody wants to wait, if that is not too long.
pub(super) fn patience(wait_ms: u64) -> Result<u64, Failed> {
    let words = || format!("waitMs: {wait_ms} is more than {WAIT_MS_MAX}: ask again instead");
    if wait_ms > WAIT_MS_MAX { Err(Problem::new(Code::InvalidRequest, words()).into()) } else { Ok(wait_ms) }
}

/// The media type of JSON Lines.
pub(super) const JSON_LINES: &str = "application/jsonl";

/// Starts a workflow.
///
/// The key can be given in the body or as the header `Idempotency-Key`.
#[utoipa::path(
    post, path = "/v1/executions", tag = "executions", operation_id = "startExecution",
    params(("idempotency-key" = Option<String>, Header, description = "The key, unless the body has one", max_length = 500)),
    request_body = Start,
    responses(
        (status = 201, description = "It was started", body = Started),
        (status = 200, description = "The key had started it before", body = Started),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn start(
    access: Access,
    headers: HeaderMap,
    Body(mut start): Body<Start>,
) -> Result<Response, Failed> {
    let service = access.to(Deed::Operate)?;
    if let Some(key) = headers.get("idempotency-key") {
        let key = key.to_str().map_err(|_| Problem::new(Code::InvalidRequest, "the key is not plain text"))?;
        match &start.key {
            Some(other) if other != key => {
                let words = "there is one key in the body and another in the header";
                return Err(Problem::new(Code::InvalidRequest, words).into());
            }
            _ => start.key = Some(key.to_owned()),
        }
    }
    start.wait_ms.map(patience).transpose()?;
    let started = service.start(start).await?;
    let status = if started.existed { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(started)).into_response())
}

/// Lists executions, the last that was started first unless asked otherwise.
///
/// A page may be short, or empty, without being the last: go on as long as there is a `next`.
#[utoipa::path(
    get, path = "/v1/executions", tag = "executions", operation_id = "listExecutions", params(Listing),
    responses(
        (status = 200, description = "A page", body = ExecutionPage),
        refusals::Usual,
    ),
)]
pub(super) async fn list(access: Access, Params(listing): Params<Listing>) -> Answer<ExecutionPage> {
    Ok(Json(access.to(Deed::Read)?.executions(listing).await?))
}

/// Shows an execution, by its id or four or more digits that it begins with.
#[utoipa::path(
    get, path = "/v1/executions/{execution}", tag = "executions", operation_id = "getExecution",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$")),
    responses(
        (status = 200, description = "The execution", body = Execution),
        refusals::Usual, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn show(access: Access, Named(execution): Named) -> Answer<Execution> {
    Ok(Json(access.to(Deed::Read)?.execution(&execution).await?))
}

/// For how long to wait.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Patience {
    /// How many milliseconds to wait for it; at most a minute.
    #[serde(rename = "waitMs", default)]
    #[param(maximum = 60_000)]
    wait_ms: u64,
}

/// What an execution ended with; neither result nor error while it has not.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/result", tag = "executions", operation_id = "getResult",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$"), Patience),
    responses(
        (status = 200, description = "What is known", body = Outcome),
        refusals::Usual, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn result(
    access: Access,
    Named(execution): Named,
    Params(patience): Params<Patience>,
) -> Answer<Outcome> {
    Ok(Json(access.to(Deed::Read)?.outcome(&execution, self::patience(patience.wait_ms)?).await?))
}

/// From where, and for how long to wait.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct From {
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
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$"), From),
    responses(
        (status = 200, description = "One event a line", body = String, content_type = "application/jsonl"),
        refusals::Usual, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn journal(
    access: Access,
    Named(execution): Named,
    Params(From { from, wait_ms }): Params<From>,
) -> Result<Response, Failed> {
    let lines = access.to(Deed::Read)?.journal(&execution, sequence(from)?, patience(wait_ms)?).await?;
    Ok(([(CONTENT_TYPE, JSON_LINES)], lines).into_response())
}

/// The component that an execution runs.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/component", tag = "executions", operation_id = "getComponent",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$")),
    responses(
        (status = 200, description = "Its bytes", content_type = "application/wasm"),
        refusals::Usual, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn component(access: Access, Named(execution): Named) -> Result<Response, Failed> {
    let code = access.to(Deed::Read)?.component(&execution).await?;
    Ok(([(CONTENT_TYPE, "application/wasm")], code).into_response())
}

/// Why an execution does not go on: what it waits for, since when, and what happens next.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/why", tag = "executions", operation_id = "explainExecution",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$")),
    responses(
        (status = 200, description = "An explanation", body = Explanation),
        refusals::Usual, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn why(access: Access, Named(execution): Named) -> Answer<Explanation> {
    Ok(Json(access.to(Deed::Read)?.explain(&execution).await?))
}

/// Sends a signal. It is kept until the execution waits for it.
#[utoipa::path(
    post, path = "/v1/executions/{execution}/signals", tag = "executions", operation_id = "signalExecution",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$")),
    request_body = Signal,
    responses(
        (status = 202, description = "It is on its way", body = Sent),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn signal(
    access: Access,
    Named(execution): Named,
    Body(signal): Body<Signal>,
) -> Result<Response, Failed> {
    let sent = access.to(Deed::Operate)?.signal(&execution, signal).await?;
    Ok((StatusCode::ACCEPTED, Json(sent)).into_response())
}

/// Asks an execution to stop. It may clean up first.
#[utoipa::path(
    post, path = "/v1/executions/{execution}/cancel", tag = "executions", operation_id = "cancelExecution",
    params(("execution" = String, Path, description = "Its id, or the beginning of it", pattern = "^[0-9a-fA-F]{4,64}$")),
    request_body = Cancel,
    responses(
        (status = 202, description = "It is asked", body = Sent),
        refusals::Usual, refusals::Body, refusals::Absent, refusals::Conflict,
    ),
)]
pub(super) async fn cancel(
    access: Access,
    Named(execution): Named,
    Body(cancel): Body<Cancel>,
) -> Result<Response, Failed> {
    let sent = access.to(Deed::Operate)?.cancel(&execution, cancel).await?;
    Ok((StatusCode::ACCEPTED, Json(sent)).into_response())
}
