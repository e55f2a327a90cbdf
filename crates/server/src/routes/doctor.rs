//! Looking at all there is: whether any work is stuck, whether what is stored can have happened. Told as it is found.

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

/// Checks that no work of the scope is stuck.
///
/// One finding a line, and a verdict on the last; a problem on the last where the store could not be read to its end.
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

/// Which runs, and which keys are right.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct VerifyRunsQuery {
    /// Only this run.
    run: Option<String>,
    /// Take idempotency keys of contract v1 for right, in logs that were imported.
    #[serde(rename = "acceptV1Keys", default)]
    accept_v1_keys: bool,
}

/// Checks what is stored of runs: keys, order, contiguity, and that every snapshot is what its log reduces to.
///
/// One finding a line, and a verdict on the last; a problem on the last where the store could not be read to its end.
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

/// Lines as they are known.
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

/// Where lines go. Whoever no longer listens does not want to know.
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

/// A look that ends with whoever wanted it.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
