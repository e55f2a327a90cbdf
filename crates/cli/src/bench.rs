//! `onward bench`: parses the arguments and prints the report; `onward-benchmarks` measures. The
//! measured servers and workers are this binary again, as child processes.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use onward_benchmarks::workloads::{
    BenchHost, BenchPace, BenchPlan, BenchTaskRunner, BenchWorkload, run_bench_worker,
    run_benchmark,
};

use crate::runtimes::block_on;
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

impl BenchArgs {
    fn to_plan(&self) -> BenchPlan {
        BenchPlan {
            workloads: self.workloads.clone(),
            stores: self.stores.clone(),
            concurrency: self.concurrency,
            seconds: self.seconds,
            count: self.count,
            tasks: self.tasks,
            lease_ms: self.lease_ms,
            pace: if self.quick {
                BenchPace::Quick
            } else {
                BenchPace::Full
            },
        }
    }
}

pub(crate) fn run_bench(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    match &args.as_worker_of {
        Some(url) => block_on(run_bench_worker(url)).map(|()| ExitCode::SUCCESS),
        None => block_on(measure_and_print(args)),
    }
}

async fn measure_and_print(args: &BenchArgs) -> anyhow::Result<ExitCode> {
    if cfg!(debug_assertions) {
        console::print_message("this is a debug build: its figures do not represent a release");
    }
    fd_limit::raise_fd_limit();
    let host = BenchHost {
        program: std::env::current_exe().context("cannot find the path of this program")?,
        print_message: |message| console::print_message(console::escape_control_chars(message)),
    };
    let mut signals = ShutdownSignals::install_handlers()?;
    let interrupted = signals.next_signal();
    let Some(report) = run_benchmark(&args.to_plan(), &host, interrupted).await? else {
        return Ok(EXIT_INTERRUPTED.into());
    };
    let text = if args.json {
        report.to_json_lines()
    } else {
        report.to_tables()
    };
    console::text_output().write_all(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
