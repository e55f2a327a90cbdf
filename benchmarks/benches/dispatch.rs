//! Benchmarks campaign dispatch: items reserved, sent and settled per second, with a provider that
//! accepts everything at once. Each item needs two durable writes; jobs have a hundred items. The
//! baseline is plain one-row commits on the same database. Also checks that claiming a job does not
//! become slower with the number of queued items.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use onward_benchmarks::dispatch_load::DispatchLoad;
use onward_benchmarks::statistics::median_duration;
use onward_benchmarks::target_report::{TargetOptions, TargetReport, median_time_of};
use onward_store::Store;
use onward_store_postgres::PostgresStore;
use onward_store_sqlite::SqliteStore;
use onward_testing::PostgresCluster;
use tokio::runtime::Runtime;

const PLAIN: usize = 1_000;

/// Concurrent jobs.
const CONCURRENCY: usize = 8;

/// Numbers of queued items while jobs are claimed.
const QUEUED_ITEMS: [u32; 2] = [1_000, 1_000_000];

/// Number of claimed jobs: all jobs of the smaller number of items.
const CLAIMS: usize = 10;

/// Upper limit of the claim time with the larger number of items, relative to the smaller one.
const CLAIMS_RATIO_MAX: f64 = 2.0;

fn main() -> Result<()> {
    let options = TargetOptions::from_args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    if options.includes_part(1) {
        sqlite(options, &runtime, folder.path())?;
    }
    if options.includes_part(2) {
        postgres(options, &runtime)?;
    }
    Ok(())
}

fn sqlite(options: TargetOptions, runtime: &Runtime, folder: &Path) -> Result<()> {
    let mut report = TargetReport::new(
        "campaigns on SQLite, WAL, synchronous FULL",
        "item",
        options,
    );
    let baseline =
        onward_store_sqlite::baseline::SqliteBaseline::open(&folder.join("baseline.db"))?;
    let plain = median_time_of(
        options,
        || (),
        |()| (0..PLAIN).try_for_each(|_| baseline.commit_row()),
    );
    report.add_row("plain one-row commits (baseline)", PLAIN, plain, None);
    let open = |name: &str| -> Result<Arc<dyn Store>> {
        Ok(Arc::new(SqliteStore::open(
            &folder.join(name),
            onward_store_sqlite::Options::default(),
        )?))
    };
    rate(options, runtime, &mut report, open("store.db")?, 30_000.0)?;
    claims(runtime, &mut report, [open("few.db")?, open("many.db")?])?;
    report.finish()
}

fn postgres(options: TargetOptions, runtime: &Runtime) -> Result<()> {
    let cluster = PostgresCluster::start()?;
    let mut report = TargetReport::new(
        "campaigns on Postgres, fsync and synchronous_commit on",
        "item",
        options,
    );
    let baseline = runtime.block_on(onward_store_postgres::baseline::PostgresBaseline::open(
        &cluster.create_database()?,
    ))?;
    let rows = async || {
        for _ in 0..PLAIN {
            baseline.commit_row().await?;
        }
        Ok::<_, onward_store::Error>(())
    };
    let plain = median_time_of(options, || (), |()| runtime.block_on(rows()));
    report.add_row("plain one-row commits (baseline)", PLAIN, plain, None);
    let open = || -> Result<Arc<dyn Store>> {
        let options = onward_store_postgres::Options::default();
        Ok(Arc::new(runtime.block_on(PostgresStore::open(
            &cluster.create_database()?,
            options,
        ))?))
    };
    rate(options, runtime, &mut report, open()?, 15_000.0)?;
    claims(runtime, &mut report, [open()?, open()?])?;
    report.finish()
}

/// Dispatches campaigns one at a time; deployment is not measured.
fn rate(
    options: TargetOptions,
    runtime: &Runtime,
    report: &mut TargetReport,
    store: Arc<dyn Store>,
    target: f64,
) -> Result<()> {
    let items = if options.is_quick() { 20_000 } else { 100_000 };
    let load = DispatchLoad::new(store)?;
    let mut times = Vec::new();
    for _ in 0..options.runs.min(5) {
        let run = runtime.block_on(load.deploy_run(items))?;
        times.push(
            runtime
                .block_on(load.dispatch_run(&run, CONCURRENCY))?
                .total,
        );
    }
    report.add_row(
        "reserved, sent and settled",
        items as usize,
        median_duration(times),
        Some(target),
    );
    Ok(())
}

/// Claims one job at a time, alternately from both stores, so that a temporary slowdown of the
/// machine affects both.
fn claims(runtime: &Runtime, report: &mut TargetReport, stores: [Arc<dyn Store>; 2]) -> Result<()> {
    let [few, many] = stores;
    let loads = [DispatchLoad::new(few)?, DispatchLoad::new(many)?];
    for (load, items) in loads.iter().zip(QUEUED_ITEMS) {
        runtime.block_on(load.deploy_run(items))?;
    }
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..CLAIMS {
        for (load, times) in loads.iter().zip(&mut times) {
            times.push(
                runtime
                    .block_on(load.measure_claim())?
                    .context("no job to claim")?,
            );
        }
    }
    let medians = times.map(|times| median_duration(times).as_secs_f64());
    for (median, items) in medians.into_iter().zip(QUEUED_ITEMS) {
        println!(
            "{:<44} {:>14.0} µs",
            format!("claim of a job, {items} items queued"),
            median * 1e6
        );
    }
    report.add_ratio("  ratio", medians[1] / medians[0], CLAIMS_RATIO_MAX);
    Ok(())
}
