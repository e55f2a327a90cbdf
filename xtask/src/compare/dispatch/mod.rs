//! How fast items of campaigns are dispatched beside the jobs of a queue that people know, on one
//! Postgres server, in one run.
//!
//! Sides take turns, each with an empty database of the same server, which syncs what it commits.
//! What both do is not the same, and docs/benchmarks.md says what the difference is: the rates say
//! what it costs.

mod graphile;
mod onward;
mod report;
mod round;
mod server;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use crate::clock::{Stopwatch, pause};
use crate::compare::dispatch::report::DispatchFigures;
use crate::compare::dispatch::round::{Round, Size};
use crate::compare::dispatch::server::Server;
use crate::compare::usage::machine_cpu;
use crate::compare::{ROUNDS, machine, page};
use crate::run::XtaskRun;

/// For how long others are watched before a side begins.
const WATCHED: Duration = Duration::from_secs(1);

#[derive(Args)]
pub(crate) struct DispatchArgs {
    /// Measure fewer items, for rough figures; docs/benchmarks.md stays as it is.
    #[arg(long)]
    quick: bool,
    /// Print every round as JSON.
    #[arg(long)]
    json: bool,
}

impl DispatchArgs {
    fn size(&self) -> Size {
        if self.quick {
            Size {
                warm_up: 2_000,
                measured: 20_000,
            }
        } else {
            Size {
                warm_up: 10_000,
                measured: 100_000,
            }
        }
    }
}

/// Who is measured.
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

    /// Gets what is needed to measure it, and returns its versions.
    fn install(self, run: &XtaskRun) -> Result<String> {
        match self {
            Self::Onward => onward::install(run),
            Self::Graphile => graphile::install(run),
        }
    }

    /// Has it work on an empty database.
    fn measure(self, run: &XtaskRun, database: &str, size: Size) -> Result<Round> {
        match self {
            Self::Onward => onward::measure(run, database, size),
            Self::Graphile => graphile::measure(run, database, size),
        }
    }
}

/// Returns what is to be printed.
pub(crate) fn compare(run: &XtaskRun, args: &DispatchArgs) -> Result<String> {
    let mut sides = Vec::new();
    for side in DispatchSide::ALL {
        sides.push(DispatchFigures {
            side,
            versions: side.install(run)?,
            rounds: Vec::new(),
        });
    }
    let server = Server::start(run)?;
    let settings = server.settings()?;
    for number in 1..=ROUNDS {
        for figures in &mut sides {
            eprintln!("  {}, {number} of {ROUNDS}", figures.side.name());
            let database = server.empty_database()?;
            let other_cores = busy_cores()?;
            let round = figures.side.measure(run, &database, args.size());
            let round = round.with_context(|| format!("{} failed", figures.side.name()))?;
            figures.rounds.push(Round {
                other_cores,
                ..round
            });
        }
        // Whoever is first in one round is last in the next.
        sides.reverse();
    }
    sides.sort_by_key(|figures| figures.side);
    let machine = machine::describe(run);
    if !args.quick {
        page::put(
            run,
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

/// How many cores are busy while neither side does anything.
fn busy_cores() -> Result<f64> {
    let (watch, before) = (Stopwatch::start(), machine_cpu()?);
    pause(WATCHED);
    Ok(machine_cpu()?.saturating_sub(before).as_secs_f64() / watch.elapsed().as_secs_f64())
}
