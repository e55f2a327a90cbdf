//! Benchmarks the engine: steps per second against plain one-row commits on the same database
//! (measured alternately), replay of a journal, the last steps of a long workflow against its first
//! ones, and the memory and disk space of waiting executions.
//!
//! `cargo bench -p onward-benchmarks --bench engine [-- --quick] [-- --only 3] [-- --gate 0.5]`

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use onward_benchmarks::process_usage::resident_bytes;
use onward_benchmarks::statistics::median_figure;
use onward_benchmarks::target_report::{TargetOptions, TargetReport, measure_once, median_time};
use onward_diagnostics::replay::{ReplayOutcome, replay_journal};
use onward_embed::{Engine, WasmComponentRuntime};
use onward_engine::client::SHARD_COUNT;
use onward_engine::node::ComponentRuntime as _;
use onward_engine::shard::GuestEntry;
use onward_journal::{Event, Journal, codec};
use onward_store::memory::MemoryStore;
use onward_store::tables::ExecutionRow;
use onward_store::{RecordReader as _, ShardId, Store, TableScan};
use onward_store_sqlite::SqliteStore;
use onward_store_sqlite::baseline::SqliteBaseline;
use serde_json::json;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

/// Workflows and tasks without work of their own.
const GUESTS: &[u8] = include_bytes!("../../examples/workflows/built/journals.wasm");

const STEPS: usize = 10;

fn main() -> Result<()> {
    let options = TargetOptions::from_args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    if options.includes_part(1) || options.includes_part(2) {
        chains(options, &runtime, folder.path())?;
    }
    if options.includes_part(3) {
        replays(options, &runtime)?;
    }
    if options.includes_part(4) {
        long_chain(options, &runtime, folder.path())?;
    }
    if options.includes_part(5) {
        waiting(options, &runtime, folder.path())?;
    }
    Ok(())
}

/// Opens an engine on a new SQLite store and deploys the guests.
async fn engine(path: &Path, hosts: &[String]) -> Result<Engine> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(
        path,
        onward_store_sqlite::Options::default(),
    )?);
    let engine = Engine::on_store(store).open().await?;
    engine.deploy_component(GUESTS, hosts).await?;
    Ok(engine)
}

fn chains(options: TargetOptions, runtime: &Runtime, folder: &Path) -> Result<()> {
    let mut report = TargetReport::new(
        "chains of 10 WASM tasks on SQLite, WAL, synchronous FULL",
        "step",
        options,
    );
    let baseline = SqliteBaseline::open(&folder.join("baseline.db"))?;
    let isolated = Arc::new(runtime.block_on(engine(&folder.join("isolated.db"), &[]))?);
    let outgoing = Arc::new(runtime.block_on(engine(
        &folder.join("outgoing.db"),
        &["example.org".to_owned()],
    ))?);
    // Warms up until the write-ahead log has its final size: syncing a growing file takes longer,
    // and a store in production is past that phase.
    runtime.block_on(run(&isolated, 64, 1_280))?;
    runtime.block_on(run(&outgoing, 64, 1_280))?;
    (0..2_000).try_for_each(|_| baseline.commit_row())?;
    let parts = [
        (1, "one chain at a time", &isolated, 1, 30, Some(0.6)),
        (
            1,
            "  with tasks that may send requests",
            &outgoing,
            1,
            30,
            None,
        ),
        (2, "64 chains at a time", &isolated, 64, 1_280, Some(5.0)),
        (
            2,
            "  with tasks that may send requests",
            &outgoing,
            64,
            1_280,
            None,
        ),
    ];
    for (_, name, engine, concurrency, chains, min_ratio) in parts
        .into_iter()
        .filter(|(number, ..)| options.includes_part(*number))
    {
        let steps = chains * STEPS;
        let commits = steps.min(500);
        let raw = || {
            let time = measure_once(|| Ok((0..commits).try_for_each(|_| baseline.commit_row())?))?;
            Ok(time.mul_f64(steps as f64 / commits as f64))
        };
        let work = || measure_once(|| runtime.block_on(run(engine, concurrency, chains)));
        report.compare_with_baseline(
            steps,
            ("plain one-row commits (baseline)", raw),
            (name, work),
            min_ratio,
        )?;
    }
    for engine in [isolated, outgoing] {
        let engine = Arc::into_inner(engine).context("the engine is still in use")?;
        runtime.block_on(engine.stop())?;
    }
    report.finish()
}

