//! Benchmarks Onward against a known engine: on the same machine, with the same load driver, in one
//! run.
//!
//! An absolute rate depends on the machine. The engines take turns, each with new processes and no
//! data, so that a temporary slowdown of the machine affects all of them; the report has medians.
//! The durability of a completed step is read from the settings of each engine and printed with its
//! figures.

mod dispatch;
mod driver;
mod http;
mod measurement;
mod npm;
mod onward;
mod page;
mod process;
mod report;
mod restate;
mod side;
mod workload;

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand, ValueEnum};
use onward_benchmarks::machine::MachineInfo;
use onward_store::{StoreClock as _, SystemClock};

use crate::dispatch::DispatchArgs;
use crate::measurement::{MeasurementPace, measure};
use crate::report::ComparisonFigures;
use crate::side::{ComparedEngine, EngineOptions};
use crate::workload::WORKLOADS;

const ROUNDS: usize = 3;

/// Benchmark Onward and other engines in turn, with the same workloads and load driver.
#[derive(Parser)]
#[command(name = "cargo xtask compare", bin_name = "cargo xtask compare")]
#[command(args_conflicts_with_subcommands = true)]
struct CompareCli {
    #[command(subcommand)]
    other: Option<OtherComparison>,
    /// Measure only this engine; do not update docs/benchmarks.md.
    #[arg(long, value_name = "SIDE")]
    only: Option<ComparedEngine>,
    /// Measure for a shorter time, with less accurate figures; do not update docs/benchmarks.md.
    #[arg(long)]
    quick: bool,
    /// Print every repetition as JSON.
    #[arg(long)]
    json: bool,
    /// Number of partitions of Restate (default: one per core).
    #[arg(long, value_name = "N")]
    partitions: Option<u16>,
}

/// Comparisons other than workflows.
#[derive(Subcommand)]
enum OtherComparison {
    /// Compare the dispatch of campaign items with a job queue, on one Postgres server.
    Dispatch(DispatchArgs),
}

impl CompareCli {
    fn pace(&self) -> MeasurementPace {
        let [warm_up, measured] =
            if self.quick { [1, 2] } else { [3, 10] }.map(Duration::from_secs);
        MeasurementPace { warm_up, measured }
    }
}

fn main() -> ExitCode {
    let printed = workspace_root()
        .and_then(|root| compare(&root, &CompareCli::parse()))
        .and_then(|text| print_data(&text));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Locates the workspace by `CARGO_MANIFEST_DIR`: the one at run time if cargo set it, else the one
/// at build time.
fn workspace_root() -> Result<PathBuf> {
    let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    let root = manifest_dir.parent().map_or(PathBuf::new(), Path::to_owned);
    ensure!(
        root.join("Cargo.toml").is_file(),
        "no Cargo.toml in {}: run this as `cargo xtask compare` inside the repository",
        root.display()
    );
    Ok(root)
}

/// Writes data to stdout. A closed pipe (`| head`) is not an error.
fn print_data(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns the text to print.
fn compare(root: &Path, args: &CompareCli) -> Result<String> {
    match &args.other {
        None => compare_engines(root, args),
        Some(OtherComparison::Dispatch(args)) => dispatch::compare(root, args),
    }
}

/// Describes the date and the machine, without its host name.
fn describe_machine(root: &Path) -> String {
    let now = SystemClock.now().to_string();
    let date = now.split('T').next().unwrap_or_default();
    let machine = MachineInfo::detect_machine(Some(root));
    format!("{date}, {}", machine.in_one_line())
}

fn compare_engines(root: &Path, args: &CompareCli) -> Result<String> {
    let choices = EngineOptions {
        partitions: args.partitions,
    };
    let mut sides = Vec::new();
    for side in ComparedEngine::value_variants()
        .iter()
        .filter(|side| args.only.is_none_or(|only| only == **side))
    {
        sides.push(ComparisonFigures::new(*side, side.install(root, choices)?));
    }
    for round in 1..=ROUNDS {
        for figures in &mut sides {
            eprintln!("  {}, {round} of {ROUNDS}", figures.side.name());
            repeat_workloads(root, choices, args.pace(), figures)?;
        }
        // Alternates the order, so that no engine always runs first.
        sides.reverse();
    }
    sides.sort_by_key(|figures| figures.side);
    let machine = describe_machine(root);
    if !args.quick && args.only.is_none() {
        page::write(root, &machine, &sides)?;
    }
    Ok(if args.json {
        report::json(&machine, &sides)
    } else {
        report::table(&sides)
    })
}

/// Runs every workload once on a newly started engine.
fn repeat_workloads(
    root: &Path,
    choices: EngineOptions,
    pace: MeasurementPace,
    figures: &mut ComparisonFigures,
) -> Result<()> {
    let running = figures.side.start(root, choices)?;
    for (workload, repetitions) in WORKLOADS.iter().zip(&mut figures.repetitions) {
        let measured = measure(running.as_ref(), workload, pace);
        repetitions.push(measured.with_context(|| format!("{} failed", workload.work.name()))?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::CompareCli;

    #[test]
    fn the_command_line_is_consistent() {
        CompareCli::command().debug_assert();
    }
}
