//! `onward journal`: commands for execution journals, in files and in a store.

mod check;
mod replay;
mod show;
pub(crate) mod table;

use std::process::ExitCode;

use clap::Subcommand;

use crate::runtimes::block_on;

#[derive(Subcommand)]
pub(crate) enum JournalSubcommand {
    Check(check::JournalCheckArgs),
    Show(show::JournalShowArgs),
    Replay(replay::JournalReplayArgs),
}

pub(crate) fn run_journal_command(command: &JournalSubcommand) -> anyhow::Result<ExitCode> {
    match command {
        JournalSubcommand::Check(args) => check::check_journal(args),
        JournalSubcommand::Show(args) => block_on(show::show_journal(args)),
        JournalSubcommand::Replay(args) => block_on(replay::run_journal_replay(args)),
    }
}