/// Runs `chains` executions of the workflow `chain`, `concurrency` at a time.
async fn run(engine: &Arc<Engine>, concurrency: usize, chains: usize) -> Result<()> {
    let mut clients = JoinSet::new();
    for _ in 0..concurrency {
        clients.spawn(run_in_sequence(Arc::clone(engine), chains / concurrency));
    }
    clients.join_all().await.into_iter().collect()
}

/// Runs executions one at a time, as a request handler would.
async fn run_in_sequence(engine: Arc<Engine>, chains: usize) -> Result<()> {
    for _ in 0..chains {
        let started = engine
            .start_execution("chain", &json!({ "steps": STEPS }), None)
            .await?;
        let steps: usize = engine
            .wait_for_output(started.execution)
            .await?
            .context("a chain failed")?;
        anyhow::ensure!(steps == STEPS, "expected {STEPS} steps, got {steps}");
    }
    Ok(())
}

/// Replays a journal of ten thousand events, from its stored form to the final state of the guest.
fn replays(options: TargetOptions, runtime: &Runtime) -> Result<()> {
    const EVENTS: usize = 10_000;
    let mut report = TargetReport::new(
        "replay of a chain of WASM tasks from its stored journal",
        "event",
        options,
    );
    let (row, records) = runtime.block_on(async {
        let engine = Engine::on_store(Arc::new(MemoryStore::default()))
            .open()
            .await?;
        engine.deploy_component(GUESTS, &[]).await?;
        let started = engine
            .start_execution("chain", &json!({ "steps": EVENTS / 5 }), None)
            .await?;
        engine
            .wait_for_result(started.execution)
            .await?
            .context("the chain failed")?;
        let row = engine
            .client()
            .find_execution(started.execution)
            .await?
            .context("the execution does not exist")?;
        let events = engine.client().read_journal(started.execution).await?;
        let records = codec::encode_record(started.execution, &events)?;
        println!("{:<44} {:>14}", "events", events.len());
        engine.stop().await?;
        anyhow::Ok((row, records))
    })?;
    let wasm = WasmComponentRuntime::with_defaults()?;
    wasm.read_functions(GUESTS, &[])?;
    let time = median_time(options, || -> Result<()> {
        let journal = Journal::recover(
            row.execution_id,
            codec::decode_record(row.execution_id, &records)?,
        )?;
        let entry =
            GuestEntry::from_journal(&row, &journal).context("the journal has no start event")?;
        let outcome = replay_journal(&journal, &mut *wasm.create_guest(&entry)?)?;
        anyhow::ensure!(
            matches!(outcome, ReplayOutcome::Repeats { .. }),
            "the replay diverged: {outcome:?}"
        );
        Ok(())
    });
    let events = codec::decode_record(row.execution_id, &records)?.len();
    report.add_row(
        "decode, validate and replay",
        events,
        time,
        Some(EVENTS as f64 / 0.05),
    );
    report.finish()
}

