//! Workflows without tasks of their own: workers perform what they call, in whatever language they
//! are written.

use onward::call_named;
use onward::prelude::*;
use serde::{Deserialize, Serialize};

/// What `relay` has done, and how.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Errand {
    /// The task.
    pub task: String,
    /// What it is called with.
    #[serde(default)]
    pub input: Json,
    /// How many attempts there are in all.
    #[serde(default = "one")]
    pub attempts: u32,
    /// How long to wait before the second attempt, and before each that follows.
    #[serde(default)]
    pub wait_ms: u64,
    /// Failures of these kinds are final.
    #[serde(default)]
    pub not_on: Vec<String>,
    /// How long an attempt may take; the engine's own limit when absent.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Whether it is never repeated when nobody knows how it ended.
    #[serde(default)]
    pub at_most_once: bool,
}

fn one() -> u32 {
    1
}

/// Has any task done, and returns what it returned or failed with.
#[workflow]
pub fn relay(errand: Errand) -> Result<Json> {
    let wait = Duration::from_millis(errand.wait_ms);
    let retry = Retry::attempts(errand.attempts)
        .first_wait(wait)
        .longest_wait(wait)
        .jitter_permille(0);
    let retry = errand.not_on.into_iter().fold(retry, Retry::not_on);
    let mut call = call_named(&errand.task, &errand.input).retry(retry);
    if let Some(limit_ms) = errand.timeout_ms {
        call = call.timeout(Duration::from_millis(limit_ms));
    }
    if errand.at_most_once {
        call.at_most_once().run()
    } else {
        call.run()
    }
}

/// Has everybody greeted at once, and returns the greetings in the order of the names.
#[workflow]
pub fn greetings(names: Vec<String>) -> Result<Vec<String>> {
    let mut set = join_set::<String>()?;
    for name in &names {
        set.submit_call(call_named("greet", name))?;
    }
    let mut greetings = vec![String::new(); names.len()];
    while let Some(done) = set.next()? {
        greetings[done.place] = done.result?;
    }
    Ok(greetings)
}

/// Waits for the signal of this name, and returns what it says.
#[workflow]
pub fn listen(name: String) -> Result<Json> {
    await_signal(&name)
}

onward::component!(relay, greetings, listen);

#[cfg(test)]
mod tests;
