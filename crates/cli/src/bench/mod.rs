//! `onward bench`: how fast Onward is on this machine, this disk, this database.
//!
//! Each workload has a new store and a server of its own, which is this binary again: what is measured is what users have,
//! over HTTP, from another process. Campaigns have no server: their dispatcher runs in this process. Beside each figure stands what the same database does with plain one-row commits.

mod chain;
mod database;
mod dispatch;
mod effect_server;
mod fanout;
mod figures;
mod load_driver;
mod long;
mod machine;
mod parked;
mod process_usage;
mod recovery;
mod report;
mod server;
mod start;
mod throughput;
mod worker;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::ValueEnum;

use self::database::{BenchDatabase, BenchEnvironment};
use self::figures::BenchFigures;
use crate::retry::block_on;
use crate::shutdown::{EXIT_INTERRUPTED, ShutdownSignals};
use crate::{console, fd_limit};

/// Measure this machine: its disk or database, with a server of its own
///
/// Without --store, stores are SQLite files in the current folder, and are gone in the end. A Postgres database gets a schema
/// that is removed in the end; nothing else in it is touched.
///
/// Exit codes: 0 it was measured, 2 it could not be, 130 it was stopped.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// What to measure; everything unless told
    workloads: Vec<BenchWorkload>,
    /// Where: sqlite:PATH, which must not be there yet, or postgres://USER@HOST/DATABASE. May be repeated: each workload is
    /// measured on one after the other then, so that what slows the machine down for a while slows down all
    #[arg(long = "store", value_name = "URL")]
    stores: Vec<String>,
    /// Executions at a time, for chain and start, and jobs for dispatch; chain is measured with 1 and with 64 unless told
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: Option<u16>,
    /// How long chain, fanout and start are measured; 10 unless told
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..))]
    seconds: Option<u16>,
    /// Executions of parked and of recovery, and items of dispatch; 50000, 1000 and 100000 unless told
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Who performs the tasks
    #[arg(long, value_enum, default_value_t = BenchTaskRunner::Wasm)]
    tasks: BenchTaskRunner,
    /// For recovery: how long a server waits before it takes over from one that is gone, in milliseconds; as `onward serve` does
    /// unless told
    #[arg(long, value_name = "MS")]
    lease_ms: Option<u64>,
    /// Performs the tasks of another process that measures
    #[arg(long, value_name = "URL", hide = true)]
    as_worker_of: Option<String>,
    /// Rough figures, soon
    #[arg(long)]
    quick: bool,
    /// Print one JSON object a line, one for each store
    #[arg(long)]
    json: bool,
}

/// What can be measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchWorkload {
    /// 10 tasks, one after the other
    Chain,
    /// 1,000 tasks at once, joined
    Fanout,
    /// 5,000 tasks, one after the other: whether the last are as fast as the first
    Long,
    /// Workflows that return at once
    Start,
    /// Executions that wait for a signal: what each takes in memory and on disk
    Parked,
    /// A server that is killed with 1,000 executions in flight: when all are finished, and how often their effects happened
    Recovery,
    /// 100,000 items of a campaign, in jobs of 100; and whether jobs are found as quickly when a million items wait
    Dispatch,
}

/// Who performs tasks.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchTaskRunner {
    /// The server, as components that reach nobody: a workflow goes on with them while its last steps are being stored
    Wasm,
    /// The server, as components that may send requests: each task waits until what led to it is durable
    Outgoing,
    /// A worker, in a process of its own: each task is claimed and completed over HTTP
    Worker,
}

impl BenchTaskRunner {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Outgoing => "outgoing",
            Self::Worker => "worker",
        }
    }

    /// The task that each step is, if it is not the component's own.
    const fn task_name(self) -> Option<&'static str> {
        match self {
            Self::Wasm | Self::Outgoing => None,
            Self::Worker => Some(worker::TASK_NAME),
        }
    }

    /// Where tasks may send requests. None is sent, and nobody has this name.
    fn allowed_hosts(self) -> Vec<String> {
        match self {
            Self::Wasm | Self::Worker => Vec::new(),
            Self::Outgoing => vec!["tasks.invalid".to_owned()],
        }
    }
}

/// How much is measured.
struct BenchSettings {
    tasks: BenchTaskRunner,
    /// How long there is load before anything counts.
    warm_up: Duration,
    measure_time: Duration,
    /// How long the yardstick is measured, before and after.
    yardstick_time: Duration,
    long_steps: u32,
    fanout_steps: u32,
    parked_executions: usize,
    in_flight_executions: usize,
    dispatched_items: u32,
    /// Items that wait, when many do.
    waiting_items: u32,
    lease_ms: Option<u64>,
}

impl BenchSettings {
    /// The worker that performs the tasks, if one does.
    fn spawn_worker(
        &self,
        server: &server::BenchServer,
    ) -> anyhow::Result<Option<worker::BenchWorker>> {
        (self.tasks == BenchTaskRunner::Worker)
            .then(|| worker::BenchWorker::spawn_for(server))
            .transpose()
    }
}

