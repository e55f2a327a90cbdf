//! `onward journal`: execution journals, as files and in a store.

mod check;
mod replay;
mod show;
pub(crate) mod table;

use std::process::ExitCode;

use clap::Subcommand;

use crate::waiting::block_on;

#[derive(Subcommand)]
pub(crate) enum Command {
    Check(check::Args),
    Show(show::Args),
    Replay(replay::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Check(args) => check::run(args),
        Command::Show(args) => block_on(show::run(args)),
        Command::Replay(args) => block_on(replay::run(args)),
    }
}
