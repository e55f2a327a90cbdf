//! Benchmarks the dispatch of campaign items against a known job queue, on one Postgres server, in
//! one run.
//!
//! The sides take turns, each with an empty database on the same server, which syncs every commit.
//! The two do different work: docs/benchmarks.md explains the difference, the rates show its cost.

mod graphile;
mod onward;
mod report;
mod round;
mod server;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use onward_benchmarks::process_usage::machine_cpu_time;
use onward_benchmarks::stopwatch::{BenchStopwatch, pause_thread};

use crate::dispatch::report::DispatchFigures;
use crate::dispatch::round::{DispatchRound, RoundSize};
use crate::dispatch::server::PostgresServer;
use crate::{ROUNDS, describe_machine, page};

/// How long the load of other processes is measured before each round.
const OTHER_LOAD_WINDOW: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct DispatchArgs {
    /// Measure fewer items, with less accurate figures; do not update docs/benchmarks.md.
    #[arg(long)]
    quick: bool,
    /// Print every round as JSON.
    #[arg(long)]
    json: bool,
}

impl DispatchArgs {
    fn size(&self) -> RoundSize {
        if self.quick {
            RoundSize {
                warm_up: 2_000,
                measured: 20_000,
            }
        } else {
            RoundSize {
                warm_up: 10_000,
                measured: 100_000,
            }
        }
    }
}

/// A side of the comparison.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DispatchSide {
    Onward,
    Graphile,
}

impl DispatchSide {
    const ALL: [Self; 2] = [Self::Onward, Self::Graphile];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Onward => "Onward",
            Self::Graphile => "graphile-worker",
        }
    }

    pub(crate) const fn unit(self) -> &'static str {
        match self {
            Self::Onward => "item",
            Self::Graphile => "job",
        }
    }

    /// Builds or installs the side, and returns its versions.
    fn install(self, root: &Path) -> Result<String> {
        match self {
            Self::Onward => onward::install(root),
            Self::Graphile => graphile::install(root),
        }
    }

    /// Runs one round on an empty database.
    fn measure(self, root: &Path, database: &str, size: RoundSize) -> Result<DispatchRound> {
        match self {
            Self::Onward => onward::measure(root, database, size),
            Self::Graphile => graphile::measure(root, database, size),
        }
    }
}

/// Returns the text to print.
pub(crate) fn compare(root: &Path, args: &DispatchArgs) -> Result<String> {
    let mut sides = Vec::new();
    for side in DispatchSide::ALL {
        sides.push(DispatchFigures {
            side,
            versions: side.install(root)?,
            rounds: Vec::new(),
        });
    }
    let server = PostgresServer::start(root)?;
    let settings = server.settings()?;
    for number in 1..=ROUNDS {
        for figures in &mut sides {
            eprintln!("  {}, {number} of {ROUNDS}", figures.side.name());
            let database = server.empty_database()?;
            let other_cores = busy_cores()?;
            let round = figures.side.measure(root, &database, args.size());
            let round = round.with_context(|| format!("{} failed", figures.side.name()))?;
            figures.rounds.push(DispatchRound {
                other_cores,
                ..round
            });
        }
        // Alternates the order, so that no side always runs first.
        sides.reverse();
    }
    sides.sort_by_key(|figures| figures.side);
    let machine = describe_machine(root);
    if !args.quick {
        page::put(
            root,
            &report::PLACE,
            &report::section(&machine, &settings, &sides),
        )?;
    }
    Ok(if args.json {
        report::json(&machine, &settings, &sides)
    } else {
        report::table(&machine, &settings, &sides)
    })
}

/// Returns the number of cores in use while both sides are idle.
fn busy_cores() -> Result<f64> {
    let machine_cpu = || machine_cpu_time().context("cannot read /proc/stat");
    let (watch, before) = (BenchStopwatch::start_now(), machine_cpu()?);
    pause_thread(OTHER_LOAD_WINDOW);
    Ok(machine_cpu()?.saturating_sub(before).as_secs_f64() / watch.elapsed().as_secs_f64())
}
