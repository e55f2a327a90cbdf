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

use crate::retry::block_on;

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
        ServerSubcommand::Dev(args) => block_on(dev::run_dev_server(args)),
        ServerSubcommand::Serve(args) => block_on(server::serve_store(args)),
        ServerSubcommand::Token(command) => block_on(token::run_token_command(command)),
        ServerSubcommand::Config(command) => config::show_config(command),
    }
}
