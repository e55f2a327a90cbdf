//! The binary `onward`. Data goes to standard output, words to standard error; exit codes are documented per command.

mod access;
mod bench;
mod campaign;
mod descriptors;
mod events;
mod journal;
mod lines;
mod log;
mod names;
mod outbox;
mod pages;
mod paint;
mod progress;
mod serve;
mod signals;
mod state;
mod terminal;
mod waiting;
mod work;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Durable execution: work that has been done is never lost, never silently repeated, and always explainable.
#[derive(Parser)]
#[command(name = "onward", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Work(work::Command),
    #[command(flatten)]
    Serve(serve::Command),
    Bench(bench::Args),
    /// Reach many people, each once: campaigns
    #[command(subcommand)]
    Campaign(campaign::Command),
    /// Look at what was sent to whom, and settle what is in doubt
    #[command(subcommand)]
    Outbox(outbox::OutboxCommand),
    /// Look at the jobs of campaigns, and try dead ones again
    #[command(subcommand)]
    Jobs(outbox::JobsCommand),
    /// Work with execution journals
    #[command(subcommand)]
    Journal(journal::Command),
    /// Work with run events and snapshots in a store
    #[command(subcommand)]
    State(state::Command),
}

fn main() -> ExitCode {
    log::to_stderr();
    let outcome = match Cli::parse().command {
        Command::Work(command) => work::run(&command),
        Command::Serve(command) => serve::run(&command),
        Command::Bench(args) => bench::run(&args),
        Command::Campaign(command) => campaign::run(&command),
        Command::Outbox(command) => outbox::run_outbox(&command),
        Command::Jobs(command) => outbox::run_jobs(&command),
        Command::Journal(command) => journal::run(&command),
        Command::State(command) => state::run(&command),
    };
    outcome.unwrap_or_else(|error| fail(&error))
}

/// What a shell reports for a program that a closed pipe ended.
const EXIT_BROKEN_PIPE: u8 = 128 + 13;
/// The command could not be carried out.
const EXIT_UNUSABLE: u8 = 2;

fn fail(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(broken_pipe) {
        return ExitCode::from(EXIT_BROKEN_PIPE);
    }
    paint::say(format_args!("{}: {}", paint::error("error"), words(error)));
    ExitCode::from(EXIT_UNUSABLE)
}

/// An error and its causes. Some errors say their cause themselves: it is not said again.
fn words(error: &anyhow::Error) -> String {
    let mut words = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match words.is_empty() {
            true => words = cause,
            false if words.ends_with(&cause) => {}
            false => words = format!("{words}: {cause}"),
        }
    }
    words
}
