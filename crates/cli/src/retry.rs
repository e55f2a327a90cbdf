//! How a command waits for what it asks.

use std::time::Duration;

use onward_api::problem::{Code, Problem};
use tokio::time::Instant;

use crate::console;

/// Runs a command that waits.
pub(crate) fn block_on<T>(command: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(command)
}

/// How long a server may be away before a command that waits gives up: long enough to be started again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(60);

/// How long to wait before a server is asked again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Asks again while a server is away, or busy: whoever waits for an execution need not know that it was started anew meanwhile.
pub(crate) async fn retry_transient<T>(
    ask: impl AsyncFn() -> Result<T, Problem>,
) -> Result<T, Problem> {
    retry_transient_with(ask, |words| console::print_message(words)).await
}

/// The same, for whoever has something on the terminal that words must not be written into.
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
