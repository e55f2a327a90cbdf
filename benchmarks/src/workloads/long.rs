//! `long`: one execution with thousands of tasks in sequence, to compare the rate of the last ones
//! with the rate of the first.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::BenchSettings;
use super::database::BenchDatabase;
use super::figures::BenchFigures;
use super::throughput::{self, ThroughputWorkload};
use crate::load::LoadLimit;

/// The first and the last tenth of the steps are timed.
const PART_COUNT: u32 = 10;

pub(super) async fn measure_long(
    place: &BenchDatabase,
    settings: &BenchSettings,
) -> anyhow::Result<BenchFigures> {
    let (steps, part) = (settings.long_steps, settings.long_steps / PART_COUNT);
    let rate = ThroughputWorkload {
        workload: "long",
        function: "bench_long",
        input: json!({ "steps": steps, "part": part, "task": settings.tasks.task_name() }),
        unit: "step",
        units: steps,
        lanes: 1,
        until: LoadLimit::Completed(1),
    };
    let (figures, result) = throughput::measure_throughput(place, settings, rate).await?;
    ensure!(
        result["done"] == steps,
        "a chain of {steps} steps returned {result}"
    );
    let first = steps_per_second(&result, "first_ms", part)?;
    let last = steps_per_second(&result, "last_ms", part)?;
    Ok(figures
        .with_figure(
            "firstPerSecond",
            &format!("its first {part}"),
            first,
            "step/s",
        )
        .with_figure("lastPerSecond", &format!("its last {part}"), last, "step/s"))
}

fn steps_per_second(result: &Value, name: &str, part: u32) -> anyhow::Result<f64> {
    let took_ms = result[name]
        .as_f64()
        .with_context(|| format!("no number {name} in the result"))?;
    Ok(f64::from(part) * 1_000.0 / took_ms)
}
