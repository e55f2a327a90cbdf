//! The workflows that `onward bench` measures. Their task does nothing, so that the result is the
//! speed of the engine.

use onward::prelude::*;
use onward::{Call, call_named};
use serde::{Deserialize, Serialize};

/// Size of the work.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Load {
    /// Number of calls of the task.
    pub steps: u32,
    /// Name of the task to call; default: `bench_step` of this component.
    #[serde(default)]
    pub task: Option<String>,
    /// Number of steps at the start, and at the end, that `bench_long` times.
    #[serde(default)]
    pub part: u32,
}

/// Result of `bench_long`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LongChainTimes {
    /// Number of completed steps.
    pub done: u32,
    /// Duration of the first steps.
    pub first_ms: f64,
    /// Duration of the last steps.
    pub last_ms: f64,
}

/// Input of `bench_recovery`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecoveryLoad {
    pub load: Load,
    /// URL of the request between the two halves of the steps.
    pub url: String,
}

impl Load {
    /// Builds the call of one step.
    fn step_call(&self) -> Call<u32> {
        match &self.task {
            Some(name) => call_named(name, &()),
            None => call(bench_step, ()),
        }
    }
}

/// Returns at once.
#[workflow]
pub fn bench_empty() -> Result<u32> {
    Ok(0)
}

/// Runs the steps sequentially.
#[workflow]
pub fn bench_chain(load: Load) -> Result<u32> {
    let mut done = 0;
    for _ in 0..load.steps {
        done += load.step_call().run()?;
    }
    Ok(done)
}

/// Runs the steps sequentially, and times the first and the last ones.
#[workflow]
pub fn bench_long(load: Load) -> Result<LongChainTimes> {
    let last = load.steps.saturating_sub(load.part);
    let (mut done, started) = (0, now());
    let (mut first_ended, mut last_started) = (started, started);
    for step in 0..load.steps {
        if step == last {
            last_started = now();
        }
        done += load.step_call().run()?;
        if step + 1 == load.part {
            first_ended = now();
        }
    }
    let ms = |duration: Duration| duration.as_secs_f64() * 1_000.0;
    Ok(LongChainTimes {
        done,
        first_ms: ms(first_ended.since(started)),
        last_ms: ms(now().since(last_started)),
    })
}

/// Runs all steps concurrently and waits for all results.
#[workflow]
pub fn bench_fanout(load: Load) -> Result<u32> {
    let mut set = join_set()?;
    for _ in 0..load.steps {
        set.submit_call(load.step_call())?;
    }
    Ok(set.join_all()?.into_iter().sum())
}

/// Runs half of the steps, sends a request, and runs the other half.
#[workflow]
pub fn bench_recovery(input: RecoveryLoad) -> Result<u32> {
    let RecoveryLoad { load, url } = input;
    let mut done = 0;
    for step in 0..load.steps {
        if step == load.steps / 2 {
            http(&format!("POST {url}")).send()?.successful()?;
        }
        done += load.step_call().run()?;
    }
    Ok(done)
}

/// Waits for the signal `go`.
#[workflow]
pub fn bench_parked() -> Result<Json> {
    await_signal("go")
}

/// Returns 1, so that a sum of results is a number of steps.
#[task]
pub fn bench_step() -> Result<u32> {
    Ok(1)
}

onward::component!(
    bench_empty,
    bench_chain,
    bench_long,
    bench_fanout,
    bench_recovery,
    bench_parked,
    bench_step
);

#[cfg(test)]
mod tests;