/// Checks that the last steps of a long workflow take no longer than the first.
fn long_chain(options: TargetOptions, runtime: &Runtime, folder: &Path) -> Result<()> {
    const STEPS: usize = 5_000;
    const PART: usize = 500;
    let mut report = TargetReport::new("one chain of 5,000 WASM tasks on SQLite", "step", options);
    let engine = runtime.block_on(engine(&folder.join("long.db"), &[]))?;
    let mut ratios = Vec::new();
    for _ in 0..options.runs {
        let events = runtime.block_on(async {
            let started = engine
                .start_execution("chain", &json!({ "steps": STEPS }), None)
                .await?;
            engine
                .wait_for_result(started.execution)
                .await?
                .context("the chain failed")?;
            anyhow::Ok(engine.client().read_journal(started.execution).await?)
        })?;
        let completions = events
            .iter()
            .filter(|it| matches!(it.event, Event::InvokeCompleted { .. }));
        let completed_at: Vec<i64> = completions.map(|it| it.timestamp.as_micros()).collect();
        let elapsed = |from: usize| (completed_at[from + PART - 1] - completed_at[from]) as f64;
        ratios.push(elapsed(STEPS - PART) / elapsed(0));
    }
    runtime.block_on(engine.stop())?;
    report.add_ratio(
        "last 500 steps against the first 500",
        median_figure(ratios),
        1.3,
    );
    report.finish()
}

/// Measures memory and disk space of executions that wait for a signal.
fn waiting(options: TargetOptions, runtime: &Runtime, folder: &Path) -> Result<()> {
    const WARM_UP: usize = 10_000;
    let count = if options.is_quick() { 20_000 } else { 100_000 };
    let mut report = TargetReport::new(
        &format!("{count} executions that wait for a signal, on SQLite"),
        "start",
        options,
    );
    let path = folder.join("waiting.db");
    let engine = runtime.block_on(engine(&path, &[]))?;
    // The memory of the engine itself, and of executions that still run, is not counted.
    runtime.block_on(start_and_suspend(&engine, WARM_UP))?;
    let memory = resident_memory()?;
    let time = measure_once(|| runtime.block_on(start_waiters(&engine, count)))?;
    report.add_row("started, 64 at a time", count, time, None);
    runtime.block_on(wait_until_suspended(&engine))?;
    let grown = resident_memory()?.saturating_sub(memory) as f64;
    println!(
        "{:<44} {:>14}",
        "MiB of memory, total",
        resident_memory()? >> 20
    );
    report.add_ratio(
        "bytes of memory per execution",
        grown / count as f64,
        1_024.0,
    );
    runtime.block_on(engine.stop())?;
    report.add_ratio(
        "bytes on disk per execution",
        database_size(&path)? as f64 / (WARM_UP + count) as f64,
        2_048.0,
    );
    report.finish()
}

async fn start_and_suspend(engine: &Engine, count: usize) -> Result<()> {
    start_waiters(engine, count).await?;
    wait_until_suspended(engine).await
}

async fn start_waiters(engine: &Engine, count: usize) -> Result<()> {
    let starters = (0..64).map(|starter| async move {
        for _ in (starter..count).step_by(64) {
            engine.start_execution("waiter", &json!({}), None).await?;
        }
        anyhow::Ok(())
    });
    futures_util::future::try_join_all(starters).await.map(drop)
}

/// Waits until all executions are suspended and none is in memory.
async fn wait_until_suspended(engine: &Engine) -> Result<()> {
    while engine.executions_in_memory() > 0 || is_any_due(engine).await? {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    Ok(())
}

async fn is_any_due(engine: &Engine) -> Result<bool> {
    let store = engine.client().store();
    let now = store.now().await?;
    for shard in (0..SHARD_COUNT).map(ShardId) {
        let due = TableScan::by_index::<ExecutionRow>(ExecutionRow::BY_WAKE)
            .where_equal(&shard)
            .where_at_most(&now)
            .with_limit(1);
        let rows: Vec<(ExecutionRow, u64)> = store.list_records(due).await?;
        if !rows.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

fn resident_memory() -> Result<u64> {
    resident_bytes(std::process::id()).context("no VmRSS in /proc/self/status")
}

/// Returns the size of the database with its write-ahead log, in bytes.
fn database_size(path: &Path) -> Result<u64> {
    let names = ["", "-wal", "-shm"].map(|end| format!("{}{end}", path.display()));
    Ok(names
        .iter()
        .filter_map(|name| std::fs::metadata(name).ok())
        .map(|file| file.len())
        .sum())
}
