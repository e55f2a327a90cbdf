//! How many items of a campaign a second are reserved, called for and settled, with a provider that takes everything at once:
//! two durable changes an item, in jobs of a hundred; beside what the same database does with plain one-row commits.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use onward_benches::{Options, Report, median_of, timed};
use onward_dispatch::{Answer, Backoff, Channel, Terms};
use onward_dispatcher::{
    Campaigns, Compose, Deployment, Dispatcher, Entropy, Message, Nature, Outlet, Provider, Recipient, Reservation,
    Scope,
};
use onward_journal::Text;
use onward_store::Store;
use onward_store_postgres::Postgres;
use onward_store_sqlite::Sqlite;
use onward_testing::Cluster;
use tokio::runtime::Runtime;
use tokio::sync::watch;

const PLAIN: usize = 1_000;

fn main() -> Result<()> {
    let options = Options::from_args()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
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
    let mut report = Report::new("campaigns on SQLite, WAL, synchronous FULL", "item", options);
    let yardstick = onward_store_sqlite::yardstick::Yardstick::open(&folder.join("yardstick.db"))?;
    let plain = median_of(options, || (), |()| (0..PLAIN).try_for_each(|_| yardstick.commit_row()));
    report.row("plain one-row commits (yardstick)", PLAIN, plain, None);
    let store: Arc<dyn Store> =
        Arc::new(Sqlite::open(&folder.join("store.db"), onward_store_sqlite::Options::default())?);
    measure(options, runtime, &mut report, &store, 30_000.0)?;
    report.finish()
}

fn postgres(options: Options, runtime: &Runtime) -> Result<()> {
    let cluster = Cluster::start()?;
    let mut report = Report::new("campaigns on Postgres, fsync and synchronous_commit on", "item", options);
    let yardstick = runtime.block_on(onward_store_postgres::yardstick::Yardstick::open(&cluster.database()?))?;
    let rows = async || {
        for _ in 0..PLAIN {
            yardstick.commit_row().await?;
        }
        Ok::<_, onward_store::Error>(())
    };
    let plain = median_of(options, || (), |()| runtime.block_on(rows()));
    report.row("plain one-row commits (yardstick)", PLAIN, plain, None);
    let opened = runtime.block_on(Postgres::open(&cluster.database()?, onward_store_postgres::Options::default()))?;
    measure(options, runtime, &mut report, &(Arc::new(opened) as Arc<dyn Store>), 15_000.0)?;
    report.finish()
}

/// A campaign after the other, each deployed before the clock runs.
fn measure(
    options: Options,
    runtime: &Runtime,
    report: &mut Report,
    store: &Arc<dyn Store>,
    target: f64,
) -> Result<()> {
    let items = if options.is_quick() { 20_000 } else { 100_000 };
    let mut times = Vec::new();
    for _ in 0..options.runs.min(5) {
        let run = runtime.block_on(deploy(store, items))?;
        times.push(timed(|| runtime.block_on(dispatch(store, &run)))?);
    }
    times.sort_unstable();
    report.row("reserved, called for and settled", items, times[times.len() / 2], Some(target));
    Ok(())
}

fn scope() -> Scope {
    Scope { tenant: "default".into(), workspace: "default/default".into() }
}

async fn deploy(store: &Arc<dyn Store>, items: usize) -> Result<Text> {
    let deployment = Deployment {
        campaign: "bench".into(),
        channel: Channel::Email,
        document: "{}".into(),
        scheduled_for: None,
        key: None,
        by: "bench".to_owned(),
    };
    let (campaigns, entropy) = (Campaigns::new(Arc::clone(store), scope()), Entropy::default());
    let mut gathering = campaigns.gather(100, &entropy);
    for number in 0..items {
        let id = format!("lead-{number}");
        let address = format!("{id}@example.org");
        gathering.add(Recipient { id, address, data: serde_json::Map::new() }).await?;
    }
    Ok(campaigns.deploy(&deployment, &gathering.finish().await?, &entropy).await?.run)
}

/// Works until the run is over.
async fn dispatch(store: &Arc<dyn Store>, run: &Text) -> Result<()> {
    let terms = Terms {
        window: 100,
        calls_max: 3,
        attempts_max: 3,
        backoff: Backoff::default(),
        repeats: false,
        looks_after_ms: None,
    };
    let outlet = Outlet {
        provider: Arc::new(Nothing),
        compose: Arc::new(Nothing),
        gate: Arc::new(onward_dispatcher::Open),
        terms,
        asset: "bench".into(),
        patience: Duration::from_secs(30),
    };
    let options = onward_dispatcher::Options { lanes: 8, ..onward_dispatcher::Options::default() };
    let dispatcher = Dispatcher::new(Arc::clone(store), Arc::new(Arc::new(outlet)), options);
    let campaigns = Campaigns::new(Arc::clone(store), scope());
    let (stop, stopped) = watch::channel(false);
    let working = tokio::spawn(dispatcher.run(stopped));
    while campaigns.run(run).await?.ended_at.is_none() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    stop.send_replace(true);
    Ok(working.await??)
}

/// Takes everything at once, and says nothing.
struct Nothing;

#[async_trait::async_trait]
impl Provider for Nothing {
    fn name(&self) -> &str {
        "nothing"
    }

    fn nature(&self) -> Nature {
        Nature { batch_max: 100, ..Nature::default() }
    }

    async fn deliver(&self, batch: Vec<Reservation>) -> Vec<(Text, Answer)> {
        batch.into_iter().map(|it| (it.item().clone(), Answer::Accepted(None))).collect()
    }
}

impl Compose for Nothing {
    fn compose(&self, _recipient: &Recipient) -> Result<Message, String> {
        Ok(Message::default())
    }
}
