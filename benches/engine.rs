//! How fast workflows go on, beside what the same database does with plain one-row commits, measured turn by turn in the
//! same run; how fast one is replayed; and what those that wait cost.
//!
//! `cargo bench -p onward-benches --bench engine [-- --quick] [-- --gate 0.5]`

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use onward_benches::{Options, Report, timed};
use onward_embed::Engine;
use onward_store::Store;
use onward_store_sqlite::Sqlite;
use onward_store_sqlite::yardstick::Yardstick;
use serde_json::json;
use tokio::runtime::Runtime;

/// Workflows and tasks that do nothing but what is measured.
const GUESTS: &[u8] = include_bytes!("../examples/workflows/built/journals.wasm");

const STEPS: usize = 10;

fn main() -> Result<()> {
    let options = Options::from_args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let folder = tempfile::tempdir_in(".")?;
    chains(options, &runtime, folder.path())
}

/// An engine on a new SQLite store, with the guests.
async fn engine(path: &Path) -> Result<Engine> {
    let store: Arc<dyn Store> = Arc::new(Sqlite::open(path, onward_store_sqlite::Options::default())?);
    let engine = Engine::on(store).open().await?;
    engine.deploy(GUESTS, &[]).await?;
    Ok(engine)
}

fn chains(options: Options, runtime: &Runtime, folder: &Path) -> Result<()> {
    let mut report = Report::new("chains of 10 WASM tasks on SQLite, WAL, synchronous FULL", "step", options);
    let yardstick = Yardstick::open(&folder.join("yardstick.db"))?;
    let engine = runtime.block_on(engine(&folder.join("chains.db")))?;
    let parts = [(1, "one chain at a time", 1, 30, 0.6), (2, "64 chains at a time", 64, 1_280, 5.0)];
    for (_, name, width, chains, least) in parts.into_iter().filter(|(number, ..)| options.wants(*number)) {
        let steps = chains * STEPS;
        let commits = steps.min(500);
        let raw = || {
            let time = timed(|| Ok((0..commits).try_for_each(|_| yardstick.commit_row())?))?;
            Ok(time.mul_f64(steps as f64 / commits as f64))
        };
        let work = || timed(|| runtime.block_on(run(&engine, width, chains)));
        report.beside(steps, ("plain one-row commits (yardstick)", raw), (name, work), least)?;
    }
    runtime.block_on(engine.stop())?;
    report.finish()
}

/// Runs so many chains, `width` at a time.
async fn run(engine: &Engine, width: usize, chains: usize) -> Result<()> {
    let lanes = (0..width).map(|_| async move {
        for _ in 0..chains / width {
            let started = engine.start("chain", &json!({ "steps": STEPS }), None).await?;
            let steps: usize = engine.wait(started.execution).await?.context("a chain failed")?;
            anyhow::ensure!(steps == STEPS, "a chain of {steps} steps");
        }
        Ok(())
    });
    futures_util::future::try_join_all(lanes).await.map(drop)
}
