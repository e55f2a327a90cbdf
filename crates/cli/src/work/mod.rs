//! Components and executions in a store: deploy, start, look, explain, signal, cancel. And a demonstration.

mod cancel;
mod demo;
mod deploy;
mod doctor;
mod functions;
mod ls;
mod node;
mod show;
mod signal;
mod start;
mod tasks;
mod watch;
mod why;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Subcommand;
use onward_api::Json;
use onward_embed::{Builder, Engine, HostPattern, HostRule};
use onward_engine::client::Client;

use crate::waiting::block_on;

#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Deploy(deploy::Args),
    Functions(functions::Args),
    Start(start::Args),
    Ls(ls::Args),
    Show(show::Args),
    Why(why::Args),
    Tasks(tasks::Args),
    Watch(watch::Args),
    Signal(signal::Args),
    Cancel(cancel::Args),
    Doctor(doctor::Args),
    Node(node::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => block_on(demo::run(args)),
        Command::Deploy(args) => block_on(deploy::run(args)),
        Command::Functions(args) => block_on(functions::run(args)),
        Command::Start(args) => block_on(start::run(args)),
        Command::Ls(args) => block_on(ls::run(args)),
        Command::Show(args) => block_on(show::run(args)),
        Command::Why(args) => block_on(why::run(args)),
        Command::Tasks(args) => block_on(tasks::run(args)),
        Command::Watch(args) => block_on(watch::run(args)),
        Command::Signal(args) => block_on(signal::run(args)),
        Command::Cancel(args) => block_on(cancel::run(args)),
        Command::Doctor(args) => block_on(doctor::run(args)),
        Command::Node(args) => block_on(node::run(args)),
    }
}

/// Which execution.
#[derive(clap::Args)]
pub(crate) struct ExecutionArg {
    /// The execution: its id, or the beginning of it
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// JSON, or - for standard input.
fn payload(text: Option<&str>) -> anyhow::Result<Json> {
    let read;
    let text = match text {
        None => "null",
        Some("-") => {
            read = std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?;
            read.trim()
        }
        Some(text) => text,
    };
    Json::parse(text).with_context(|| format!("not JSON: {text} (a text needs quotes: '\"{text}\"')"))
}

/// Where the functions that run in this process may send requests.
#[derive(clap::Args)]
pub(crate) struct RunArgs {
    /// Let tasks send requests to this host, where their component may too: api.example.com, *.example.com, host:8443
    #[arg(long = "allow-host", value_name = "HOST", env = "ONWARD_ALLOW_HOSTS", value_delimiter = ',')]
    hosts: Vec<HostPattern>,
    /// The same for a host inside a network: 10.0.0.7, localhost:8080
    #[arg(long = "allow-private-host", value_name = "HOST", env = "ONWARD_ALLOW_PRIVATE_HOSTS", value_delimiter = ',')]
    private_hosts: Vec<HostPattern>,
}

impl RunArgs {
    /// An engine in this process, for whoever owns what `client` shows.
    pub(crate) fn engine(&self, client: &Client) -> Builder {
        let rule =
            |private_networks| move |pattern: &HostPattern| HostRule { pattern: pattern.clone(), private_networks };
        let hosts = self.hosts.iter().map(rule(false)).chain(self.private_hosts.iter().map(rule(true)));
        Engine::on(Arc::clone(client.store())).scope(client.scope().clone()).allow_hosts(hosts).workers()
    }
}
