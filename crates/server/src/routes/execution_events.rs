//! Route that follows an execution as server-sent events, which a client can resume after a
//! disconnect.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use onward_api::OnwardApi as _;
use onward_api::problem::{Code, Problem};
use serde::Deserialize;
use serde_json::Value;
use utoipa::IntoParams;

use super::error_responses;
use super::executions::parse_sequence;
use crate::auth::{Authorized, ReadAccess};
use crate::http_types::{PathName, ProblemResponse, QueryParams};
use crate::{ApiService, ServerState};

/// Maximum time in milliseconds that one read waits for an event.
const POLL_WAIT_MS: u64 = 10_000;

/// Interval of keep-alive messages on an idle stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// When a client should try again that has too many open streams.
const STREAM_RETRY_DELAY: Duration = Duration::from_secs(5);

/// Query of the event stream of an execution.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct FollowExecutionQuery {
    /// Sequence of the first event to return; default: 0. Ignored if the request has the header
    /// `Last-Event-ID`.
    #[serde(default)]
    #[param(minimum = 0)]
    from: i64,
}

/// Follows the journal of an execution, event by event, until the execution ends.
///
/// Each event has the type `journal`, its sequence as the id, and one line of the journal as data.
/// After the last one, an event of the type `end` has the execution as data. A client that
/// reconnects with `Last-Event-ID` gets the events after that one.
#[utoipa::path(
    get, path = "/v1/executions/{execution}/events", tag = "executions", operation_id = "followExecution",
    params(
        ("execution" = String, Path, description = "The execution id, or a unique prefix of at least four hexadecimal digits", pattern = "^[0-9a-fA-F]{4,64}$"),
        ("last-event-id" = Option<String>, Header, description = "The sequence of the last event that the client has received"),
        FollowExecutionQuery,
    ),
    responses(
        (status = 200, description = "The events of the execution, as server-sent events", body = String, content_type = "text/event-stream"),
        error_responses::CommonErrors, error_responses::NotFoundErrors, error_responses::ConflictErrors,
    ),
)]
pub(super) async fn follow_execution(
    State(app): State<Arc<ServerState>>,
    service: Authorized<ReadAccess>,
    headers: HeaderMap,
    PathName(execution): PathName,
    QueryParams(FollowExecutionQuery { from }): QueryParams<FollowExecutionQuery>,
) -> Result<Response, ProblemResponse> {
    let slot = app.streams.take_slot(service.caller_key().clone());
    let slot = slot.ok_or_else(|| {
        let detail = "the token has too many open event streams, or the server has: close some";
        ProblemResponse::with_retry_after(
            Problem::new(Code::RateLimited, detail),
            STREAM_RETRY_DELAY,
        )
    })?;
    let service = service.into_service();
    let from = match headers.get("last-event-id") {
        None => parse_sequence(from)?,
        Some(last) => {
            let last = last.to_str().ok().and_then(|text| text.parse::<u64>().ok());
            last.ok_or_else(|| {
                Problem::new(
                    Code::InvalidRequest,
                    "header Last-Event-ID: must be the sequence of an event",
                )
            })?
            .saturating_add(1)
        }
    };
    // An invalid or unknown execution is reported as a problem before the stream begins.
    let execution = service.get_execution(&execution).await?.execution;
    let events = stream_event_pages(service, execution, from)
        .flat_map(stream::iter)
        .inspect(move |_| {
            let _held_until_the_stream_ends = &slot;
        });
    Ok(Sse::new(events)
        .keep_alive(KeepAlive::new().interval(KEEP_ALIVE_INTERVAL))
        .into_response())
}

/// Position of a client in the journal.
enum FollowPosition {
    Next(u64),
    End,
}

/// Reads the journal page by page and returns the events of each page.
fn stream_event_pages(
    service: ApiService,
    execution: String,
    from: u64,
) -> impl Stream<Item = Vec<Result<Event, Infallible>>> {
    stream::unfold(
        (service, execution, FollowPosition::Next(from)),
        |(service, execution, position)| async move {
            let FollowPosition::Next(from) = position else {
                return None;
            };
            // The stream ends; the client can resume it on another server.
            if service.is_stopping() {
                return None;
            }
            match read_event_page(&service, &execution, from).await {
                Ok((events, next)) => Some((
                    events.into_iter().map(Ok).collect(),
                    (service, execution, next),
                )),
                Err(problem) => {
                    let data = serde_json::to_string(&problem).unwrap_or_default();
                    let event = Event::default().event("problem").data(data);
                    Some((vec![Ok(event)], (service, execution, FollowPosition::End)))
                }
            }
        },
    )
}

async fn read_event_page(
    service: &ApiService,
    execution: &str,
    from: u64,
) -> Result<(Vec<Event>, FollowPosition), Problem> {
    let followed = service
        .follow_journal(execution, from, POLL_WAIT_MS)
        .await?;
    let mut next = from;
    let mut events = Vec::new();
    for line in followed.lines.lines() {
        let sequence = serde_json::from_str::<Value>(line)
            .ok()
            .and_then(|line| line["sequence"].as_u64());
        let sequence = sequence
            .ok_or_else(|| Problem::new(Code::Corrupt, "a journal event has no sequence"))?;
        next = sequence + 1;
        events.push(
            Event::default()
                .event("journal")
                .id(sequence.to_string())
                .data(line),
        );
    }
    if !followed.is_complete {
        return Ok((events, FollowPosition::Next(next)));
    }
    let view = serde_json::to_string(&service.get_execution(execution).await?).unwrap_or_default();
    events.push(Event::default().event("end").data(view));
    Ok((events, FollowPosition::End))
}
