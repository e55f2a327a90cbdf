//! `onward journal`: execution journals as files.

mod check;
mod table;

use std::process::ExitCode;

use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    Check(check::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Check(args) => check::run(args),
    }
}
