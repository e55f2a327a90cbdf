//! `start`: throughput of workflows that return immediately.

use anyhow::ensure;
use serde_json::Value;

use super::BenchSettings;
use super::database::BenchDatabase;
use super::figures::BenchFigures;
use super::throughput::{self, ThroughputWorkload};
use crate::load::LoadLimit;

pub(super) async fn measure_start(
    place: &BenchDatabase,
    settings: &BenchSettings,
    lanes: usize,
) -> anyhow::Result<BenchFigures> {
    let rate = ThroughputWorkload {
        workload: "start",
        function: "bench_empty",
        input: Value::Null,
        unit: "start",
        units: 1,
        lanes,
        until: LoadLimit::Elapsed(settings.measure_time),
    };
    let (figures, result) = throughput::measure_throughput(place, settings, rate).await?;
    ensure!(result == 0, "an empty workflow returned {result}");
    Ok(figures)
}
