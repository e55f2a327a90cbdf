//! How fast workflows go on, beside what the same database does with plain one-row commits,
//! measured turn by turn in the same run; how fast one is replayed; whether a long one gets slower;
//! and what those that wait cost.
//!
//! `cargo bench -p onward-benches --bench engine [-- --quick] [-- --only 3] [-- --gate 0.5]`

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use onward_benches::{Options, Report, median, timed};
use onward_embed::{Engine, WasmComponentRuntime};
use onward_engine::client::SHARD_COUNT;
use onward_engine::node::ComponentRuntime as _;
use onward_engine::replay::{ReplayOutcome, replay_journal};
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

/// Workflows and tasks that do nothing but what is measured.
const GUESTS: &[u8] = include_bytes!("../examples/workflows/built/journals.wasm");

const STEPS: usize = 10;

fn main() -> Result<()> {
    let options = Options::from_args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    if options.wants(1) || options.wants(2) {
        chains(options, &runtime, folder.path())?;
    }
    if options.wants(3) {
        replays(options, &runtime)?;
    }
    if options.wants(4) {
        long_chain(options, &runtime, folder.path())?;
    }
    if options.wants(5) {
        parked(options, &runtime, folder.path())?;
    }
    Ok(())
}

/// An engine on a new SQLite store, with the guests.
async fn engine(path: &Path, hosts: &[String]) -> Result<Engine> {
    let store: Arc<dyn Store> = Arc::new(SqliteStore::open(
        path,
        onward_store_sqlite::Options::default(),
    )?);
    let engine = Engine::on_store(store).open().await?;
    engine.deploy_component(GUESTS, hosts).await?;
    Ok(engine)
}

fn chains(options: Options, runtime: &Runtime, folder: &Path) -> Result<()> {
    let mut report = Report::new(
        "chains of 10 WASM tasks on SQLite, WAL, synchronous FULL",
        "step",
        options,
    );
    let yardstick = SqliteBaseline::open(&folder.join("yardstick.db"))?;
    let contained = Arc::new(runtime.block_on(engine(&folder.join("contained.db"), &[]))?);
    let reaching = Arc::new(runtime.block_on(engine(
        &folder.join("reaching.db"),
        &["example.org".to_owned()],
    ))?);
    // Until the write-ahead log has its size: one that still grows takes longer to sync, and a
    // store has that behind it soon.
    runtime.block_on(run(&contained, 64, 1_280))?;
    runtime.block_on(run(&reaching, 64, 1_280))?;
    (0..2_000).try_for_each(|_| yardstick.commit_row())?;
    let parts = [
        (1, "one chain at a time", &contained, 1, 30, Some(0.6)),
        (
            1,
            "the same, of tasks that may send requests",
            &reaching,
            1,
            30,
            None,
        ),
        (2, "64 chains at a time", &contained, 64, 1_280, Some(5.0)),
        (
            2,
            "the same, of tasks that may send requests",
            &reaching,
            64,
            1_280,
            None,
        ),
    ];
    for (_, name, engine, width, chains, least) in parts
        .into_iter()
        .filter(|(number, ..)| options.wants(*number))
    {
        let steps = chains * STEPS;
        let commits = steps.min(500);
        let raw = || {
            let time = timed(|| Ok((0..commits).try_for_each(|_| yardstick.commit_row())?))?;
            Ok(time.mul_f64(steps as f64 / commits as f64))
        };
        let work = || timed(|| runtime.block_on(run(engine, width, chains)));
        report.beside(
            steps,
            ("plain one-row commits (yardstick)", raw),
            (name, work),
            least,
        )?;
    }
    for engine in [contained, reaching] {
        let engine = Arc::into_inner(engine).context("the engine is still in use")?;
        runtime.block_on(engine.stop())?;
    }
    report.finish()
}

/// Runs so many chains, `width` at a time.
async fn run(engine: &Arc<Engine>, width: usize, chains: usize) -> Result<()> {
    let mut lanes = JoinSet::new();
    for _ in 0..width {
        lanes.spawn(lane(Arc::clone(engine), chains / width));
    }
    lanes.join_all().await.into_iter().collect()
}

/// One chain after the other, as a handler of requests would run them.
async fn lane(engine: Arc<Engine>, chains: usize) -> Result<()> {
    for _ in 0..chains {
        let started = engine
            .start_execution("chain", &json!({ "steps": STEPS }), None)
            .await?;
        let steps: usize = engine
            .wait_for_output(started.execution)
            .await?
            .context("a chain failed")?;
        anyhow::ensure!(steps == STEPS, "a chain of {steps} steps");
    }
    Ok(())
}

