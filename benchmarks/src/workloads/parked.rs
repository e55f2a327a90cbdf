//! `parked`: memory and disk space of executions that wait for a signal.

use std::time::Duration;

use anyhow::{Context as _, bail};
use onward_api::RawJson;
use tokio::time::Instant;

use super::BenchSettings;
use super::database::BenchDatabase;
use super::figures::BenchFigures;
use super::load_driver::{BenchInvocation, start_executions};
use super::server::{BenchServer, BenchServerLauncher, WORKFLOWS};
use crate::statistics::BenchLatencies;

const LANES: usize = 64;

/// Executions that are started before the measurement: a server keeps the newest executions in
/// memory, and its caches must be filled.
const WARM_UP_EXECUTIONS: usize = 10_000;

/// How often to check whether the executions have left memory.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How long the eviction may take.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(120);

pub(super) async fn measure_parked(
    place: &BenchDatabase,
    settings: &BenchSettings,
) -> anyhow::Result<BenchFigures> {
    let count = settings.parked_executions;
    settings.print_progress(&format!("parked, {count} of them"));
    let mut store = place.create_store().await?;
    let raw_before = store.measure_commit_rate(settings.yardstick_time).await?;
    let start = BenchServerLauncher::for_store(&settings.host, &store).await?;
    let empty = store.disk_bytes().await?;
    let server = start.spawn_with_workflows(settings.tasks).await?;
    let work = BenchInvocation {
        function: "bench_parked",
        input: RawJson::default(),
    };
    let ahead = WARM_UP_EXECUTIONS.min(count);
    start_executions(&server.client, &work, LANES, ahead).await?;
    wait_for_eviction(&server).await?;
    let (memory, before, begun) = (
        server.resident_bytes(),
        server.read_usage(&store).await?,
        Instant::now(),
    );
    start_executions(&server.client, &work, LANES, count).await?;
    let took = begun.elapsed();
    let used = server.read_usage(&store).await?.usage_since(before);
    wait_for_eviction(&server).await?;
    let grown = server
        .resident_bytes()
        .zip(memory)
        .map(|(after, before)| after.saturating_sub(before));
    let resident = server.resident_bytes();
    server.kill_server()?;
    let disk = store
        .disk_bytes()
        .await?
        .saturating_sub(empty + WORKFLOWS.len() as u64);
    let raw_after = store.measure_commit_rate(settings.yardstick_time).await?;
    drop(store);
    let mut figures = BenchFigures {
        workload: "parked",
        concurrency: LANES,
        unit: "start",
        executions: count,
        units: count as u64,
        took,
        latencies: BenchLatencies::default(),
        used,
        commit_rates: [raw_before, raw_after],
        extra_figures: Vec::new(),
    };
    if let Some((grown, resident)) = grown.zip(resident) {
        figures = figures
            .with_figure(
                "memoryBytesEach",
                "memory each",
                grown as f64 / count as f64,
                "bytes",
            )
            .with_figure("residentBytes", "memory in all", resident as f64, "bytes");
    }
    Ok(figures.with_figure(
        "diskBytesEach",
        "disk each",
        disk as f64 / (ahead + count) as f64,
        "bytes",
    ))
}

/// Waits until the number of executions in memory no longer changes. A server keeps some of the
/// newest in memory; their number is the same before and after.
async fn wait_for_eviction(server: &BenchServer) -> anyhow::Result<()> {
    let (begun, mut last) = (Instant::now(), f64::MAX);
    while begun.elapsed() < EVICTION_TIMEOUT {
        let now = server
            .read_metric("onward_executions_in_memory")
            .await?
            .context("the server has no metric onward_executions_in_memory")?;
        if now == last {
            return Ok(());
        }
        last = now;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    bail!("the executions are still in memory after {EVICTION_TIMEOUT:?}")
}
