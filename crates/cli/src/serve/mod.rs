//! Server commands: `onward serve` for production, `onward dev` for development, and the management
//! of tokens and settings.

mod campaign_sender;
mod config;
mod dev;
mod otlp;
pub(crate) mod prometheus;
mod server;
mod settings;
mod token;

use std::process::ExitCode;

use clap::Subcommand;

use crate::runtimes::{block_on, block_on_server};

#[derive(Subcommand)]
pub(crate) enum ServerSubcommand {
    Dev(dev::DevServerArgs),
    Serve(server::ServeArgs),
    /// Create, list and revoke API tokens
    #[command(subcommand)]
    Token(token::TokenSubcommand),
    /// Show the server configuration
    #[command(subcommand)]
    Config(config::ConfigSubcommand),
}

pub(crate) fn run_server_command(command: &ServerSubcommand) -> anyhow::Result<ExitCode> {
    match command {
        ServerSubcommand::Dev(args) => {
            block_on_server(|runtimes| dev::run_dev_server(args, runtimes))
        }
        ServerSubcommand::Serve(args) => {
            block_on_server(|runtimes| server::serve_store(args, runtimes))
        }
        ServerSubcommand::Token(command) => block_on(token::run_token_command(command)),
        ServerSubcommand::Config(command) => config::show_config(command),
    }
}
