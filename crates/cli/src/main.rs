//! The binary `onward`. Data goes to standard output, messages go to standard error; exit codes are
//! documented per command.

mod bench;
mod campaign;
mod connection;
mod console;
mod dev_folder;
mod execution;
mod fd_limit;
mod journal;
mod journal_reader;
mod line_reader;
mod logging;
mod names_file;
mod outbox;
mod paging;
mod progress;
mod retry;
mod runtimes;
mod serve;
mod shutdown;
mod state;
mod terminal;
mod terminal_output;

use std::io;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Durable execution: work that has been done is never lost, never silently repeated, and always
/// explainable.
#[derive(Parser)]
#[command(name = "onward", version, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Subcommand)]
enum CliCommand {
    #[command(flatten)]
    Execution(execution::ExecutionSubcommand),
    #[command(flatten)]
    Server(serve::ServerSubcommand),
    Bench(bench::BenchArgs),
    /// Send campaigns: each message to each recipient once
    #[command(subcommand)]
    Campaign(campaign::CampaignSubcommand),
    /// List sent messages and settle items in doubt
    #[command(subcommand)]
    Outbox(outbox::OutboxSubcommand),
    /// List campaign jobs and redrive dead ones
    #[command(subcommand)]
    Jobs(outbox::JobsSubcommand),
    /// Check, print and replay execution journals
    #[command(subcommand)]
    Journal(journal::JournalSubcommand),
    /// Append, read and verify run events and snapshots in a store
    #[command(subcommand)]
    State(state::StateSubcommand),
}

fn main() -> ExitCode {
    logging::init_stderr_logging();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) if error.use_stderr() => return report_usage_error(&error),
        // Help or the version, which are printed to standard output.
        Err(error) => error.exit(),
    };
    let outcome = match cli.command {
        CliCommand::Execution(command) => execution::run_execution_command(&command),
        CliCommand::Server(command) => serve::run_server_command(&command),
        CliCommand::Bench(args) => bench::run_bench(&args),
        CliCommand::Campaign(command) => campaign::run_campaign_command(&command),
        CliCommand::Outbox(command) => outbox::run_outbox_command(&command),
        CliCommand::Jobs(command) => outbox::run_jobs_command(&command),
        CliCommand::Journal(command) => journal::run_journal_command(&command),
        CliCommand::State(command) => state::run_state_command(&command),
    };
    outcome.unwrap_or_else(|error| report_failure(&error))
}

/// Exit code that a shell reports for a program ended by a closed pipe (128 + SIGPIPE).
const EXIT_BROKEN_PIPE: u8 = 128 + 13;
/// Exit code of a command that could not be carried out.
const EXIT_COMMAND_FAILED: u8 = 2;

fn report_usage_error(error: &clap::Error) -> ExitCode {
    console::print_lines(&error.render().ansi().to_string());
    ExitCode::from(EXIT_COMMAND_FAILED)
}

fn report_failure(error: &anyhow::Error) -> ExitCode {
    let broken_pipe = |cause: &(dyn std::error::Error + 'static)| {
        cause
            .downcast_ref::<io::Error>()
            .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    if error.chain().any(broken_pipe) {
        return ExitCode::from(EXIT_BROKEN_PIPE);
    }
    console::print_message(format_args!(
        "{}: {}",
        console::style_error("error"),
        format_error_chain(error)
    ));
    ExitCode::from(EXIT_COMMAND_FAILED)
}

/// Joins an error and its causes. A cause that the message already ends with is not repeated.
fn format_error_chain(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        match message.is_empty() {
            true => message = cause,
            false if message.ends_with(&cause) => {}
            false => message = format!("{message}: {cause}"),
        }
    }
    message
}
