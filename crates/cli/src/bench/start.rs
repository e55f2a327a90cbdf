//! `start`: workflows that return at once.

use anyhow::ensure;
use serde_json::Value;

use super::Settings;
use super::driver::Until;
use super::figures::Figures;
use super::place::Place;
use super::rate::{self, Rate};

pub(super) async fn measure(place: &Place, settings: &Settings, lanes: usize) -> anyhow::Result<Figures> {
    let rate = Rate {
        workload: "start",
        function: "bench_empty",
        input: Value::Null,
        unit: "start",
        units: 1,
        lanes,
        until: Until::Elapsed(settings.measured),
    };
    let (figures, result) = rate::measure(place, settings, rate).await?;
    ensure!(result == 0, "an empty workflow returned {result}");
    Ok(figures)
}
