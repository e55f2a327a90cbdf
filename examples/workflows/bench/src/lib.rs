//! The workflows that `onward bench` measures. Their task does nothing, so that the engine is what is measured.

use onward::prelude::*;
use onward::{Call, call_named};
use serde::{Deserialize, Serialize};

/// How much there is to do.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Load {
    pub steps: u32,
    /// Has each step done by the task of this name, wherever it is, instead of the one beside the workflow.
    #[serde(default)]
    pub task: Option<String>,
    /// Whether each step logs that it is performed.
    #[serde(default)]
    pub audit: bool,
    /// How many steps `bench_long` takes for its beginning, and how many for its end.
    #[serde(default)]
    pub part: u32,
}

/// What `bench_long` says of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ends {
    pub done: u32,
    /// How long the first steps took.
    pub first_ms: f64,
    /// How long the last ones took.
    pub last_ms: f64,
}

impl Load {
    /// One step, not begun yet.
    fn step(&self) -> Call<u32> {
        match &self.task {
            Some(name) => call_named(name, &self.audit),
            None => call(bench_step, self.audit),
        }
    }
}

/// Returns at once.
#[workflow]
pub fn bench_empty() -> Result<u32> {
    Ok(0)
}

/// One step after the other.
#[workflow]
pub fn bench_chain(load: Load) -> Result<u32> {
    let mut done = 0;
    for _ in 0..load.steps {
        done += load.step().run()?;
    }
    Ok(done)
}

/// The same, and says how long its ends took.
#[workflow]
pub fn bench_long(load: Load) -> Result<Ends> {
    let last = load.steps.saturating_sub(load.part);
    let (mut done, begun) = (0, now());
    let (mut first_ended, mut last_begun) = (begun, begun);
    for step in 0..load.steps {
        if step == last {
            last_begun = now();
        }
        done += load.step().run()?;
        if step + 1 == load.part {
            first_ended = now();
        }
    }
    let ms = |duration: Duration| duration.as_secs_f64() * 1_000.0;
    Ok(Ends { done, first_ms: ms(first_ended.since(begun)), last_ms: ms(now().since(last_begun)) })
}

/// All steps at once, joined.
#[workflow]
pub fn bench_fanout(load: Load) -> Result<u32> {
    let mut set = join_set()?;
    for _ in 0..load.steps {
        set.submit_call(load.step())?;
    }
    Ok(set.join_all()?.into_iter().sum())
}

/// Waits for the signal `go`.
#[workflow]
pub fn bench_parked() -> Result<Json> {
    await_signal("go")
}

/// Counts for one. What is logged is the same for every performance of the same step, so that those of one can be counted.
#[task]
pub fn bench_step(audit: bool) -> Result<u32> {
    if audit {
        info!("performed {}", own().idempotency_key);
    }
    Ok(1)
}

onward::component!(bench_empty, bench_chain, bench_long, bench_fanout, bench_parked, bench_step);

#[cfg(test)]
mod tests;
