//! `recovery`: kills a server while many executions wait for an HTTP response, starts another on
//! the same store, and measures when all executions have completed and how often each effect
//! happened.
//!
//! Results are recorded once; effects happen at least once. Both are counted: results in the
//! journals, effects by the [`EffectServer`] that receives the requests. It detects a repeated
//! request by its idempotency key.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use onward_api::client::ApiClient;
use onward_api::{OnwardApi as _, RawJson};
use onward_base::Timestamp;
use onward_journal::jsonl::JournalLineReader;
use onward_journal::{Event, ExecutionId, JournalEvent};
use onward_store::{StoreClock as _, SystemClock};
use serde_json::json;
use tokio::time::Instant;

use super::database::BenchDatabase;
use super::effect_server::EffectServer;
use super::figures::BenchFigures;
use super::load_driver::{BenchInvocation, start_executions, wait_for_executions};
use super::server::{BenchServer, BenchServerLauncher, usage_before_start};
use super::{BenchSettings, BenchTaskRunner};
use crate::statistics::BenchLatencies;

const LANES: usize = 64;

const STEPS: u32 = 10;

/// Timeout until all executions are in flight.
const IN_FLIGHT_TIMEOUT: Duration = Duration::from_secs(25);

/// Times measured from the start of the second server.
struct RecoveryTimes {
    killed_at: Timestamp,
    answered: Duration,
    finished: Duration,
}

/// Counts over all journals.
#[derive(Default)]
struct RecoveryTally {
    /// Operations that have a result.
    recorded: u64,
    /// Results beyond the first of an operation.
    recorded_twice: u64,
    /// Results that were recorded after the server was killed.
    recorded_after: u64,
    /// Time of the first result that was recorded after the kill.
    first_after: Option<Timestamp>,
}

pub(super) async fn measure_recovery(
    place: &BenchDatabase,
    settings: &BenchSettings,
) -> anyhow::Result<BenchFigures> {
    let count = settings.in_flight_executions;
    settings.print_progress(&format!("recovery, {count} in flight"));
    let mut store = place.create_store().await?;
    let raw_before = store.measure_commit_rate(settings.yardstick_time).await?;
    let effect_server = EffectServer::listen_on_loopback().await?;
    let mut start = BenchServerLauncher::for_store(&settings.host, &store).await?;
    (start.lease_ms, start.host) = (settings.lease_ms, Some(effect_server.host.clone()));
    let server = start.spawn_with_workflows(settings.tasks).await?;
    let _worker = settings.spawn_worker(&server)?;
    let executions = start_all_in_flight(&server, settings.tasks, &effect_server, count).await?;
    server.kill_server()?;
    let held = effect_server.counts_by_key().len();
    effect_server.start_answering();
    let before = usage_before_start(&store).await?;
    let (server, times) = restart_and_finish(&start, settings, &executions).await?;
    let used = server.read_usage(&store).await?.usage_since(before);
    let tally = tally_journals(&server.client, &executions, times.killed_at).await?;
    server.kill_server()?;
    let raw_after = store.measure_commit_rate(settings.yardstick_time).await?;
    drop(store);
    let expected = count as u64 * u64::from(STEPS + 1);
    ensure!(
        tally.recorded == expected,
        "{} of {expected} operations have a result: this is a defect",
        tally.recorded
    );
    let figures = BenchFigures {
        workload: "recovery",
        concurrency: held,
        unit: "step",
        executions: count,
        units: tally.recorded_after,
        took: times.finished,
        latencies: BenchLatencies::default(),
        used,
        commit_rates: [raw_before, raw_after],
        extra_figures: Vec::new(),
    };
    Ok(with_recovery_figures(
        figures,
        &tally,
        &effect_server,
        &times,
    ))
}

/// Starts `count` executions and waits until all of them wait for the effect server.
async fn start_all_in_flight(
    server: &BenchServer,
    tasks: BenchTaskRunner,
    effect_server: &EffectServer,
    count: usize,
) -> anyhow::Result<Vec<String>> {
    let input = json!({ "load": { "steps": STEPS, "task": tasks.task_name() }, "url": effect_server.effects_url() }).to_string();
    let work = BenchInvocation {
        function: "bench_recovery",
        input: RawJson::parse(&input).context("the input is not JSON")?,
    };
    let executions = start_executions(&server.client, &work, LANES, count).await?;
    let waiting =
        tokio::time::timeout(IN_FLIGHT_TIMEOUT, effect_server.wait_for_requests(count)).await;
    waiting.context(
        "not all executions sent their request: check the limit of open files (ulimit -n)",
    )??;
    Ok(executions)
}

