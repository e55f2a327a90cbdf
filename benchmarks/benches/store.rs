//! Benchmarks run events: durable appends against plain one-row commits on the same database
//! (measured alternately), and the projection of events to snapshots.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use onward_benchmarks::target_report::{TargetOptions, TargetReport, measure_once, median_time_of};
use onward_runs::{RunEventWrite, RunSnapshot, project_from_snapshot};
use onward_store::memory::MemoryStore;
use onward_store::{RunEventQuery, RunStateStore as _, Store};
use onward_store_postgres::PostgresStore;
use onward_store_sqlite::SqliteStore;
use onward_testing::{PostgresCluster, RunEventGenerator};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const SEQUENTIAL_APPENDS: usize = 1_000;
const CONCURRENT_APPENDS: usize = 10_000;
const BATCH: usize = 10_000;
const BATCHES: usize = 10;
const MILLION: usize = 1_000_000;

fn main() -> Result<()> {
    let options = TargetOptions::from_args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    sqlite(options, &runtime, folder.path())?;
    postgres(options, &runtime)?;
    projection(options, &runtime)
}

fn sqlite(options: TargetOptions, runtime: &Runtime, folder: &Path) -> Result<()> {
    let mut report = TargetReport::new(
        "run events on SQLite, WAL, synchronous FULL",
        "event",
        options,
    );
    let baseline =
        onward_store_sqlite::baseline::SqliteBaseline::open(&folder.join("baseline.db"))?;
    let raw = || (0..SEQUENTIAL_APPENDS).try_for_each(|_| baseline.commit_row());
    let mut files = 0;
    let mut open = || -> Result<Arc<dyn Store>> {
        files += 1;
        let path = folder.join(format!("store-{files}.db"));
        Ok(Arc::new(SqliteStore::open(
            &path,
            onward_store_sqlite::Options::default(),
        )?))
    };
    let bench = StoreBench { options, runtime };
    bench.sequential(&mut report, &open()?, raw)?;
    bench.concurrent(&mut report, &open()?);
    bench.batches(&mut report, open, 200_000.0)?;
    report.finish()
}

fn postgres(options: TargetOptions, runtime: &Runtime) -> Result<()> {
    let cluster = PostgresCluster::start()?;
    let mut report = TargetReport::new(
        "run events on Postgres, fsync and synchronous_commit on",
        "event",
        options,
    );
    let baseline = runtime.block_on(onward_store_postgres::baseline::PostgresBaseline::open(
        &cluster.create_database()?,
    ))?;
    let raw = || runtime.block_on(plain_rows(&baseline));
    let open = || -> Result<Arc<dyn Store>> {
        let url = cluster.create_database()?;
        Ok(Arc::new(runtime.block_on(PostgresStore::open(
            &url,
            onward_store_postgres::Options::default(),
        ))?))
    };
    let bench = StoreBench { options, runtime };
    bench.sequential(&mut report, &open()?, raw)?;
    bench.concurrent(&mut report, &open()?);
    bench.batches(&mut report, open, 40_000.0)?;
    report.finish()
}

async fn plain_rows(
    baseline: &onward_store_postgres::baseline::PostgresBaseline,
) -> Result<(), onward_store::Error> {
    for _ in 0..SEQUENTIAL_APPENDS {
        baseline.commit_row().await?;
    }
    Ok(())
}

/// Measures a store of any kind.
struct StoreBench<'a> {
    options: TargetOptions,
    runtime: &'a Runtime,
}

