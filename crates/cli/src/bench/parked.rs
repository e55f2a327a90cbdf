//! `parked`: executions that wait for a signal, and what each takes in memory and on disk.

use std::time::Duration;

use anyhow::{Context as _, bail};
use onward_api::Json;
use tokio::time::Instant;

use super::driver::{Work, start_all};
use super::figures::{Figures, Latencies};
use super::place::Place;
use super::server::{Server, Start, WORKFLOWS};
use super::{Settings, paint};

const LANES: usize = 64;

/// So many are there before any counts: a server keeps the last that came in memory, and has its caches filled.
const BEFORE: usize = 10_000;

/// How often to look whether they have left memory.
const LOOK: Duration = Duration::from_millis(200);

/// How long they may take.
const PATIENCE: Duration = Duration::from_secs(120);

pub(super) async fn measure(place: &Place, settings: &Settings) -> anyhow::Result<Figures> {
    let count = settings.parked;
    paint::say(format_args!("parked, {count} of them"));
    let mut store = place.make().await?;
    let raw_before = store.raw_rate(settings.yardstick).await?;
    let start = Start::on(&store).await?;
    let empty = store.disk_bytes().await?;
    let server = start.run_with_workflows(settings.tasks).await?;
    let work = Work { function: "bench_parked", input: Json::default() };
    let ahead = BEFORE.min(count);
    start_all(&server.client, &work, LANES, ahead).await?;
    until_put_aside(&server).await?;
    let (memory, before, begun) = (server.resident_bytes(), server.meters(&store).await?, Instant::now());
    start_all(&server.client, &work, LANES, count).await?;
    let took = begun.elapsed();
    let used = server.meters(&store).await?.since(before);
    until_put_aside(&server).await?;
    let grown = server.resident_bytes().zip(memory).map(|(after, before)| after.saturating_sub(before));
    let resident = server.resident_bytes();
    server.kill()?;
    let disk = store.disk_bytes().await?.saturating_sub(empty + WORKFLOWS.len() as u64);
    let raw_after = store.raw_rate(settings.yardstick).await?;
    drop(store);
    let mut figures = Figures {
        workload: "parked",
        concurrency: LANES,
        unit: "start",
        executions: count,
        units: count as u64,
        took,
        latencies: Latencies::default(),
        used,
        raw_rates: [raw_before, raw_after],
        more: Vec::new(),
    };
    if let Some((grown, resident)) = grown.zip(resident) {
        figures = figures.with("memoryBytesEach", "memory each", grown as f64 / count as f64, "bytes").with(
            "residentBytes",
            "memory in all",
            resident as f64,
            "bytes",
        );
    }
    Ok(figures.with("diskBytesEach", "disk each", disk as f64 / (ahead + count) as f64, "bytes"))
}

/// Until no more of them leave memory than come: a server keeps some that came last, and those are the same before and after.
async fn until_put_aside(server: &Server) -> anyhow::Result<()> {
    let (begun, mut last) = (Instant::now(), f64::MAX);
    while begun.elapsed() < PATIENCE {
        let now = server.metric("onward_executions_in_memory").await?.context("the server does not count them")?;
        if now == last {
            return Ok(());
        }
        last = now;
        tokio::time::sleep(LOOK).await;
    }
    bail!("they do not leave memory")
}
