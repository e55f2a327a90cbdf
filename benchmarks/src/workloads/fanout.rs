//! `fanout`: throughput of one execution that starts many tasks at once and joins them.

use anyhow::ensure;
use serde_json::json;

use super::BenchSettings;
use super::database::BenchDatabase;
use super::figures::BenchFigures;
use super::throughput::{self, ThroughputWorkload};
use crate::load::LoadLimit;

pub(super) async fn measure_fanout(
    place: &BenchDatabase,
    settings: &BenchSettings,
) -> anyhow::Result<BenchFigures> {
    let steps = settings.fanout_steps;
    let rate = ThroughputWorkload {
        workload: "fanout",
        function: "bench_fanout",
        input: json!({ "steps": steps, "task": settings.tasks.task_name() }),
        unit: "step",
        units: steps,
        lanes: 1,
        until: LoadLimit::Elapsed(settings.measure_time),
    };
    let (figures, result) = throughput::measure_throughput(place, settings, rate).await?;
    ensure!(result == steps, "{steps} tasks at once returned {result}");
    Ok(figures)
}
