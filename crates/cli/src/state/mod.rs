//! `onward state`: commands for run events and snapshots in a store.

mod append;
mod events;
mod ingest;
mod snapshot;
mod verify;

use std::process::ExitCode;

use clap::Subcommand;

use crate::runtimes::block_on;

#[derive(Subcommand)]
pub(crate) enum StateSubcommand {
    Append(append::StateAppendArgs),
    Events(events::StateEventsArgs),
    Snapshot(snapshot::StateSnapshotArgs),
    Verify(verify::StateVerifyArgs),
}

pub(crate) fn run_state_command(command: &StateSubcommand) -> anyhow::Result<ExitCode> {
    match command {
        StateSubcommand::Append(args) => block_on(append::append_run_events(args)),
        StateSubcommand::Events(args) => block_on(events::print_run_events(args)),
        StateSubcommand::Snapshot(args) => block_on(snapshot::print_snapshot(args)),
        StateSubcommand::Verify(args) => block_on(verify::verify_state(args)),
    }
}
