//! `recovery`: a server is killed while many executions wait for an answer from outside, and another is started on its
//! store. When are all finished, and how often did each effect happen?
//!
//! Results are recorded once; effects happen at least once. Both are counted: results in the journals, effects by whoever
//! was sent the requests. That one can tell a repeated request by its key.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use onward_api::client::Client;
use onward_api::{Json, Onward as _};
use onward_journal::{Event, ExecutionId, JournalEvent, Timestamp};
use onward_store::{Clock as _, SystemClock};
use serde_json::json;
use tokio::time::Instant;

use super::driver::{Work, start_all, wait_all};
use super::figures::{Figures, Latencies};
use super::outside::Outside;
use super::place::Place;
use super::server::{Server, Start, nothing_yet};
use super::{Settings, Tasks, paint};
use crate::events;

const LANES: usize = 64;

const STEPS: u32 = 10;

/// How long it may take until all are in flight.
const PATIENCE: Duration = Duration::from_secs(25);

/// When things were done, from the start of the second server on.
struct Times {
    killed_at: Timestamp,
    answered: Duration,
    finished: Duration,
}

/// What all journals say together.
#[derive(Default)]
struct Account {
    /// Operations with a result.
    recorded: u64,
    /// Operations with more than one.
    recorded_twice: u64,
    /// Results that were recorded after the server was killed.
    recorded_after: u64,
    /// When the first of those was.
    first_after: Option<Timestamp>,
}

pub(super) async fn measure(place: &Place, settings: &Settings) -> anyhow::Result<Figures> {
    let count = settings.in_flight;
    paint::say(format_args!("recovery, {count} in flight"));
    let mut store = place.make().await?;
    let raw_before = store.raw_rate(settings.yardstick).await?;
    let outside = Outside::listen().await?;
    let mut start = Start::on(&store).await?;
    (start.lease_ms, start.host) = (settings.lease_ms, Some(outside.host.clone()));
    let server = start.run_with_workflows(settings.tasks).await?;
    let _worker = settings.worker(&server)?;
    let executions = all_in_flight(&server, settings.tasks, &outside, count).await?;
    server.kill()?;
    let held = outside.seen().len();
    outside.open();
    let before = nothing_yet(&store).await?;
    let (server, times) = recovered(&start, settings, &executions).await?;
    let used = server.meters(&store).await?.since(before);
    let account = account(&server.client, &executions, times.killed_at).await?;
    server.kill()?;
    let raw_after = store.raw_rate(settings.yardstick).await?;
    drop(store);
    let wanted = count as u64 * u64::from(STEPS + 1);
    ensure!(account.recorded == wanted, "{} of {wanted} operations have a result: this is a defect", account.recorded);
    let figures = Figures {
        workload: "recovery",
        concurrency: held,
        unit: "step",
        executions: count,
        units: account.recorded_after,
        took: times.finished,
        latencies: Latencies::default(),
        used,
        raw_rates: [raw_before, raw_after],
        more: Vec::new(),
    };
    Ok(told(figures, &account, &outside, &times))
}

/// Starts executions until so many wait for somebody outside.
async fn all_in_flight(server: &Server, tasks: Tasks, outside: &Outside, count: usize) -> anyhow::Result<Vec<String>> {
    let input = json!({ "load": { "steps": STEPS, "task": tasks.task() }, "url": outside.url() }).to_string();
    let work = Work { function: "bench_recovery", input: Json::parse(&input).context("the input is not JSON")? };
    let executions = start_all(&server.client, &work, LANES, count).await?;
    let waiting = tokio::time::timeout(PATIENCE, outside.until(count)).await;
    waiting.context("not all executions get as far: are there enough open files (ulimit -n)?")??;
    Ok(executions)
}

/// Another server, once it has finished them all.
async fn recovered(start: &Start, settings: &Settings, executions: &[String]) -> anyhow::Result<(Server, Times)> {
    let (killed_at, begun) = (SystemClock.now(), Instant::now());
    let server = start.run()?;
    server.client.functions().await?;
    let answered = begun.elapsed();
    // The old one knows where the old server was.
    let _worker = settings.worker(&server)?;
    wait_all(&server.client, executions, LANES).await?;
    Ok((server, Times { killed_at, answered, finished: begun.elapsed() }))
}

/// What only this workload has.
fn told(figures: Figures, account: &Account, outside: &Outside, times: &Times) -> Figures {
    let ms = |duration: Duration| duration.as_secs_f64() * 1_000.0;
    let micros = account.first_after.map_or(0, |first| first.as_micros() - times.killed_at.as_micros());
    let (seen, in_flight) = (outside.seen(), figures.concurrency);
    let again = seen.values().filter(|times| **times > 1).count();
    figures
        .with("inFlight", "in flight when killed", in_flight as f64, "executions")
        .with("firstAnswerMs", "until the next server answers", ms(times.answered), "ms")
        .with("firstResultMs", "until the first result is recorded", micros as f64 / 1_000.0, "ms")
        .with("allFinishedMs", "until all are finished", ms(times.finished), "ms")
        .with("recorded", "operations with a result", account.recorded as f64, "")
        .with("recordedTwice", "operations with two", account.recorded_twice as f64, "")
        .with("effects", "effects asked for outside", seen.len() as f64, "")
        .with("effectsRepeated", "of these, asked for again", again as f64, "with the same key")
}

/// Reads all journals.
async fn account(client: &Client, executions: &[String], killed_at: Timestamp) -> anyhow::Result<Account> {
    let mut account = Account::default();
    for execution in executions {
        let id: ExecutionId = execution.parse()?;
        account.take_in(&events::of(client, id, 0, 0).await?, killed_at);
    }
    Ok(account)
}

impl Account {
    fn take_in(&mut self, journal: &[JournalEvent], killed_at: Timestamp) {
        let is_after = |event: &JournalEvent| event.timestamp > killed_at;
        let mut results: Vec<_> = Vec::new();
        for recorded in journal {
            let Event::InvokeCompleted { promise_id, .. } = &recorded.event else { continue };
            if results.contains(&promise_id) {
                self.recorded_twice += 1;
                continue;
            }
            results.push(promise_id);
            self.recorded += 1;
            if is_after(recorded) {
                self.recorded_after += 1;
                self.first_after = Some(self.first_after.map_or(recorded.timestamp, |it| it.min(recorded.timestamp)));
            }
        }
    }
}
