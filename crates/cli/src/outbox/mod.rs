//! `onward outbox` and `onward jobs`: the items that campaigns send and the jobs that contain them.

mod items;
mod jobs;
mod settle;

use std::process::ExitCode;

use clap::Subcommand;

use crate::console;
use crate::runtimes::block_on;

#[derive(Subcommand)]
pub(crate) enum OutboxSubcommand {
    Ls(items::OutboxListArgs),
    InDoubt(items::OutboxInDoubtArgs),
    Settle(settle::OutboxSettleArgs),
}

#[derive(Subcommand)]
pub(crate) enum JobsSubcommand {
    Ls(jobs::JobListArgs),
    Dead(jobs::DeadJobListArgs),
    Redrive(jobs::JobRedriveArgs),
}

pub(crate) fn run_outbox_command(command: &OutboxSubcommand) -> anyhow::Result<ExitCode> {
    match command {
        OutboxSubcommand::Ls(args) => block_on(items::list_outbox_items(args)),
        OutboxSubcommand::InDoubt(args) => block_on(items::list_in_doubt_items(args)),
        OutboxSubcommand::Settle(args) => block_on(settle::settle_items(args)),
    }
}

pub(crate) fn run_jobs_command(command: &JobsSubcommand) -> anyhow::Result<ExitCode> {
    match command {
        JobsSubcommand::Ls(args) => block_on(jobs::list_jobs(args)),
        JobsSubcommand::Dead(args) => block_on(jobs::list_dead_jobs(args)),
        JobsSubcommand::Redrive(args) => block_on(jobs::redrive_jobs(args)),
    }
}

/// Prints why an item or job was refused; adds its id unless the reason contains it.
fn print_refusal(id: &str, reason: &str) {
    let message = if reason.contains(id) {
        reason.to_owned()
    } else {
        format!("{id}: {reason}")
    };
    console::print_message(format_args!(
        "{}: {}",
        console::style_error("error"),
        console::escape_control_chars(&message)
    ));
}
