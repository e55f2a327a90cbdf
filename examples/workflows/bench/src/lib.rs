//! The workflows that `onward bench` measures. Their task does nothing, so that the engine is what
//! is measured.

use onward::prelude::*;
use onward::{Call, call_named};
use serde::{Deserialize, Serialize};

/// How much there is to do.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Load {
    pub steps: u32,
    /// Has each step done by the task of this name, wherever it is, instead of the one beside the
    /// workflow.
    #[serde(default)]
    pub task: Option<String>,
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

/// What `bench_recovery` does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Interrupted {
    pub load: Load,
    /// Whom it sends a request in the middle.
    pub url: String,
}

impl Load {
    /// One step, not begun yet.
    fn step(&self) -> Call<u32> {
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
    Ok(Ends {
        done,
        first_ms: ms(first_ended.since(begun)),
        last_ms: ms(now().since(last_begun)),
    })
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

/// Half of the steps, a request to somebody outside, and the other half.
#[workflow]
pub fn bench_recovery(interrupted: Interrupted) -> Result<u32> {
    let Interrupted { load, url } = interrupted;
    let mut done = 0;
    for step in 0..load.steps {
        if step == load.steps / 2 {
            http(&format!("POST {url}")).send()?.successful()?;
        }
        done += load.step().run()?;
    }
    Ok(done)
}

/// Waits for the signal `go`.
#[workflow]
pub fn bench_parked() -> Result<Json> {
    await_signal("go")
}

/// Counts for one.
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
