//! The measurements of `onward bench`: the throughput of Onward on this machine, disk and database.
//!
//! Each workload gets a new store and a server in its own process, which is the binary that users
//! run: it is measured over HTTP, from another process. The `dispatch` workload has no server: its
//! dispatcher runs in this process. Every figure is printed next to a baseline, which the report
//! calls the yardstick: the rate of plain one-row commits on the same database.

mod chain;
mod database;
mod dispatch;
mod effect_server;
mod fanout;
mod figures;
mod load_driver;
mod long;
mod parked;
mod recovery;
mod report;
mod server;
mod start;
mod task_runner;
mod throughput;
mod worker;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{bail, ensure};
use clap::ValueEnum;

use self::database::{BenchDatabase, BenchEnvironment};
use self::figures::BenchFigures;
pub use self::report::BenchReport;
pub use self::server::UNLIMITED_REQUESTS_PER_SECOND;
pub use self::task_runner::BenchTaskRunner;
pub use self::worker::run_bench_worker;

/// The workloads that can be measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BenchWorkload {
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

/// How accurate the figures need to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BenchPace {
    /// Seconds per workload.
    Full,
    /// A shorter time: rough figures.
    Quick,
}

/// What to measure. An absent size or duration has a default that depends on the pace.
#[derive(Clone, Debug)]
pub struct BenchPlan {
    /// Workloads to measure; if empty, all.
    pub workloads: Vec<BenchWorkload>,
    /// URLs of the databases; if empty, a SQLite file in the current folder.
    pub stores: Vec<String>,
    /// Concurrent executions or jobs (`--concurrency`).
    pub concurrency: Option<u16>,
    /// Duration of the measurements with a rate (`--seconds`).
    pub seconds: Option<u16>,
    /// Number of executions or items (`--count`).
    pub count: Option<u32>,
    /// Where the tasks run.
    pub tasks: BenchTaskRunner,
    /// Lease of the servers in `recovery` (`--lease-ms`).
    pub lease_ms: Option<u64>,
    /// How accurate the figures need to be.
    pub pace: BenchPace,
}

/// The program that runs the measurements.
#[derive(Clone, Debug)]
pub struct BenchHost {
    /// The binary `onward`, which is started as server and as worker.
    pub program: PathBuf,
    /// Prints a line of progress, or of the output of a server, on standard error.
    pub print_message: fn(&str),
}

/// Sizes and durations of the measurement.
struct BenchSettings {
    host: BenchHost,
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
    fn print_progress(&self, message: &str) {
        (self.host.print_message)(message);
    }

    /// Spawns the worker process. Returns `None` unless the tasks run in a worker.
    fn spawn_worker(
        &self,
        server: &server::BenchServer,
    ) -> anyhow::Result<Option<worker::BenchWorker>> {
        (self.tasks == BenchTaskRunner::Worker)
            .then(|| worker::BenchWorker::spawn_for(&self.host, server))
            .transpose()
    }
}

impl BenchPlan {
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
        for (advice, is_given, used_by) in options {
            let is_used =
                self.workloads.is_empty() || self.workloads.iter().any(|it| used_by.contains(it));
            if is_given && !is_used {
                bail!("{advice}");
            }
        }
        Ok(())
    }

    fn to_settings(&self, host: &BenchHost) -> BenchSettings {
        let seconds = self
            .seconds
            .map(|seconds| Duration::from_secs(seconds.into()));
        let count = self.count.map(|count| count as usize);
        let ms = Duration::from_millis;
        match self.pace {
            BenchPace::Quick => BenchSettings {
                host: host.clone(),
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
            },
            BenchPace::Full => BenchSettings {
                host: host.clone(),
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
            },
        }
    }
}

/// Measures what the plan names and removes the stores. Returns `None` if `interrupted` completes
/// first.
pub async fn run_benchmark(
    plan: &BenchPlan,
    host: &BenchHost,
    interrupted: impl Future<Output = ()>,
) -> anyhow::Result<Option<BenchReport>> {
    plan.reject_unused_options()?;
    let settings = plan.to_settings(host);
    let places = BenchDatabase::parse_urls(&plan.stores)?;
    let outcome = tokio::select! {
        () = interrupted => None,
        measured = measure_workloads(plan, &settings, &places) => Some(measured),
    };
    for place in &places {
        place.drop_schemas().await?;
    }
    let Some(measured) = outcome else {
        return Ok(None);
    };
    Ok(Some(BenchReport::new(plan.tasks, measured?)))
}

/// Measures all chosen workloads on each database.
async fn measure_workloads(
    plan: &BenchPlan,
    settings: &BenchSettings,
    places: &[BenchDatabase],
) -> anyhow::Result<Vec<(BenchEnvironment, Vec<BenchFigures>)>> {
    let mut all = Vec::new();
    for place in places {
        all.push((place.read_environment().await?, Vec::new()));
    }
    let chosen = if plan.workloads.is_empty() {
        BenchWorkload::value_variants()
    } else {
        &plan.workloads
    };
    let each = chosen.iter().flat_map(|workload| {
        workload
            .lane_counts(plan.concurrency)
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
    fn lane_counts(self, chosen: Option<u16>) -> Vec<usize> {
        match (self, chosen) {
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
