//! Performs one task from its claim to its end, and sends heartbeats to the server meanwhile.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use onward_api::RawJson;
use onward_api::client::ApiClient;
use onward_api::problem::{Code, Problem};
use onward_api::task::{
    CompleteTaskRequest, FailTaskRequest, NextTaskRequest, TaskClaim, TaskEndResponse,
};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::backoff::RetryBackoff;
use crate::worker::{TaskHandler, is_final};
use crate::{TaskFailure, WorkerTaskContext};

/// How long to wait for the response to a report after the lease is lost.
const RESPONSE_GRACE: Duration = Duration::from_secs(1);

/// The result or the failure of a task.
pub(crate) type TaskOutcome = Result<RawJson, TaskFailure>;

/// Performs a task and reports its outcome. Returns the next task if the server returned one.
pub(crate) async fn perform_task(
    client: &ApiClient,
    handler: &TaskHandler,
    claimed: TaskClaim,
    next: impl Fn() -> Option<NextTaskRequest>,
) -> Option<TaskClaim> {
    let claimed = Arc::new(claimed);
    let (lost, is_lost) = watch::channel(false);
    let task = WorkerTaskContext {
        claim: Arc::clone(&claimed),
        is_lost,
    };
    // The handler and the heartbeats run concurrently: a slow response of the server must not stop
    // the handler, and the handler must not delay the heartbeats.
    let performing = AssertUnwindSafe(handler(Arc::clone(&claimed), task)).catch_unwind();
    let mut performing = std::pin::pin!(performing);
    let heartbeats = heartbeat_until_lost(client, &claimed, &lost);
    let outcome = tokio::select! {
        outcome = &mut performing => outcome,
        // The lease is lost, so the outcome is not reported. The handler is notified and may
        // finish.
        () = heartbeats => {
            drop(performing.await);
            tracing::info!(task = claimed.task, "lease lost while the task ran: its outcome is dropped");
            return None;
        }
    };
    let outcome =
        outcome.unwrap_or_else(|_| Err(TaskFailure::with_code("panic", "the task panicked")));
    report_outcome(client, &claimed, outcome, next, &lost).await
}

/// Sends heartbeats until this worker no longer holds the task, then marks it as lost.
async fn heartbeat_until_lost(client: &ApiClient, claimed: &TaskClaim, lost: &watch::Sender<bool>) {
    let lease = Duration::from_millis(claimed.lease_ms.into());
    let mut until = Instant::now() + lease;
    let mut pause = lease / 3;
    let pause_max = pause.max(Duration::from_secs(1));
    let mut backoff = RetryBackoff::default();
    loop {
        tokio::time::sleep(pause).await;
        let sent_at = Instant::now();
        // A slow response must not delay the next heartbeat past the lease.
        let response = tokio::time::timeout(
            pause_max,
            client.heartbeat_task(&claimed.task, &claimed.token),
        )
        .await;
        match response {
            Ok(Ok(_)) => {
                (until, pause) = (sent_at + lease, lease / 3);
                backoff.reset();
            }
            Ok(Err(problem)) if problem.code == Code::LeaseLost => break,
            _ if Instant::now() >= until => break,
            _ => pause = backoff.next_delay().min(lease / 3),
        }
    }
    lost.send_replace(true);
}

/// Reports the outcome of a task, with retries while the worker holds the lease. Returns the next
/// task if the server returned one.
async fn report_outcome(
    client: &ApiClient,
    claimed: &TaskClaim,
    outcome: TaskOutcome,
    next: impl Fn() -> Option<NextTaskRequest>,
    lost: &watch::Sender<bool>,
) -> Option<TaskClaim> {
    let mut backoff = RetryBackoff::default();
    let mut outcome = outcome;
    let mut is_repeated = false;
    let mut heartbeats = std::pin::pin!(heartbeat_until_lost(client, claimed, lost));
    loop {
        let reported = {
            let mut report = std::pin::pin!(send_outcome(client, claimed, &outcome, next()));
            tokio::select! {
                reported = &mut report => reported,
                // The lease may be lost because the end of the task has just been recorded and the
                // response has not arrived yet.
                () = &mut heartbeats => match tokio::time::timeout(RESPONSE_GRACE, report).await {
                    Ok(Ok(ended)) => return ended.next,
                    _ => {
                        tracing::warn!(task = claimed.task, "outcome of a task could not be reported before its lease expired");
                        return None;
                    }
                },
            }
        };
        match reported {
            Ok(ended) => return ended.next,
            // An earlier report may have been recorded although its response was lost.
            Err(problem) if problem.code == Code::LeaseLost && is_repeated => {
                tracing::info!(
                    task = claimed.task,
                    "claim token is no longer valid: an earlier report was recorded, or the lease was lost"
                );
                return None;
            }
            // A result that the server rejects as invalid is reported as a failure instead.
            Err(problem) if outcome.is_ok() && matches!(problem.status, 400 | 413 | 422) => {
                outcome = Err(
                    TaskFailure::with_code(problem.code.as_str(), problem.detail).non_retryable(),
                );
            }
            Err(problem) if is_final(&problem) => {
                tracing::warn!(task = claimed.task, %problem, "the server refused the outcome of a task");
                return None;
            }
            Err(problem) => {
                is_repeated = true;
                tracing::warn!(task = claimed.task, %problem, "outcome of a task could not be reported; retrying");
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}

async fn send_outcome(
    client: &ApiClient,
    claimed: &TaskClaim,
    outcome: &TaskOutcome,
    next: Option<NextTaskRequest>,
) -> Result<TaskEndResponse, Problem> {
    let token = claimed.token.clone();
    match outcome {
        Ok(result) => {
            client
                .complete_task(
                    &claimed.task,
                    &CompleteTaskRequest {
                        token,
                        result: result.clone(),
                        next,
                    },
                )
                .await
        }
        Err(failure) => {
            client
                .fail_task(
                    &claimed.task,
                    &FailTaskRequest {
                        token,
                        error: failure.clone().into(),
                        next,
                    },
                )
                .await
        }
    }
}