impl BenchArgs {
    /// Nothing that was asked for goes by unnoticed.
    fn reject_unused_options(&self) -> anyhow::Result<()> {
        use BenchWorkload::{Chain, Dispatch, Fanout, Parked, Recovery, Start};
        let options: [(&str, bool, &[BenchWorkload]); 4] = [
            (
                "--concurrency is for chain, start and dispatch",
                self.concurrency.is_some(),
                &[Chain, Start, Dispatch],
            ),
            (
                "--seconds is for chain, fanout and start",
                self.seconds.is_some(),
                &[Chain, Fanout, Start],
            ),
            (
                "--count is for parked, recovery and dispatch",
                self.count.is_some(),
                &[Parked, Recovery, Dispatch],
            ),
            (
                "--lease-ms is for recovery",
                self.lease_ms.is_some(),
                &[Recovery],
            ),
        ];
        for (words, is_given, used_by) in options {
            let is_used =
                self.workloads.is_empty() || self.workloads.iter().any(|it| used_by.contains(it));
            if is_given && !is_used {
                bail!("{words}");
            }
        }
        Ok(())
    }

    fn to_settings(&self) -> BenchSettings {
        let seconds = self
            .seconds
            .map(|seconds| Duration::from_secs(seconds.into()));
        let count = self.count.map(|count| count as usize);
        let ms = Duration::from_millis;
        if self.quick {
            return BenchSettings {
                tasks: self.tasks,
                warm_up: ms(200),
                measure_time: seconds.unwrap_or(ms(1_000)),
                yardstick_time: ms(200),
                long_steps: 1_000,
                fanout_steps: 100,
                parked_executions: count.unwrap_or(2_000),
                in_flight_executions: count.unwrap_or(200),
                dispatched_items: self.count.unwrap_or(20_000),
                waiting_items: 100_000,
                lease_ms: self.lease_ms,
            };
        }
        BenchSettings {
            tasks: self.tasks,
            warm_up: ms(2_000),
            measure_time: seconds.unwrap_or(ms(10_000)),
            yardstick_time: ms(1_000),
            long_steps: 5_000,
            fanout_steps: 1_000,
            parked_executions: count.unwrap_or(50_000),
            in_flight_executions: count.unwrap_or(1_000),
            dispatched_items: self.count.unwrap_or(100_000),
            waiting_items: 1_000_000,
            lease_ms: self.lease_ms,
        }
    }
}

pub(crate) fn run_bench(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    block_on(measure_stores(args))
}

async fn measure_stores(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    if let Some(url) = &args.as_worker_of {
        return worker::run_bench_worker(url).await;
    }
    if cfg!(debug_assertions) {
        console::print_message("this is a debug build: its figures say nothing");
    }
    fd_limit::raise_fd_limit();
    args.reject_unused_options()?;
    let settings = args.to_settings();
    let places = BenchDatabase::parse_urls(&args.stores)?;
    let mut signals = ShutdownSignals::install_handlers()?;
    let outcome = tokio::select! {
        () = signals.next_signal() => None,
        measured = measure_workloads(args, &settings, &places) => Some(measured),
    };
    for place in &places {
        place.drop_schemas().await?;
    }
    let Some(measured) = outcome else {
        return Ok(EXIT_INTERRUPTED.into());
    };
    report::print_report(args.json, args.tasks, &measured?)?;
    Ok(ExitCode::SUCCESS)
}

/// All that is measured, in each of the places.
async fn measure_workloads(
    args: &BenchArgs,
    settings: &BenchSettings,
    places: &[BenchDatabase],
) -> anyhow::Result<Vec<(BenchEnvironment, Vec<BenchFigures>)>> {
    let mut all = Vec::new();
    for place in places {
        all.push((place.read_environment().await?, Vec::new()));
    }
    let chosen = if args.workloads.is_empty() {
        BenchWorkload::value_variants()
    } else {
        &args.workloads
    };
    let each = chosen.iter().flat_map(|workload| {
        workload
            .lane_counts(args.concurrency)
            .into_iter()
            .map(move |it| (workload, it))
    });
    for (workload, lanes) in each {
        for (place, (_, measured)) in places.iter().zip(&mut all) {
            let figures = workload.measure_on(place, settings, lanes).await?;
            ensure!(
                figures.units > 0,
                "{} did nothing in the time: --seconds N",
                figures.workload
            );
            measured.push(figures);
            place.drop_schemas().await?;
        }
    }
    Ok(all)
}

impl BenchWorkload {
    /// How many executions at a time, one measurement each.
    fn lane_counts(self, told: Option<u16>) -> Vec<usize> {
        match (self, told) {
            (Self::Chain | Self::Start | Self::Dispatch, Some(lanes)) => vec![lanes.into()],
            (Self::Chain, None) => vec![1, 64],
            (Self::Start, None) => vec![64],
            (Self::Dispatch, None) => vec![8],
            (Self::Fanout | Self::Long | Self::Parked | Self::Recovery, _) => vec![1],
        }
    }

    async fn measure_on(
        self,
        place: &BenchDatabase,
        settings: &BenchSettings,
        lanes: usize,
    ) -> anyhow::Result<BenchFigures> {
        match self {
            Self::Chain => chain::measure_chain(place, settings, lanes).await,
            Self::Start => start::measure_start(place, settings, lanes).await,
            Self::Fanout => fanout::measure_fanout(place, settings).await,
            Self::Long => long::measure_long(place, settings).await,
            Self::Parked => parked::measure_parked(place, settings).await,
            Self::Recovery => recovery::measure_recovery(place, settings).await,
            Self::Dispatch => dispatch::measure_dispatch(place, settings, lanes).await,
        }
    }
}
