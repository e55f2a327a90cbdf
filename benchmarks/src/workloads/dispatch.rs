//! `dispatch`: throughput of campaign items that the dispatcher reserves, sends and settles in jobs
//! of 100, with a provider that accepts everything at once. Also measures how long it takes to
//! claim a job while few and while many items wait.
//!
//! The dispatcher runs in this process, so the CPU time of this process covers both the dispatcher
//! and the driver.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use onward_store::StorePolicy;
use tokio::sync::OnceCell;

use super::BenchSettings;
use super::database::{BenchDatabase, BenchStore};
use super::figures::{BenchFigures, BenchUsage};
use crate::dispatch_load::DispatchLoad;
use crate::process_usage;
use crate::statistics::{BenchLatencies, median_duration};

/// Number of waiting items in the small claim measurement.
const FEW_ITEMS: u32 = 1_000;

/// Number of jobs that are claimed: all jobs of the small measurement.
const CLAIM_COUNT: usize = 10;

/// The warm-up dispatches this fraction of the measured items.
const WARM_UP_DIVISOR: u32 = 10;

pub(super) async fn measure_dispatch(
    place: &BenchDatabase,
    settings: &BenchSettings,
    lanes: usize,
) -> anyhow::Result<BenchFigures> {
    settings.print_progress(&format!("dispatch, {lanes} jobs at a time"));
    let figures = measure_item_rate(place, settings, lanes).await?;
    let (few, many) = (
        measure_claim(place, settings, FEW_ITEMS).await?,
        measure_claim(place, settings, settings.waiting_items).await?,
    );
    let micros = |took: Duration| took.as_secs_f64() * 1e6;
    Ok(figures
        .with_figure(
            "claimAmongFewUs",
            &format!("a job claimed, {FEW_ITEMS} items wait"),
            micros(few),
            "µs",
        )
        .with_figure(
            "claimAmongManyUs",
            &format!("a job claimed, {} wait", settings.waiting_items),
            micros(many),
            "µs",
        )
        .with_figure(
            "waitingItems",
            "items that wait, when many do",
            f64::from(settings.waiting_items),
            "items",
        ))
}

async fn measure_item_rate(
    place: &BenchDatabase,
    settings: &BenchSettings,
    lanes: usize,
) -> anyhow::Result<BenchFigures> {
    let commits = transaction_counter().await?;
    let mut store = place.create_store().await?;
    let load = DispatchLoad::new(
        onward_embed::store::open_store(&store.url, StorePolicy::default()).await?,
    )?;
    let before = load
        .deploy_run((settings.dispatched_items / WARM_UP_DIVISOR).max(1))
        .await?;
    load.dispatch_run(&before, lanes).await?;
    let run = load.deploy_run(settings.dispatched_items).await?;
    let raw_before = store.measure_commit_rate(settings.yardstick_time).await?;
    let before = read_own_usage(&store, commits).await?;
    let took = load.dispatch_run(&run, lanes).await?;
    let used = read_own_usage(&store, commits).await?.usage_since(before);
    let raw_after = store.measure_commit_rate(settings.yardstick_time).await?;
    Ok(BenchFigures {
        workload: "dispatch",
        concurrency: lanes,
        unit: "item",
        executions: took.jobs.len(),
        units: settings.dispatched_items.into(),
        took: took.total,
        latencies: BenchLatencies::new(took.jobs),
        used,
        commit_rates: [raw_before, raw_after],
        extra_figures: Vec::new(),
    })
}

/// Returns the median time to find a job and lock it durably while `waiting` items wait.
async fn measure_claim(
    place: &BenchDatabase,
    settings: &BenchSettings,
    waiting: u32,
) -> anyhow::Result<Duration> {
    settings.print_progress(&format!("dispatch, jobs among {waiting} items that wait"));
    let store = place.create_store().await?;
    let load = DispatchLoad::new(
        onward_embed::store::open_store(&store.url, StorePolicy::default()).await?,
    )?;
    load.deploy_run(waiting).await?;
    let mut times = Vec::new();
    while times.len() < CLAIM_COUNT
        && let Some(took) = load.measure_claim().await?
    {
        times.push(took);
    }
    ensure!(
        times.len() == CLAIM_COUNT,
        "{} jobs were found of {CLAIM_COUNT}",
        times.len()
    );
    Ok(median_duration(times))
}

/// Returns the metrics recorder that counts the store transactions of this process. It is installed
/// once per process.
async fn transaction_counter() -> anyhow::Result<&'static PrometheusHandle> {
    static COUNTER: OnceCell<PrometheusHandle> = OnceCell::const_new();
    COUNTER
        .get_or_try_init(async || {
            PrometheusBuilder::new()
                .install_recorder()
                .context("cannot install the metrics recorder")
        })
        .await
}

/// Reads the resources that this process has used so far.
async fn read_own_usage(
    store: &BenchStore,
    commits: &PrometheusHandle,
) -> anyhow::Result<BenchUsage> {
    let process = std::process::id();
    let written_bytes = match store.log_bytes().await? {
        Some(bytes) => Some(bytes),
        None => process_usage::written_bytes(process),
    };
    let transactions =
        super::server::parse_metric(&commits.render(), "onward_store_transactions_total");
    Ok(BenchUsage {
        cpu: process_usage::cpu_time(process),
        driver_cpu: None,
        written_bytes,
        commits: transactions.map(|it| it as u64),
    })
}
