//! `onward bench`: measures the throughput of Onward on this machine, disk and database.
//!
//! Each workload gets a new store and a server in its own process, which is this binary again: the
//! benchmark measures what users run, over HTTP, from another process. The `dispatch` workload has
//! no server: its dispatcher runs in this process. Every figure is printed next to a baseline,
//! which the report calls the yardstick: the rate of plain one-row commits on the same database.

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

/// Measure the throughput of Onward on this machine and its disk or database
///
/// Each workload runs against its own server process and a new store. Without --store, the stores
/// are SQLite files in the current folder; they are deleted afterwards. In a Postgres database, the
/// benchmark creates schemas of its own and drops them afterwards; it touches nothing else.
///
/// Exit codes: 0 the measurement completed, 2 it failed, 130 it was interrupted.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// Workloads to measure [default: all]
    workloads: Vec<BenchWorkload>,
    /// Database to measure: sqlite:PATH, which must not exist, or postgres://USER@HOST/DATABASE.
    /// Can be repeated: each workload then runs on all databases in turn, so that a temporary
    /// slowdown of the machine affects all of them [default: a SQLite file in the current folder]
    #[arg(long = "store", value_name = "URL")]
    stores: Vec<String>,
    /// Concurrent executions for chain and start, concurrent jobs for dispatch [default: chain 1
    /// and 64, start 64, dispatch 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: Option<u16>,
    /// Duration of chain, fanout and start in seconds [default: 10, with --quick 1]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u16).range(1..))]
    seconds: Option<u16>,
    /// Executions for parked and recovery, items for dispatch [default: 50000, 1000 and 100000;
    /// with --quick 2000, 200 and 20000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
    /// Where the tasks run
    #[arg(long, value_enum, default_value_t = BenchTaskRunner::Wasm)]
    tasks: BenchTaskRunner,
    /// Lease in milliseconds for recovery: how long a server waits before it takes over from a dead
    /// one [default: that of `onward serve`]
    #[arg(long, value_name = "MS")]
    lease_ms: Option<u64>,
    /// Run as the task worker of a benchmark server at this URL
    #[arg(long, value_name = "URL", hide = true)]
    as_worker_of: Option<String>,
    /// Measure for a shorter time: rough figures
    #[arg(long)]
    quick: bool,
    /// Print one JSON object per line, one for each database
    #[arg(long)]
    json: bool,
}

/// The workloads that can be measured.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchWorkload {
    /// 10 tasks in sequence
    Chain,
    /// 1,000 tasks at once, joined
    Fanout,
    /// 5,000 tasks in sequence: compares the rate of the last tasks with that of the first
    Long,
    /// Workflows that return immediately
    Start,
    /// Executions that wait for a signal: memory and disk space per execution
    Parked,
    /// A server is killed with 1,000 executions in flight: time until all have completed, and how
    /// often each effect happened
    Recovery,
    /// 100,000 items of a campaign in jobs of 100; also the time to claim a job while 1,000 and
    /// while 1,000,000 items wait
    Dispatch,
}

/// Where the tasks of a workload run.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum BenchTaskRunner {
    /// In the server, as components without network access: a workflow continues while its last
    /// steps are being stored
    Wasm,
    /// In the server, as components that may send requests: each task waits until the steps before
    /// it are durable
    Outgoing,
    /// In a worker process: each task is claimed and completed over HTTP
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

    /// Returns the name of the worker task that each step invokes; `None` for the task of the
    /// component itself.
    const fn task_name(self) -> Option<&'static str> {
        match self {
            Self::Wasm | Self::Outgoing => None,
            Self::Worker => Some(worker::TASK_NAME),
        }
    }

    /// Returns the hosts that tasks may send requests to. They send none, and the name does not
    /// resolve.
    fn allowed_hosts(self) -> Vec<String> {
        match self {
            Self::Wasm | Self::Worker => Vec::new(),
            Self::Outgoing => vec!["tasks.invalid".to_owned()],
        }
    }
}

/// Sizes and durations of the measurement.
struct BenchSettings {
    tasks: BenchTaskRunner,
    /// Duration of the load before the measurement starts.
    warm_up: Duration,
    measure_time: Duration,
    /// Duration of each baseline measurement, before and after the workload.
    yardstick_time: Duration,
    long_steps: u32,
    fanout_steps: u32,
    parked_executions: usize,
    in_flight_executions: usize,
    dispatched_items: u32,
    /// Waiting items in the large claim measurement of `dispatch`.
    waiting_items: u32,
    lease_ms: Option<u64>,
}

impl BenchSettings {
    /// Spawns the worker process. Returns `None` unless the tasks run in a worker.
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
    /// Fails if an option was given that none of the chosen workloads uses.
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

/// Measures all chosen workloads on each database.
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
    /// Returns the concurrencies to measure, one measurement each.
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
