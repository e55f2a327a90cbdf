//! Looking at all there is: whether any work is stuck, whether what is stored can have happened. Told as it is found.

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use onward_api::Onward as _;
use onward_api::problem::Problem;
use onward_api::token::Deed;
use onward_api::{finding, run};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use utoipa::IntoParams;

use super::executions::JSON_LINES;
use super::refusals;
use crate::access::Access;
use crate::answer::{Failed, Params};

/// Checks that no work of the scope is stuck.
///
/// One finding a line, and a verdict on the last; a problem on the last where the store could not be read to its end.
#[utoipa::path(
    get, path = "/v1/doctor", tag = "administration", operation_id = "doctor",
    responses(
        (status = 200, description = "One finding a line, and a verdict", body = String, content_type = "application/jsonl"),
        refusals::Usual,
    ),
)]
pub(super) async fn doctor(access: Access) -> Result<Response, Failed> {
    let service = access.to(Deed::Administer)?.clone();
    Ok(findings(move |lines| async move {
        let found = lines.clone();
        let verdict = service
            .doctor(&mut move |heard| {
                if let finding::Heard::Found(finding) = heard {
                    found.say(&finding);
                }
            })
            .await;
        lines.end(&verdict);
    }))
}

/// Which runs, and which keys are right.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
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
    get, path = "/v1/verify", tag = "administration", operation_id = "verify", params(Which),
    responses(
        (status = 200, description = "One finding a line, and a verdict", body = String, content_type = "application/jsonl"),
        refusals::Usual,
    ),
)]
pub(super) async fn verify(access: Access, Params(which): Params<Which>) -> Result<Response, Failed> {
    let service = access.to(Deed::Administer)?.clone();
    Ok(findings(move |lines| async move {
        let found = lines.clone();
        let mut hear = move |heard| {
            if let run::Heard::Found(wrong) = heard {
                found.say(&wrong);
            }
        };
        let verdict = service.verify(which.run.as_deref(), which.accept_v1_keys, &mut hear).await;
        lines.end(&verdict);
    }))
}

/// Lines as they are known.
fn findings<F: Future<Output = ()> + Send + 'static>(look: impl FnOnce(Lines) -> F) -> Response {
    let (sender, lines) = mpsc::unbounded_channel();
    let looking = Stopped(tokio::spawn(look(Lines(sender))));
    let stream = futures_util::stream::unfold((lines, looking), |(mut lines, looking)| async move {
        let line: String = lines.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(line), (lines, looking)))
    });
    ([(CONTENT_TYPE, JSON_LINES)], Body::from_stream(stream)).into_response()
}

/// Where lines go. Whoever no longer listens does not want to know.
#[derive(Clone)]
struct Lines(mpsc::UnboundedSender<String>);

impl Lines {
    fn say(&self, document: &impl Serialize) {
        drop(self.0.send(serde_json::to_string(document).unwrap_or_default() + "\n"));
    }

    fn end(&self, verdict: &Result<impl Serialize, Problem>) {
        match verdict {
            Ok(verdict) => self.say(verdict),
            Err(problem) => self.say(problem),
        }
    }
}

/// A look that ends with whoever wanted it.
struct Stopped(JoinHandle<()>);

impl Drop for Stopped {
    fn drop(&mut self) {
        self.0.abort();
    }
}
