//! How fast Onward is beside an engine that people know, on the same machine, by the same driver,
//! in one run.
//!
//! A rate says little by itself. Sides take turns, each with new processes and no data, so that
//! what slows the machine down for a while slows down all; medians count. What a side promises for
//! a finished step is read from the side itself and printed with its figures.

mod dispatch;
mod driver;
mod http;
mod machine;
mod measurement;
mod npm;
mod onward;
mod page;
mod process;
mod report;
mod restate;
mod side;
mod usage;
mod workload;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand, ValueEnum};

use crate::compare::dispatch::DispatchArgs;
use crate::compare::measurement::{MeasurementPace, measure};
use crate::compare::report::ComparisonFigures;
use crate::compare::side::{Choices, ComparedEngine};
use crate::compare::workload::WORKLOADS;
use crate::run::XtaskRun;

const ROUNDS: usize = 3;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct CompareArgs {
    #[command(subcommand)]
    other: Option<Other>,
    /// Measure only this side; docs/benchmarks.md stays as it is.
    #[arg(long, value_name = "SIDE")]
    only: Option<ComparedEngine>,
    /// Measure for a shorter time, for rough figures; docs/benchmarks.md stays as it is.
    #[arg(long)]
    quick: bool,
    /// Print every repetition as JSON.
    #[arg(long)]
    json: bool,
    /// How many partitions Restate has; one for each core unless told.
    #[arg(long, value_name = "N")]
    partitions: Option<u16>,
}

/// What is compared besides workflows.
#[derive(Subcommand)]
enum Other {
    /// Dispatch items of campaigns, and perform jobs of a queue, on one Postgres server.
    Dispatch(DispatchArgs),
}

impl CompareArgs {
    fn pace(&self) -> MeasurementPace {
        let [warm_up, measured] =
            if self.quick { [1, 2] } else { [3, 10] }.map(Duration::from_secs);
        MeasurementPace { warm_up, measured }
    }
}

/// Returns what is to be printed.
pub(crate) fn compare(run: &XtaskRun, args: &CompareArgs) -> Result<String> {
    match &args.other {
        None => engines(run, args),
        Some(Other::Dispatch(args)) => dispatch::compare(run, args),
    }
}

fn engines(run: &XtaskRun, args: &CompareArgs) -> Result<String> {
    let choices = Choices {
        partitions: args.partitions,
    };
    let mut sides = Vec::new();
    for side in ComparedEngine::value_variants()
        .iter()
        .filter(|side| args.only.is_none_or(|only| only == **side))
    {
        sides.push(ComparisonFigures::new(*side, side.install(run, choices)?));
    }
    for round in 1..=ROUNDS {
        for figures in &mut sides {
            eprintln!("  {}, {round} of {ROUNDS}", figures.side.name());
            repeat(run, choices, args.pace(), figures)?;
        }
        // Whoever is first in one round is last in the next.
        sides.reverse();
    }
    sides.sort_by_key(|figures| figures.side);
    let machine = machine::describe(run);
    if !args.quick && args.only.is_none() {
        page::write(run, &machine, &sides)?;
    }
    Ok(if args.json {
        report::json(&machine, &sides)
    } else {
        report::table(&sides)
    })
}

/// Every workload once, on a side that has just been started.
fn repeat(
    run: &XtaskRun,
    choices: Choices,
    pace: MeasurementPace,
    figures: &mut ComparisonFigures,
) -> Result<()> {
    let running = figures.side.start(run, choices)?;
    for (workload, repetitions) in WORKLOADS.iter().zip(&mut figures.repetitions) {
        let measured = measure(running.as_ref(), workload, pace);
        repetitions.push(measured.with_context(|| format!("{} failed", workload.work.name()))?);
    }
    Ok(())
}
