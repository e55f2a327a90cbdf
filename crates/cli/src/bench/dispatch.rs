//! `dispatch`: items of a campaign, reserved, called for and settled in jobs of a hundred, with a provider that takes
//! everything at once. And how long it takes to find and lock a job while few items wait, and while many do.
//!
//! The dispatcher runs in this process: what it takes counts for both of them.

use std::time::Duration;

use anyhow::ensure;
use metrics_exporter_prometheus::PrometheusHandle;
use onward_dispatcher::load::Load;
use onward_store::Policy;
use tokio::sync::OnceCell;

use super::figures::{Figures, Latencies, Meters};
use super::place::{Place, Store};
use super::{Settings, paint, usage};
use crate::serve::measured;

/// Items that wait while jobs are claimed, when they are few.
const FEW: u32 = 1_000;

/// Jobs that are claimed: all that there are of few.
const CLAIMS: usize = 10;

/// A part of what is measured comes before, and does not count.
const WARM_UP_PART: u32 = 10;

pub(super) async fn measure(place: &Place, settings: &Settings, lanes: usize) -> anyhow::Result<Figures> {
    paint::say(format_args!("dispatch, {lanes} jobs at a time"));
    let figures = rate(place, settings, lanes).await?;
    let (few, many) = (claim(place, FEW).await?, claim(place, settings.waiting).await?);
    let micros = |took: Duration| took.as_secs_f64() * 1e6;
    Ok(figures
        .with("claimAmongFewUs", &format!("a job claimed, {FEW} items wait"), micros(few), "µs")
        .with("claimAmongManyUs", &format!("a job claimed, {} wait", settings.waiting), micros(many), "µs")
        .with("waitingItems", "items that wait, when many do", f64::from(settings.waiting), "items"))
}

async fn rate(place: &Place, settings: &Settings, lanes: usize) -> anyhow::Result<Figures> {
    let commits = counter().await?;
    let mut store = place.make().await?;
    let load = Load::on(onward_embed::store::open(&store.url, Policy::default()).await?);
    let before = load.deploy((settings.dispatched / WARM_UP_PART).max(1)).await?;
    load.dispatch(&before, lanes).await?;
    let run = load.deploy(settings.dispatched).await?;
    let raw_before = store.raw_rate(settings.yardstick).await?;
    let before = meters(&store, commits).await?;
    let took = load.dispatch(&run, lanes).await?;
    let used = meters(&store, commits).await?.since(before);
    let raw_after = store.raw_rate(settings.yardstick).await?;
    Ok(Figures {
        workload: "dispatch",
        concurrency: lanes,
        unit: "item",
        executions: took.jobs.len(),
        units: settings.dispatched.into(),
        took: took.all,
        latencies: Latencies::new(took.jobs),
        used,
        raw_rates: [raw_before, raw_after],
        more: Vec::new(),
    })
}

/// The median of finding a job and locking it durably, while so many items wait.
async fn claim(place: &Place, waiting: u32) -> anyhow::Result<Duration> {
    paint::say(format_args!("dispatch, jobs among {waiting} items that wait"));
    let store = place.make().await?;
    let load = Load::on(onward_embed::store::open(&store.url, Policy::default()).await?);
    load.deploy(waiting).await?;
    let mut times = Vec::new();
    while times.len() < CLAIMS
        && let Some(took) = load.claim().await?
    {
        times.push(took);
    }
    ensure!(times.len() == CLAIMS, "{} jobs were found of {CLAIMS}", times.len());
    times.sort_unstable();
    Ok(times[CLAIMS / 2])
}

/// What counts the transactions of this process. There is one, however often it is asked for.
async fn counter() -> anyhow::Result<&'static PrometheusHandle> {
    static COUNTER: OnceCell<PrometheusHandle> = OnceCell::const_new();
    COUNTER.get_or_try_init(async || measured::recorder()).await
}

/// What this process has used so far.
async fn meters(store: &Store, commits: &PrometheusHandle) -> anyhow::Result<Meters> {
    let process = std::process::id();
    let written_bytes = match store.log_bytes().await? {
        Some(bytes) => Some(bytes),
        None => usage::written_bytes(process),
    };
    let transactions = super::server::figure(&commits.render(), "onward_store_transactions_total");
    Ok(Meters { cpu: usage::cpu(process), driver_cpu: None, written_bytes, commits: transactions.map(|it| it as u64) })
}
