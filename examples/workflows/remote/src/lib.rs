//! Workflows without tasks: workers, in any language, execute the tasks that they call.

use onward::call_named;
use onward::prelude::*;
use serde::{Deserialize, Serialize};

/// Input of `relay`: a task to call, with its policies.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskCall {
    /// Name of the task.
    pub task: String,
    /// Input of the task; default: `null`.
    #[serde(default)]
    pub input: Json,
    /// Maximum number of attempts; default: 1.
    #[serde(default = "single_attempt")]
    pub max_attempts: u32,
    /// Constant interval between attempts; default: 0.
    #[serde(default)]
    pub interval_ms: u64,
    /// Kinds of failures that are not retried.
    #[serde(default)]
    pub non_retryable: Vec<String>,
    /// Timeout of an attempt; default: none.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// At-most-once delivery: an attempt whose outcome is unknown is not repeated.
    #[serde(default)]
    pub at_most_once: bool,
}

fn single_attempt() -> u32 {
    1
}

/// Calls a task and returns its result or failure.
#[workflow]
pub fn relay(task_call: TaskCall) -> Result<Json> {
    let interval = Duration::from_millis(task_call.interval_ms);
    let retry = RetryPolicy::max_attempts(task_call.max_attempts)
        .initial_interval(interval)
        .max_interval(interval)
        .jitter_permille(0);
    let retry = task_call
        .non_retryable
        .into_iter()
        .fold(retry, RetryPolicy::non_retryable);
    let mut call = call_named(&task_call.task, &task_call.input).retry(retry);
    if let Some(limit_ms) = task_call.timeout_ms {
        call = call.timeout(Duration::from_millis(limit_ms));
    }
    if task_call.at_most_once {
        call.at_most_once().run()
    } else {
        call.run()
    }
}

/// Calls `greet` concurrently for each name, and returns the greetings in the order of the names.
#[workflow]
pub fn greetings(names: Vec<String>) -> Result<Vec<String>> {
    let mut set = join_set::<String>()?;
    for name in &names {
        set.submit_call(call_named("greet", name))?;
    }
    let mut greetings = vec![String::new(); names.len()];
    while let Some(done) = set.next()? {
        greetings[done.index] = done.result?;
    }
    Ok(greetings)
}

/// Waits for the signal of this name and returns its payload.
#[workflow]
pub fn listen(name: String) -> Result<Json> {
    await_signal(&name)
}

onward::component!(relay, greetings, listen);

#[cfg(test)]
mod tests;
