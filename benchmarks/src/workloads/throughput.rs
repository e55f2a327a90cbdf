//! Workloads whose rate is measured: a new server under load, first a warm-up, then the measurement
//! between two runs of the baseline.

use anyhow::Context as _;
use onward_api::RawJson;
use serde_json::Value;

use super::database::BenchDatabase;
use super::figures::BenchFigures;
use super::load_driver::{BenchInvocation, drive_load};
use super::server::BenchServerLauncher;
use super::{BenchSettings, worker};
use crate::load::{LoadLimit, LoadResult};

/// A workload to measure with [`measure_throughput`].
pub(super) struct ThroughputWorkload {
    pub(super) workload: &'static str,
    pub(super) function: &'static str,
    pub(super) input: Value,
    /// Name of the counted unit; `units` is how many of them one execution performs.
    pub(super) unit: &'static str,
    pub(super) units: u32,
    pub(super) lanes: usize,
    pub(super) until: LoadLimit,
}

/// Measures a workload. Returns the figures and the result of the last execution.
pub(super) async fn measure_throughput(
    place: &BenchDatabase,
    settings: &BenchSettings,
    rate: ThroughputWorkload,
) -> anyhow::Result<(BenchFigures, Value)> {
    let ThroughputWorkload {
        workload,
        function,
        input,
        unit,
        units,
        lanes,
        until,
    } = rate;
    settings.print_progress(&format!("{workload}, {lanes} at a time"));
    let mut store = place.create_store().await?;
    let server = BenchServerLauncher::for_store(&settings.host, &store)
        .await?
        .spawn_with_workflows(settings.tasks)
        .await?;
    let worker = settings.spawn_worker(&server)?;
    let work = BenchInvocation {
        function,
        input: RawJson::parse(&input.to_string()).context("the input is not JSON")?,
    };
    let warm_up = match until {
        LoadLimit::Elapsed(_) => LoadLimit::Elapsed(settings.warm_up),
        LoadLimit::Completed(count) => LoadLimit::Completed(count),
    };
    drive_load(&server.client, &work, lanes, warm_up).await?;
    let raw_before = store.measure_commit_rate(settings.yardstick_time).await?;
    let before = server.read_usage(&store).await?;
    let worker_before = worker.as_ref().and_then(worker::BenchWorker::cpu_time);
    let LoadResult {
        elapsed,
        latencies,
        result,
    } = drive_load(&server.client, &work, lanes, until).await?;
    let used = server.read_usage(&store).await?.usage_since(before);
    let raw_after = store.measure_commit_rate(settings.yardstick_time).await?;
    let executions = latencies.sample_count();
    let result = result.context("nothing was executed")?;
    let figures = BenchFigures {
        workload,
        concurrency: lanes,
        unit,
        executions,
        units: executions as u64 * u64::from(units),
        took: elapsed,
        latencies,
        used,
        commit_rates: [raw_before, raw_after],
        extra_figures: Vec::new(),
    };
    let figures = match worker {
        Some(worker) => worker.with_worker_figure(figures, worker_before),
        None => figures,
    };
    drop(server);
    drop(store);
    Ok((figures, serde_json::from_str(result.as_str())?))
}
