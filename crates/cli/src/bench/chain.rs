//! `chain`: ten tasks, one after the other, in each execution.

use anyhow::ensure;
use serde_json::json;

use super::Settings;
use super::driver::Until;
use super::figures::Figures;
use super::place::Place;
use super::rate::{self, Rate};

const STEPS: u32 = 10;

pub(super) async fn measure(place: &Place, settings: &Settings, lanes: usize) -> anyhow::Result<Figures> {
    let rate = Rate {
        workload: "chain",
        function: "bench_chain",
        input: json!({ "steps": STEPS, "task": settings.tasks.task() }),
        unit: "step",
        units: STEPS,
        lanes,
        until: Until::Elapsed(settings.measured),
    };
    let (figures, result) = rate::measure(place, settings, rate).await?;
    ensure!(result == STEPS, "a chain of {STEPS} steps returned {result}");
    Ok(figures)
}
