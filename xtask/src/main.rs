//! Development commands of the project: `cargo xtask test` runs every check, on any machine with
//! Rust and root.
//!
//! Separate from the product: nothing here is shipped, and no other crate depends on it.

mod clock;
mod command;
mod compare;
mod guests;
mod run;
mod soak;
mod steps;
mod tidy;
mod tools;

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, Parser, Subcommand};

use crate::compare::CompareArgs;
use crate::run::{Length, Output, XtaskRun};
use crate::soak::SoakArgs;
use crate::steps::{TimingDetail, fuzz, model, mutants};
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
    /// Install missing tools, then run every check. No step starts after a failure.
    Test(TestArgs),
    /// Check the architecture rules of ARCHITECTURE.md.
    Tidy,
    /// Print the share of one-word function names and type names, and of type names defined more
    /// than once.
    Names,
    /// Typecheck, test and simulate the model in spec/, then replay it against the code.
    Model(PaceArgs),
    /// Run every fuzz target for a limited time.
    Fuzz {
        /// Seconds per target (default: the same as `cargo xtask test`).
        #[arg(long)]
        seconds: Option<u32>,
        #[command(flatten)]
        pace: PaceArgs,
    },
    /// Build the components of examples/workflows, and write them and their digests to
    /// examples/workflows/built.
    Guests {
        /// Write nothing; fail if the built components differ from the committed ones.
        #[arg(long)]
        check: bool,
    },
    /// Benchmark Onward and other engines in turn, with the same workloads and load driver.
    Compare(CompareArgs),
    /// Repeat the tests that search for rare failures with other seeds, for a limited time, and add
    /// the figures to docs/ledger.md.
    Soak(SoakArgs),
    /// Run mutation tests: mutate the code, and expect a test to fail for each mutant.
    Mutants {
        /// Arguments for `cargo mutants`.
        #[arg(last = true)]
        extra: Vec<String>,
    },
}

#[derive(Args)]
struct TestArgs {
    /// Run only this step; can be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the steps and their purpose; run none.
    #[arg(long)]
    list: bool,
    /// Also print the slowest tests at the end.
    #[arg(long)]
    timings: bool,
    #[command(flatten)]
    pace: PaceArgs,
}

#[derive(Args)]
struct PaceArgs {
    /// Run longer: more model samples, longer journals, more kills of processes, two minutes of
    /// joining and leaving nodes, more time for each fuzz target.
    #[arg(long)]
    long: bool,
    /// Also print the output of successful commands.
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
    match run_command(XtaskCli::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_command(task: XtaskCommand) -> Result<()> {
    match task {
        XtaskCommand::Test(args) if args.list => print_data(&steps::list()),
        XtaskCommand::Test(args) => {
            let detail = if args.timings {
                TimingDetail::Tests
            } else {
                TimingDetail::Steps
            };
            steps::test(&args.pace.run()?, &args.only, detail)
        }
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
            compare::compare(&run, &args)
        }
        XtaskCommand::Soak(args) if args.list => print_data(&soak::list()),
        XtaskCommand::Soak(args) => {
            soak::soak(&XtaskRun::locate(Length::Short, Output::OnFailure)?, &args)
        }
        XtaskCommand::Mutants { extra } => {
            let run = XtaskRun::locate(Length::Short, Output::Shown)?;
            tools::ensure(&run, mutants::TOOLS)?;
            mutants::mutate(&run, &extra)
        }
    }
}

/// Writes data to stdout. A closed pipe (`| head`) is not an error.
fn print_data(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{XtaskCli, XtaskCommand};

    #[test]
    fn the_command_line_is_consistent() {
        XtaskCli::command().debug_assert();
    }

    #[test]
    fn a_comparison_receives_every_argument() {
        for line in ["--help", "--quick --only restate", "dispatch --help"] {
            let words = ["cargo xtask", "compare"].into_iter();
            let cli = XtaskCli::try_parse_from(words.chain(line.split(' '))).unwrap();
            let XtaskCommand::Compare(args) = cli.task else {
                panic!("another command than compare");
            };
            assert_eq!(args.args.join(" "), line);
        }
    }
}
