//! What was sent to whom, and the jobs that it was sent in.

mod items;
mod jobs;
mod settle;

use std::process::ExitCode;

use clap::Subcommand;

use crate::paint;
use crate::waiting::block_on;

#[derive(Subcommand)]
pub(crate) enum OutboxCommand {
    Ls(items::LsArgs),
    InDoubt(items::InDoubtArgs),
    Settle(settle::Args),
}

#[derive(Subcommand)]
pub(crate) enum JobsCommand {
    Ls(jobs::LsArgs),
    Dead(jobs::DeadArgs),
    Redrive(jobs::RedriveArgs),
}

pub(crate) fn run_outbox(command: &OutboxCommand) -> anyhow::Result<ExitCode> {
    match command {
        OutboxCommand::Ls(args) => block_on(items::ls(args)),
        OutboxCommand::InDoubt(args) => block_on(items::in_doubt(args)),
        OutboxCommand::Settle(args) => block_on(settle::run(args)),
    }
}

pub(crate) fn run_jobs(command: &JobsCommand) -> anyhow::Result<ExitCode> {
    match command {
        JobsCommand::Ls(args) => block_on(jobs::ls(args)),
        JobsCommand::Dead(args) => block_on(jobs::dead(args)),
        JobsCommand::Redrive(args) => block_on(jobs::redrive(args)),
    }
}

/// Says why something was refused, and of what, once.
fn say_refused(what: &str, why: &str) {
    let words = if why.contains(what) { why.to_owned() } else { format!("{what}: {why}") };
    paint::say(format_args!("{}: {}", paint::error("error"), paint::plain(&words)));
}
