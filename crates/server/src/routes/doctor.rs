//! Routes that check the whole scope: whether any work is stuck, and whether stored runs are
//! consistent. Findings are streamed as they are found.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use onward_api::OnwardApi as _;
use onward_api::problem::Problem;
use onward_api::token::Permission;
use onward_api::{finding, run};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use utoipa::IntoParams;

use super::error_responses;
use super::executions::JSON_LINES;
use crate::auth::AuthenticatedCaller;
use crate::http_types::{ProblemResponse, QueryParams};

/// Checks whether any work in the scope is stuck.
///
/// Responds with one finding per line and a verdict on the last line; the last line is a problem if
/// the store could not be read completely.
#[utoipa::path(
    get, path = "/v1/doctor", tag = "administration", operation_id = "doctor",
    responses(
        (status = 200, description = "One finding a line, and a verdict", body = String, content_type = "application/jsonl"),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn run_doctor(access: AuthenticatedCaller) -> Result<Response, ProblemResponse> {
    let service = access.require_permission(Permission::Administer)?.clone();
    Ok(stream_findings(move |lines| async move {
        let found = lines.clone();
        let verdict = service
            .run_doctor(&mut move |heard| {
                if let finding::DoctorProgress::Finding(finding) = heard {
                    found.send_line(&finding);
                }
            })
            .await;
        lines.send_report(&verdict);
    }))
}

/// Query of a verification.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct VerifyRunsQuery {
    /// Verifies only this run; default: all runs.
    run: Option<String>,
    /// Accepts idempotency keys of contract v1, which imported logs have; default: false.
    #[serde(rename = "acceptV1Keys", default)]
    accept_v1_keys: bool,
}

/// Verifies the stored runs: keys, order, contiguity, and that every snapshot equals the reduction
/// of its log.
///
/// Responds with one finding per line and a verdict on the last line; the last line is a problem if
/// the store could not be read completely.
#[utoipa::path(
    get, path = "/v1/verify", tag = "administration", operation_id = "verify", params(VerifyRunsQuery),
    responses(
        (status = 200, description = "One finding a line, and a verdict", body = String, content_type = "application/jsonl"),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn verify_runs(
    access: AuthenticatedCaller,
    QueryParams(which): QueryParams<VerifyRunsQuery>,
) -> Result<Response, ProblemResponse> {
    let service = access.require_permission(Permission::Administer)?.clone();
    Ok(stream_findings(move |lines| async move {
        let found = lines.clone();
        let mut hear = move |heard| {
            if let run::VerifyProgress::Finding(wrong) = heard {
                found.send_line(&wrong);
            }
        };
        let verdict = service
            .verify_runs(which.run.as_deref(), which.accept_v1_keys, &mut hear)
            .await;
        lines.send_report(&verdict);
    }))
}

/// Runs a check in the background and streams its lines as they are produced.
fn stream_findings<F: Future<Output = ()> + Send + 'static>(
    look: impl FnOnce(JsonLineSender) -> F,
) -> Response {
    let (sender, lines) = mpsc::unbounded_channel();
    let looking = AbortOnDrop(tokio::spawn(look(JsonLineSender(sender))));
    let stream =
        futures_util::stream::unfold((lines, looking), |(mut lines, looking)| async move {
            let line: String = lines.recv().await?;
            Some((Ok::<_, std::convert::Infallible>(line), (lines, looking)))
        });
    ([(CONTENT_TYPE, JSON_LINES)], Body::from_stream(stream)).into_response()
}

/// Sends lines to the response. Lines are discarded once the client has disconnected.
#[derive(Clone)]
struct JsonLineSender(mpsc::UnboundedSender<String>);

impl JsonLineSender {
    fn send_line(&self, document: &impl Serialize) {
        drop(
            self.0
                .send(serde_json::to_string(document).unwrap_or_default() + "\n"),
        );
    }

    fn send_report(&self, verdict: &Result<impl Serialize, Problem>) {
        match verdict {
            Ok(verdict) => self.send_line(verdict),
            Err(problem) => self.send_line(problem),
        }
    }
}

/// Aborts the check when the response is dropped, for example because the client disconnected.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
