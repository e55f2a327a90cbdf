//! Retries requests while a server is unavailable.

use std::time::Duration;

use onward_api::problem::{Code, Problem};
use tokio::time::Instant;

use crate::console;

/// How long a command retries before it gives up: long enough for a server to restart.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Delay before the next attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Retries a request while the server is unavailable, rate limited or timed out, so that a command
/// survives a server restart.
pub(crate) async fn retry_transient<T>(
    request: impl AsyncFn() -> Result<T, Problem>,
) -> Result<T, Problem> {
    retry_transient_with(request, |message| console::print_message(message)).await
}

/// Like [`retry_transient`], but reports the first failure through `report`, for callers whose
/// terminal line a message must not break.
pub(crate) async fn retry_transient_with<T>(
    mut request: impl AsyncFnMut() -> Result<T, Problem>,
    mut report: impl FnMut(&str),
) -> Result<T, Problem> {
    let since = Instant::now();
    let mut has_reported = false;
    loop {
        match request().await {
            Err(problem) if is_transient(&problem) && since.elapsed() < RETRY_TIMEOUT => {
                if !std::mem::replace(&mut has_reported, true) {
                    report(&format!(
                        "{}; retrying",
                        console::escape_control_chars(&problem.detail)
                    ));
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            response => return response,
        }
    }
}

fn is_transient(problem: &Problem) -> bool {
    matches!(
        problem.code,
        Code::Unavailable | Code::RateLimited | Code::TimedOut
    )
}
