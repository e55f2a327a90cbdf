//! `fanout`: many tasks at once, joined.

use anyhow::ensure;
use serde_json::json;

use super::Settings;
use super::driver::Until;
use super::figures::Figures;
use super::place::Place;
use super::rate::{self, Rate};

pub(super) async fn measure(place: &Place, settings: &Settings) -> anyhow::Result<Figures> {
    let steps = settings.fanout_steps;
    let rate = Rate {
        workload: "fanout",
        function: "bench_fanout",
        input: json!({ "steps": steps, "task": settings.tasks.task() }),
        unit: "step",
        units: steps,
        lanes: 1,
        until: Until::Elapsed(settings.measured),
    };
    let (figures, result) = rate::measure(place, settings, rate).await?;
    ensure!(result == steps, "{steps} tasks at once returned {result}");
    Ok(figures)
}
