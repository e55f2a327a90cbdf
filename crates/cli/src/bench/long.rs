//! `long`: one execution with thousands of tasks, and whether the last of them are as fast as the first.

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::Settings;
use super::driver::Until;
use super::figures::Figures;
use super::place::Place;
use super::rate::{self, Rate};

/// Its beginning and its end are each a tenth of it.
const PARTS: u32 = 10;

pub(super) async fn measure(place: &Place, settings: &Settings) -> anyhow::Result<Figures> {
    let (steps, part) = (settings.long_steps, settings.long_steps / PARTS);
    let rate = Rate {
        workload: "long",
        function: "bench_long",
        input: json!({ "steps": steps, "part": part, "task": settings.tasks.task() }),
        unit: "step",
        units: steps,
        lanes: 1,
        until: Until::Answered(1),
    };
    let (figures, result) = rate::measure(place, settings, rate).await?;
    ensure!(result["done"] == steps, "a chain of {steps} steps returned {result}");
    let first = per_second(&result, "first_ms", part)?;
    let last = per_second(&result, "last_ms", part)?;
    Ok(figures.with("firstPerSecond", &format!("its first {part}"), first, "step/s").with(
        "lastPerSecond",
        &format!("its last {part}"),
        last,
        "step/s",
    ))
}

fn per_second(result: &Value, name: &str, part: u32) -> anyhow::Result<f64> {
    let took_ms = result[name].as_f64().with_context(|| format!("it does not say {name}"))?;
    Ok(f64::from(part) * 1_000.0 / took_ms)
}
