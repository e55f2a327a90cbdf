//! `chain`: throughput of executions that each run ten tasks in sequence.

use anyhow::ensure;
use serde_json::json;

use super::BenchSettings;
use super::database::BenchDatabase;
use super::figures::BenchFigures;
use super::throughput::{self, ThroughputWorkload};
use crate::load::LoadLimit;

const STEPS: u32 = 10;

pub(super) async fn measure_chain(
    place: &BenchDatabase,
    settings: &BenchSettings,
    lanes: usize,
) -> anyhow::Result<BenchFigures> {
    let rate = ThroughputWorkload {
        workload: "chain",
        function: "bench_chain",
        input: json!({ "steps": STEPS, "task": settings.tasks.task_name() }),
        unit: "step",
        units: STEPS,
        lanes,
        until: LoadLimit::Elapsed(settings.measure_time),
    };
    let (figures, result) = throughput::measure_throughput(place, settings, rate).await?;
    ensure!(
        result == STEPS,
        "a chain of {STEPS} steps returned {result}"
    );
    Ok(figures)
}
