//! Routes that check the whole scope: whether any work is stuck, and whether stored runs are
//! consistent. Findings are streamed as they are found.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use onward_api::OnwardApi as _;
use onward_api::problem::Problem;
use onward_api::{finding, run};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use utoipa::IntoParams;

use super::error_responses;
use super::executions::JSON_LINES;
use crate::auth::{AdministerAccess, Authorized};
use crate::http_types::{ProblemResponse, QueryParams};

/// Checks whether any work in the scope is stuck.
///
/// Responds with one `DoctorFinding` per line and a `DoctorReport` on the last line. If the store
/// could not be read completely, the last line is a problem instead of the report.
#[utoipa::path(
    get, path = "/v1/doctor", tag = "administration", operation_id = "runDoctor",
    responses(
        (status = 200, description = "One finding per line, and the report on the last line", body = String, content_type = "application/jsonl"),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn run_doctor(
    service: Authorized<AdministerAccess>,
) -> Result<Response, ProblemResponse> {
    let service = service.into_service();
    Ok(stream_findings(move |lines| async move {
        let findings = lines.clone();
        let report = service
            .run_doctor(&mut move |progress| {
                if let finding::DoctorProgress::Finding(finding) = progress {
                    findings.send_line(&finding);
                }
            })
            .await;
        lines.send_report(&report);
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

/// Verifies the stored runs.
///
/// Checks keys, order, contiguity, and that every snapshot equals the reduction of its log.
///
/// Responds with one `VerifyFinding` per line and a `VerifyReport` on the last line. If the store
/// could not be read completely, the last line is a problem instead of the report.
#[utoipa::path(
    get, path = "/v1/verify", tag = "administration", operation_id = "verifyRuns", params(VerifyRunsQuery),
    responses(
        (status = 200, description = "One finding per line, and the report on the last line", body = String, content_type = "application/jsonl"),
        error_responses::CommonErrors,
    ),
)]
pub(super) async fn verify_runs(
    service: Authorized<AdministerAccess>,
    QueryParams(VerifyRunsQuery {
        run,
        accept_v1_keys,
    }): QueryParams<VerifyRunsQuery>,
) -> Result<Response, ProblemResponse> {
    let service = service.into_service();
    let keys = if accept_v1_keys {
        run::KeyContract::V2OrV1
    } else {
        run::KeyContract::V2Only
    };
    Ok(stream_findings(move |lines| async move {
        let findings = lines.clone();
        let mut on_progress = move |progress| {
            if let run::VerifyProgress::Finding(finding) = progress {
                findings.send_line(&finding);
            }
        };
        let report = service
            .verify_runs(run.as_deref(), keys, &mut on_progress)
            .await;
        lines.send_report(&report);
    }))
}

/// Runs a check in the background and streams its lines as they are produced.
fn stream_findings<F: Future<Output = ()> + Send + 'static>(
    check: impl FnOnce(JsonLineSender) -> F,
) -> Response {
    let (sender, lines) = mpsc::unbounded_channel();
    let check = AbortOnDrop(tokio::spawn(check(JsonLineSender(sender))));
    let stream = futures_util::stream::unfold((lines, check), |(mut lines, check)| async move {
        let line: String = lines.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(line), (lines, check)))
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

    fn send_report(&self, report: &Result<impl Serialize, Problem>) {
        match report {
            Ok(report) => self.send_line(report),
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
