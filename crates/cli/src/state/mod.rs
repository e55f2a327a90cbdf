//! `onward state`: run events and snapshots in a store.

mod append;
mod events;
mod ingest;
mod snapshot;
mod verify;

use std::process::ExitCode;

use clap::Subcommand;

use crate::waiting::block_on;

#[derive(Subcommand)]
pub(crate) enum Command {
    Append(append::Args),
    Events(events::Args),
    Snapshot(snapshot::Args),
    Verify(verify::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Append(args) => block_on(append::run(args)),
        Command::Events(args) => block_on(events::run(args)),
        Command::Snapshot(args) => block_on(snapshot::run(args)),
        Command::Verify(args) => block_on(verify::run(args)),
    }
}
