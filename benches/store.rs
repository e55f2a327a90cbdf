//! How fast run events become durable, beside what the same database does with plain one-row
//! commits, measured turn by turn in the same run; and how fast they reduce to snapshots.

use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use onward_benches::{Options, Report, median_of, timed};
use onward_runs::{RunEventWrite, RunSnapshot, project_from_snapshot};
use onward_store::memory::MemoryStore;
use onward_store::{RunEventQuery, RunStateStore as _, Store};
use onward_store_postgres::PostgresStore;
use onward_store_sqlite::SqliteStore;
use onward_testing::{PostgresCluster, RunEventGenerator};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

const SINGLE: usize = 1_000;
const TOGETHER: usize = 10_000;
const BATCH: usize = 10_000;
const BATCHES: usize = 10;
const MILLION: usize = 1_000_000;

fn main() -> Result<()> {
    let options = Options::from_args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    sqlite(options, &runtime, folder.path())?;
    postgres(options, &runtime)?;
    projection(options, &runtime)
}

fn sqlite(options: Options, runtime: &Runtime, folder: &Path) -> Result<()> {
    let mut report = Report::new(
        "run events on SQLite, WAL, synchronous FULL",
        "event",
        options,
    );
    let yardstick =
        onward_store_sqlite::baseline::SqliteBaseline::open(&folder.join("yardstick.db"))?;
    let raw = || (0..SINGLE).try_for_each(|_| yardstick.commit_row());
    let mut files = 0;
    let mut open = || -> Result<Arc<dyn Store>> {
        files += 1;
        let path = folder.join(format!("store-{files}.db"));
        Ok(Arc::new(SqliteStore::open(
            &path,
            onward_store_sqlite::Options::default(),
        )?))
    };
    let bench = Bench { options, runtime };
    bench.singles(&mut report, &open()?, raw)?;
    bench.together(&mut report, &open()?);
    bench.batches(&mut report, open, 200_000.0)?;
    report.finish()
}

fn postgres(options: Options, runtime: &Runtime) -> Result<()> {
    let cluster = PostgresCluster::start()?;
    let mut report = Report::new(
        "run events on Postgres, fsync and synchronous_commit on",
        "event",
        options,
    );
    let yardstick = runtime.block_on(onward_store_postgres::baseline::PostgresBaseline::open(
        &cluster.create_database()?,
    ))?;
    let raw = || runtime.block_on(plain_rows(&yardstick));
    let open = || -> Result<Arc<dyn Store>> {
        let url = cluster.create_database()?;
        Ok(Arc::new(runtime.block_on(PostgresStore::open(
            &url,
            onward_store_postgres::Options::default(),
        ))?))
    };
    let bench = Bench { options, runtime };
    bench.singles(&mut report, &open()?, raw)?;
    bench.together(&mut report, &open()?);
    bench.batches(&mut report, open, 40_000.0)?;
    report.finish()
}

async fn plain_rows(
    yardstick: &onward_store_postgres::baseline::PostgresBaseline,
) -> Result<(), onward_store::Error> {
    for _ in 0..SINGLE {
        yardstick.commit_row().await?;
    }
    Ok(())
}

/// How a store is measured, whichever it is.
struct Bench<'a> {
    options: Options,
    runtime: &'a Runtime,
}

impl Bench<'_> {
    /// One event an append, beside `raw`, which commits as many plain rows.
    fn singles(
        &self,
        report: &mut Report,
        store: &Arc<dyn Store>,
        raw: impl Fn() -> Result<(), onward_store::Error>,
    ) -> Result<()> {
        let mut events = RunEventGenerator::new("single");
        let append = || {
            let events = events.next_events(SINGLE);
            timed(|| self.runtime.block_on(one_by_one(store, events)))
        };
        let raw = || timed(|| Ok(raw()?));
        let (yardstick, name) = (
            "plain one-row commits (yardstick)",
            "one event an append, one after the other",
        );
        report.beside(SINGLE, (yardstick, raw), (name, append), Some(0.6))
    }

    fn together(&self, report: &mut Report, store: &Arc<dyn Store>) {
        let mut events = RunEventGenerator::new("together");
        let together = median_of(
            self.options,
            || events.next_events(TOGETHER),
            |events| self.runtime.block_on(at_once(store, &events, 64)),
        );
        report.row(
            "one event an append, 64 at a time",
            TOGETHER,
            together,
            None,
        );
    }

    /// Into a store that is new each time, and then into one that holds a million events: ids are
    /// random, so the tree that keeps them unique is touched all over, and costs more the larger it
    /// is.
    fn batches(
        &self,
        report: &mut Report,
        mut open: impl FnMut() -> Result<Arc<dyn Store>>,
        target: f64,
    ) -> Result<()> {
        let mut events = RunEventGenerator::new("batch");
        let mut times = Vec::new();
        for _ in 0..=self.options.runs {
            let (store, batches) = (open()?, batches(&mut events, BATCHES));
            times.push(timed(|| {
                self.runtime.block_on(in_batches(&store, batches))
            })?);
        }
        times.sort_unstable();
        report.row(
            "10,000 events an append, 4 at a time",
            BATCH * BATCHES,
            times[times.len() / 2],
            Some(target),
        );
        let store = open()?;
        self.runtime
            .block_on(in_batches(&store, batches(&mut events, MILLION / BATCH)))?;
        let full = median_of(
            Options {
                runs: 3,
                ..self.options
            },
            || batches(&mut events, BATCHES),
            |batches| self.runtime.block_on(in_batches(&store, batches)),
        );
        report.row(
            "  the same beside a million others",
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

async fn one_by_one(store: &Arc<dyn Store>, events: Vec<RunEventWrite>) -> Result<()> {
    let store = Arc::clone(store);
    // On a task of its own, as a server would: the caller of `block_on` is not one of the runtime's
    // threads.
    tokio::spawn(async move {
        for event in events {
            store.append_event(event).await?;
        }
        Ok(())
    })
    .await?
}

async fn at_once(store: &Arc<dyn Store>, events: &[RunEventWrite], width: usize) -> Result<()> {
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

async fn in_batches(store: &Arc<dyn Store>, batches: Vec<Vec<RunEventWrite>>) -> Result<()> {
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

fn projection(options: Options, runtime: &Runtime) -> Result<()> {
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
    let mut report = Report::new("projection of run events", "event", options);
    let copied = median_of(options, || (), |()| logs.clone());
    report.row("copying the same events (yardstick)", EVENTS, copied, None);
    let project = |()| -> Vec<RunSnapshot> {
        logs.iter()
            .map(|(run, log)| project_from_snapshot(RunSnapshot::new(run.clone()), log))
            .collect()
    };
    report.row(
        "reducing them to snapshots",
        EVENTS,
        median_of(options, || (), project),
        Some(1_000_000.0),
    );
    report.finish()
}