/// A journal of ten thousand events, from its stored form to a guest that waits where it waited.
fn replays(options: Options, runtime: &Runtime) -> Result<()> {
    const EVENTS: usize = 10_000;
    let mut report = Report::new(
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
            .context("the chain is gone")?;
        let events = engine.client().read_journal(started.execution).await?;
        let records = codec::encode_record(started.execution, &events)?;
        println!("{:<44} {:>14}", "events", events.len());
        engine.stop().await?;
        anyhow::Ok((row, records))
    })?;
    let wasm = WasmComponentRuntime::with_defaults()?;
    wasm.read_functions(GUESTS, &[])?;
    let time = median(options, || -> Result<()> {
        let journal = Journal::recover(
            row.execution_id,
            codec::decode_record(row.execution_id, &records)?,
        )?;
        let entry = GuestEntry::from_journal(&row, &journal).context("no start")?;
        let verdict = replay_journal(&journal, &mut *wasm.create_guest(&entry)?)?;
        anyhow::ensure!(
            matches!(verdict, ReplayOutcome::Repeats { .. }),
            "it did not repeat itself: {verdict:?}"
        );
        Ok(())
    });
    let events = codec::decode_record(row.execution_id, &records)?.len();
    report.row(
        "decoded, checked, folded and replayed",
        events,
        time,
        Some(EVENTS as f64 / 0.05),
    );
    report.finish()
}

/// The last steps of a long chain take no longer than the first.
fn long_chain(options: Options, runtime: &Runtime, folder: &Path) -> Result<()> {
    const STEPS: usize = 5_000;
    const PART: usize = 500;
    let mut report = Report::new("one chain of 5,000 WASM tasks on SQLite", "step", options);
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
        let ends = events
            .iter()
            .filter(|it| matches!(it.event, Event::InvokeCompleted { .. }));
        let ends: Vec<i64> = ends.map(|it| it.timestamp.as_micros()).collect();
        let took = |from: usize| (ends[from + PART - 1] - ends[from]) as f64;
        ratios.push(took(STEPS - PART) / took(0));
    }
    ratios.sort_unstable_by(f64::total_cmp);
    runtime.block_on(engine.stop())?;
    report.ratio(
        "last 500 steps against the first 500",
        ratios[ratios.len() / 2],
        1.3,
    );
    report.finish()
}

/// Executions that wait for a signal: what they take in memory and on disk.
fn parked(options: Options, runtime: &Runtime, folder: &Path) -> Result<()> {
    const BEFORE: usize = 10_000;
    let count = if options.is_quick() { 20_000 } else { 100_000 };
    let mut report = Report::new(
        &format!("{count} executions that wait for a signal, on SQLite"),
        "start",
        options,
    );
    let path = folder.join("parked.db");
    let engine = runtime.block_on(engine(&path, &[]))?;
    // What an engine takes by itself, and for those that do not wait yet, does not count.
    runtime.block_on(park(&engine, BEFORE))?;
    let memory = resident()?;
    let time = timed(|| runtime.block_on(start_waiters(&engine, count)))?;
    report.row("started, 64 at a time", count, time, None);
    runtime.block_on(put_aside(&engine))?;
    let grown = resident()?.saturating_sub(memory) as f64;
    println!("{:<44} {:>14}", "MiB of memory in all", resident()? >> 20);
    report.ratio("bytes of memory each", grown / count as f64, 1_024.0);
    runtime.block_on(engine.stop())?;
    report.ratio(
        "bytes on disk each",
        on_disk(&path)? as f64 / (BEFORE + count) as f64,
        2_048.0,
    );
    report.finish()
}

async fn park(engine: &Engine, count: usize) -> Result<()> {
    start_waiters(engine, count).await?;
    put_aside(engine).await
}

async fn start_waiters(engine: &Engine, count: usize) -> Result<()> {
    let lanes = (0..64).map(|lane| async move {
        for _ in (lane..count).step_by(64) {
            engine.start_execution("waiter", &json!({}), None).await?;
        }
        anyhow::Ok(())
    });
    futures_util::future::try_join_all(lanes).await.map(drop)
}

/// Until the last of them waits, and is in the store alone.
async fn put_aside(engine: &Engine) -> Result<()> {
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

/// Memory of this process that is in RAM.
fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .context("no VmRSS")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib << 10)
}

/// The file and what lies beside it.
fn on_disk(path: &Path) -> Result<u64> {
    let names = ["", "-wal", "-shm"].map(|end| format!("{}{end}", path.display()));
    Ok(names
        .iter()
        .filter_map(|name| std::fs::metadata(name).ok())
        .map(|file| file.len())
        .sum())
}