impl StoreBench<'_> {
    /// Appends of one event each; the baseline `raw` commits as many plain rows.
    fn sequential(
        &self,
        report: &mut TargetReport,
        store: &Arc<dyn Store>,
        raw: impl Fn() -> Result<(), onward_store::Error>,
    ) -> Result<()> {
        let mut events = RunEventGenerator::new("sequential");
        let append = || {
            let events = events.next_events(SEQUENTIAL_APPENDS);
            measure_once(|| self.runtime.block_on(append_sequentially(store, events)))
        };
        let raw = || measure_once(|| Ok(raw()?));
        let (baseline, name) = (
            "plain one-row commits (baseline)",
            "one event per append, sequential",
        );
        report.compare_with_baseline(
            SEQUENTIAL_APPENDS,
            (baseline, raw),
            (name, append),
            Some(0.6),
        )
    }

    fn concurrent(&self, report: &mut TargetReport, store: &Arc<dyn Store>) {
        let mut events = RunEventGenerator::new("concurrent");
        let concurrent = median_time_of(
            self.options,
            || events.next_events(CONCURRENT_APPENDS),
            |events| {
                self.runtime
                    .block_on(append_concurrently(store, &events, 64))
            },
        );
        report.add_row(
            "one event per append, 64 concurrent",
            CONCURRENT_APPENDS,
            concurrent,
            None,
        );
    }

    /// Appends to a new store each time, then to a store with a million events: ids are random, so
    /// inserts touch the whole unique index, and cost more as it grows.
    fn batches(
        &self,
        report: &mut TargetReport,
        mut open: impl FnMut() -> Result<Arc<dyn Store>>,
        target: f64,
    ) -> Result<()> {
        let mut events = RunEventGenerator::new("batch");
        let mut times = Vec::new();
        for _ in 0..=self.options.runs {
            let (store, batches) = (open()?, batches(&mut events, BATCHES));
            times.push(measure_once(|| {
                self.runtime.block_on(append_batches(&store, batches))
            })?);
        }
        times.sort_unstable();
        report.add_row(
            "10,000 events per append, 4 concurrent",
            BATCH * BATCHES,
            times[times.len() / 2],
            Some(target),
        );
        let store = open()?;
        self.runtime.block_on(append_batches(
            &store,
            batches(&mut events, MILLION / BATCH),
        ))?;
        let full = median_time_of(
            TargetOptions {
                runs: 3,
                ..self.options
            },
            || batches(&mut events, BATCHES),
            |batches| self.runtime.block_on(append_batches(&store, batches)),
        );
        report.add_row(
            "  with a million events stored",
            BATCH * BATCHES,
            full,
            None,
        );
        Ok(())
    }
}

fn batches(events: &mut RunEventGenerator, count: usize) -> Vec<Vec<RunEventWrite>> {
    (0..count).map(|_| events.next_events(BATCH)).collect()
}

async fn append_sequentially(store: &Arc<dyn Store>, events: Vec<RunEventWrite>) -> Result<()> {
    let store = Arc::clone(store);
    // Spawned as a task, as in a server, because the caller of `block_on` is not a thread of the
    // runtime.
    tokio::spawn(async move {
        for event in events {
            store.append_event(event).await?;
        }
        Ok(())
    })
    .await?
}

async fn append_concurrently(
    store: &Arc<dyn Store>,
    events: &[RunEventWrite],
    width: usize,
) -> Result<()> {
    let mut tasks = JoinSet::new();
    for chunk in events.chunks(events.len().div_ceil(width)) {
        let (store, chunk) = (Arc::clone(store), chunk.to_vec());
        tasks.spawn(async move {
            for event in chunk {
                store.append_event(event).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

async fn append_batches(store: &Arc<dyn Store>, batches: Vec<Vec<RunEventWrite>>) -> Result<()> {
    let mut tasks = JoinSet::new();
    for batch in batches {
        if tasks.len() == 4
            && let Some(done) = tasks.join_next().await
        {
            done??;
        }
        let store = Arc::clone(store);
        tasks.spawn(async move { store.append_events(batch).await.map(drop) });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}

fn projection(options: TargetOptions, runtime: &Runtime) -> Result<()> {
    const EVENTS: usize = 100_000;
    let memory = MemoryStore::default();
    let events = RunEventGenerator::new("project").next_events(EVENTS);
    let runs: Vec<_> = events
        .iter()
        .step_by(1_000)
        .map(|event| event.run_id.clone())
        .collect();
    runtime.block_on(memory.append_events(events))?;
    let mut logs = Vec::new();
    for run in runs {
        logs.push((
            run.clone(),
            runtime.block_on(memory.fetch_events(&run, RunEventQuery::default()))?,
        ));
    }
    let mut report = TargetReport::new("projection of run events", "event", options);
    let copied = median_time_of(options, || (), |()| logs.clone());
    report.add_row("copying the events (baseline)", EVENTS, copied, None);
    let project = |()| -> Vec<RunSnapshot> {
        logs.iter()
            .map(|(run, log)| project_from_snapshot(RunSnapshot::new(run.clone()), log))
            .collect()
    };
    report.add_row(
        "projecting events to snapshots",
        EVENTS,
        median_time_of(options, || (), project),
        Some(1_000_000.0),
    );
    report.finish()
}
