//! Runs async commands, and retries requests while a server is unavailable.

use std::time::Duration;

use onward_api::problem::{Code, Problem};
use tokio::time::Instant;

use crate::console;

/// Runs an async command to its end on a new runtime.
pub(crate) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(command)
}

/// How long a command retries before it gives up: long enough for a server to restart.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// Delay before the next attempt.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Retries a request while the server is unavailable, rate limited or timed out, so that a command
/// survives a server restart.
pub(crate) async fn retry_transient<T>(
    ask: impl AsyncFn() -> Result<T, Problem>,
) -> Result<T, Problem> {
    retry_transient_with(ask, |words| console::print_message(words)).await
}

/// Like [`retry_transient`], but reports the first failure through `say`, for callers whose
/// terminal line a message must not break.
pub(crate) async fn retry_transient_with<T>(
    mut ask: impl AsyncFnMut() -> Result<T, Problem>,
    mut say: impl FnMut(&str),
) -> Result<T, Problem> {
    let since = Instant::now();
    let mut has_said = false;
    loop {
        match ask().await {
            Err(problem) if is_transient(&problem) && since.elapsed() < RETRY_TIMEOUT => {
                if !std::mem::replace(&mut has_said, true) {
                    say(&format!(
                        "{}; asking again",
                        console::escape_control_chars(&problem.detail)
                    ));
                }
                tokio::time::sleep(RETRY_INTERVAL).await;
            }
            answer => return answer,
        }
    }
}

fn is_transient(problem: &Problem) -> bool {
    matches!(
        problem.code,
        Code::Unavailable | Code::RateLimited | Code::TimedOut
    )
}
