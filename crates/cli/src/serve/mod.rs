//! The server: `onward serve` for production, `onward dev` for a laptop, and what they need: tokens and settings.

mod campaigns;
mod config;
mod dev;
pub(crate) mod measured;
mod run;
mod settings;
mod token;
mod traces;

use std::process::ExitCode;

use clap::Subcommand;

use crate::waiting::block_on;

#[derive(Subcommand)]
pub(crate) enum Command {
    Dev(dev::Args),
    Serve(run::Args),
    /// Give, list and take back tokens
    #[command(subcommand)]
    Token(token::Command),
    /// Look at settings
    #[command(subcommand)]
    Config(config::Command),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Dev(args) => block_on(dev::run(args)),
        Command::Serve(args) => block_on(run::run(args)),
        Command::Token(command) => block_on(token::run(command)),
        Command::Config(command) => config::run(command),
    }
}
