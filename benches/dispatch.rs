//! How many items of a campaign a second are reserved, called for and settled, with a provider that
//! takes everything at once: two durable changes an item, in jobs of a hundred; beside what the
//! same database does with plain one-row commits. And whether a job is found and locked as quickly
//! among many as among few.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use onward_benches::{Options, Report, median_of};
use onward_campaign_dispatch::bench_load::DispatchLoad;
use onward_store::Store;
use onward_store_postgres::PostgresStore;
use onward_store_sqlite::SqliteStore;
use onward_testing::PostgresCluster;
use tokio::runtime::Runtime;

const PLAIN: usize = 1_000;

/// Jobs at a time.
const LANES: usize = 8;

/// Items that wait while jobs are claimed: few, and many.
const WAITING: [u32; 2] = [1_000, 1_000_000];

/// Jobs that are claimed: as many as few items have.
const CLAIMS: usize = 10;

/// Claims take so much longer at most, among a thousand times as many.
const CLAIMS_RATIO_MAX: f64 = 2.0;

fn main() -> Result<()> {
    let options = Options::from_args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    if options.wants(1) {
        sqlite(options, &runtime, folder.path())?;
    }
    if options.wants(2) {
        postgres(options, &runtime)?;
    }
    Ok(())
}

fn sqlite(options: Options, runtime: &Runtime, folder: &Path) -> Result<()> {
    let mut report = Report::new(
        "campaigns on SQLite, WAL, synchronous FULL",
        "item",
        options,
    );
    let yardstick =
        onward_store_sqlite::baseline::SqliteBaseline::open(&folder.join("yardstick.db"))?;
    let plain = median_of(
        options,
        || (),
        |()| (0..PLAIN).try_for_each(|_| yardstick.commit_row()),
    );
    report.row("plain one-row commits (yardstick)", PLAIN, plain, None);
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

fn postgres(options: Options, runtime: &Runtime) -> Result<()> {
    let cluster = PostgresCluster::start()?;
    let mut report = Report::new(
        "campaigns on Postgres, fsync and synchronous_commit on",
        "item",
        options,
    );
    let yardstick = runtime.block_on(onward_store_postgres::baseline::PostgresBaseline::open(
        &cluster.create_database()?,
    ))?;
    let rows = async || {
        for _ in 0..PLAIN {
            yardstick.commit_row().await?;
        }
        Ok::<_, onward_store::Error>(())
    };
    let plain = median_of(options, || (), |()| runtime.block_on(rows()));
    report.row("plain one-row commits (yardstick)", PLAIN, plain, None);
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

/// A campaign after the other, each deployed before the clock runs.
fn rate(
    options: Options,
    runtime: &Runtime,
    report: &mut Report,
    store: Arc<dyn Store>,
    target: f64,
) -> Result<()> {
    let items = if options.is_quick() { 20_000 } else { 100_000 };
    let load = DispatchLoad::new(store);
    let mut times = Vec::new();
    for _ in 0..options.runs.min(5) {
        let run = runtime.block_on(load.deploy_run(items))?;
        times.push(runtime.block_on(load.dispatch_run(&run, LANES))?.total);
    }
    report.row(
        "reserved, called for and settled",
        items as usize,
        median(times),
        Some(target),
    );
    Ok(())
}

/// One job after the other, of campaigns that wait whole; in turn, so that what slows the machine
/// down slows both.
fn claims(runtime: &Runtime, report: &mut Report, stores: [Arc<dyn Store>; 2]) -> Result<()> {
    let loads = stores.map(DispatchLoad::new);
    for (load, items) in loads.iter().zip(WAITING) {
        runtime.block_on(load.deploy_run(items))?;
    }
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..CLAIMS {
        for (load, times) in loads.iter().zip(&mut times) {
            times.push(
                runtime
                    .block_on(load.measure_claim())?
                    .context("no job was found")?,
            );
        }
    }
    let medians = times.map(|times| median(times).as_secs_f64());
    for (median, items) in medians.into_iter().zip(WAITING) {
        println!(
            "{:<44} {:>14.0} µs",
            format!("a job is claimed while {items} items wait"),
            median * 1e6
        );
    }
    report.ratio(
        "  many beside few",
        medians[1] / medians[0],
        CLAIMS_RATIO_MAX,
    );
    Ok(())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}