/// Starts the second server and waits until it has completed all executions.
async fn restart_and_finish(
    start: &BenchServerLauncher,
    settings: &BenchSettings,
    executions: &[String],
) -> anyhow::Result<(BenchServer, RecoveryTimes)> {
    let (killed_at, begun) = (SystemClock.now(), Instant::now());
    let server = start.spawn_server()?;
    server.client.list_functions().await?;
    let answered = begun.elapsed();
    // The first worker is connected to the address of the killed server.
    let _worker = settings.spawn_worker(&server)?;
    wait_for_executions(&server.client, executions, LANES).await?;
    Ok((
        server,
        RecoveryTimes {
            killed_at,
            answered,
            finished: begun.elapsed(),
        },
    ))
}

/// Adds the figures that only this workload reports.
fn with_recovery_figures(
    figures: BenchFigures,
    tally: &RecoveryTally,
    effect_server: &EffectServer,
    times: &RecoveryTimes,
) -> BenchFigures {
    let ms = |duration: Duration| duration.as_secs_f64() * 1_000.0;
    let micros = tally
        .first_after
        .map_or(0, |first| first.as_micros() - times.killed_at.as_micros());
    let (seen, in_flight) = (effect_server.counts_by_key(), figures.concurrency);
    let again = seen.values().filter(|times| **times > 1).count();
    figures
        .with_figure(
            "inFlight",
            "in flight when killed",
            in_flight as f64,
            "executions",
        )
        .with_figure(
            "firstAnswerMs",
            "until the next server answers",
            ms(times.answered),
            "ms",
        )
        .with_figure(
            "firstResultMs",
            "until the first result is recorded",
            micros as f64 / 1_000.0,
            "ms",
        )
        .with_figure(
            "allFinishedMs",
            "until all are finished",
            ms(times.finished),
            "ms",
        )
        .with_figure(
            "recorded",
            "operations with a result",
            tally.recorded as f64,
            "",
        )
        .with_figure(
            "recordedTwice",
            "operations with two results",
            tally.recorded_twice as f64,
            "",
        )
        .with_figure("effects", "effects requested", seen.len() as f64, "")
        .with_figure(
            "effectsRepeated",
            "of these, requested again",
            again as f64,
            "with the same key",
        )
}

/// Reads and counts the journals of all executions.
async fn tally_journals(
    client: &ApiClient,
    executions: &[String],
    killed_at: Timestamp,
) -> anyhow::Result<RecoveryTally> {
    let mut tally = RecoveryTally::default();
    for execution in executions {
        tally.add_journal(&read_journal(client, execution).await?, killed_at);
    }
    Ok(tally)
}

async fn read_journal(client: &ApiClient, execution: &str) -> anyhow::Result<Vec<JournalEvent>> {
    let id: ExecutionId = execution.parse()?;
    let lines = client.get_execution_journal(execution, 0, 0).await?;
    let mut reader = JournalLineReader::for_execution(id);
    lines
        .lines()
        .map(|line| {
            reader
                .read_line(line)
                .with_context(|| format!("cannot read the journal of execution {id}"))
        })
        .collect()
}

impl RecoveryTally {
    fn add_journal(&mut self, journal: &[JournalEvent], killed_at: Timestamp) {
        let is_after = |event: &JournalEvent| event.timestamp > killed_at;
        let mut results: Vec<_> = Vec::new();
        for recorded in journal {
            let Event::InvokeCompleted { promise_id, .. } = &recorded.event else {
                continue;
            };
            if results.contains(&promise_id) {
                self.recorded_twice += 1;
                continue;
            }
            results.push(promise_id);
            self.recorded += 1;
            if is_after(recorded) {
                self.recorded_after += 1;
                self.first_after = Some(
                    self.first_after
                        .map_or(recorded.timestamp, |it| it.min(recorded.timestamp)),
                );
            }
        }
    }
}
