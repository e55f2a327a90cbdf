//! The project's own commands, so that one `cargo xtask test` on a bare machine proves everything
//! that is checked.
//!
//! Kept apart from the product: nothing here is shipped, and nothing here is a dependency of
//! another crate.

mod clock;
mod command;
mod compare;
mod guests;
mod run;
mod steps;
mod tidy;
mod tools;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::compare::CompareArgs;
use crate::run::{Length, Output, XtaskRun};
use crate::steps::{fuzz, model, mutants};
use crate::tidy::names;
use crate::tidy::repository::Repository;

/// The project's checks: `cargo xtask test` runs all of them.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct XtaskCli {
    #[command(subcommand)]
    task: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Install what is missing, then run every check in order and stop at the first failure.
    Test(TestArgs),
    /// Check the rules that ARCHITECTURE.md states.
    Tidy,
    /// Print how many functions and types have a one-word name, and how many type names are
    /// repeated.
    Names,
    /// Typecheck, test and simulate the model in spec/, then replay it against the code.
    Model(PaceArgs),
    /// Fuzz every target for a while.
    Fuzz {
        /// Seconds for each target; the default is what `cargo xtask test` uses.
        #[arg(long)]
        seconds: Option<u32>,
        #[command(flatten)]
        pace: PaceArgs,
    },
    /// Build the components in examples/workflows and write them, with their digests, to
    /// examples/workflows/built.
    Guests {
        /// Write nothing: fail if what is built is not what is committed.
        #[arg(long)]
        check: bool,
    },
    /// Measure the same workloads on one engine after the other, by the same driver on this
    /// machine.
    Compare(CompareArgs),
    /// Change the code in small ways and see that a test notices each.
    Mutants {
        /// Passed on to `cargo mutants`.
        #[arg(last = true)]
        extra: Vec<String>,
    },
}

#[derive(Args)]
struct TestArgs {
    /// Run only this step; may be repeated.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the steps and what each is for, and run none.
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    pace: PaceArgs,
}

#[derive(Args)]
struct PaceArgs {
    /// Search longer: more samples of the model, more time for each fuzz target.
    #[arg(long)]
    long: bool,
    /// Show the output of passing commands too.
    #[arg(long)]
    verbose: bool,
}

impl PaceArgs {
    fn run(&self) -> Result<XtaskRun> {
        let length = if self.long {
            Length::Long
        } else {
            Length::Short
        };
        let output = if self.verbose {
            Output::Shown
        } else {
            Output::OnFailure
        };
        XtaskRun::locate(length, output)
    }
}

fn main() -> ExitCode {
    match perform(XtaskCli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: XtaskCommand) -> Result<()> {
    match task {
        XtaskCommand::Test(args) if args.list => print_data(&steps::list()),
        XtaskCommand::Test(args) => steps::test(&args.pace.run()?, &args.only),
        XtaskCommand::Tidy => {
            let run = XtaskRun::locate(Length::Short, Output::OnFailure)?;
            tools::ensure(&run, &[&tools::GIT])?;
            tidy::check_rules(&run)
        }
        XtaskCommand::Names => {
            let run = XtaskRun::locate(Length::Short, Output::OnFailure)?;
            let figures = names::measure(&Repository::read(&run)?);
            print_data(&figures.to_string())
        }
        XtaskCommand::Model(pace) => {
            let run = pace.run()?;
            tools::ensure(&run, model::TOOLS)?;
            model::check(&run)
        }
        XtaskCommand::Fuzz { seconds, pace } => {
            let run = pace.run()?;
            tools::ensure(&run, fuzz::TOOLS)?;
            fuzz::all_targets(&run, seconds.unwrap_or(fuzz::seconds_for(&run)))
        }
        XtaskCommand::Guests { check } => {
            let run = XtaskRun::locate(Length::Short, Output::OnFailure)?;
            guests::guests(
                &run,
                if check {
                    guests::Mode::Check
                } else {
                    guests::Mode::Write
                },
            )
        }
        XtaskCommand::Compare(args) => {
            let run = XtaskRun::locate(Length::Short, Output::OnFailure)?;
            print_data(&compare::compare(&run, &args)?)
        }
        XtaskCommand::Mutants { extra } => {
            let run = XtaskRun::locate(Length::Short, Output::Shown)?;
            tools::ensure(&run, mutants::TOOLS)?;
            mutants::mutate(&run, &extra)
        }
    }
}

/// Writes data to stdout; a reader that went away (`| head`) is not an error.
fn print_data(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::XtaskCli;

    #[test]
    fn the_command_line_is_consistent() {
        XtaskCli::command().debug_assert();
    }
}
