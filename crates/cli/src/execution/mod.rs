//! Commands for components and executions: deploy, start, inspect, explain, signal, cancel and run
//! them. Also the demo.

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
use onward_api::RawJson;
use onward_embed::{Engine, EngineBuilder, HostPattern, HostRule};
use onward_engine::client::EngineClient;

use crate::runtimes::{block_on, block_on_server};

#[derive(Subcommand)]
pub(crate) enum ExecutionSubcommand {
    Demo(demo::DemoArgs),
    Deploy(deploy::ComponentDeployArgs),
    Functions(functions::FunctionListArgs),
    Start(start::ExecutionStartArgs),
    Ls(ls::ExecutionListArgs),
    Show(show::ExecutionShowArgs),
    Why(why::WhyArgs),
    Tasks(tasks::TaskListArgs),
    Watch(watch::ExecutionWatchArgs),
    Signal(signal::ExecutionSignalArgs),
    Cancel(cancel::ExecutionCancelArgs),
    Doctor(doctor::DoctorArgs),
    Node(node::NodeArgs),
}

pub(crate) fn run_execution_command(command: &ExecutionSubcommand) -> anyhow::Result<ExitCode> {
    match command {
        ExecutionSubcommand::Demo(args) => block_on(demo::run_demo(args)),
        ExecutionSubcommand::Deploy(args) => block_on(deploy::deploy_component(args)),
        ExecutionSubcommand::Functions(args) => block_on(functions::list_functions(args)),
        ExecutionSubcommand::Start(args) => block_on(start::start_execution(args)),
        ExecutionSubcommand::Ls(args) => block_on(ls::list_executions(args)),
        ExecutionSubcommand::Show(args) => block_on(show::show_execution(args)),
        ExecutionSubcommand::Why(args) => block_on(why::explain_execution(args)),
        ExecutionSubcommand::Tasks(args) => block_on(tasks::list_tasks(args)),
        ExecutionSubcommand::Watch(args) => block_on(watch::watch_execution(args)),
        ExecutionSubcommand::Signal(args) => block_on(signal::signal_execution(args)),
        ExecutionSubcommand::Cancel(args) => block_on(cancel::cancel_execution(args)),
        ExecutionSubcommand::Doctor(args) => block_on(doctor::run_doctor(args)),
        ExecutionSubcommand::Node(args) => {
            block_on_server(|runtimes| node::run_node(args, runtimes))
        }
    }
}

/// The execution that a command applies to.
#[derive(clap::Args)]
pub(crate) struct ExecutionArg {
    /// Execution: its id or an unambiguous prefix
    #[arg(value_name = "ID")]
    pub(crate) id: String,
}

/// Parses a JSON argument; `-` reads it from standard input, and a missing one is `null`.
fn parse_payload(text: Option<&str>) -> anyhow::Result<RawJson> {
    let input;
    let text = match text {
        None => "null",
        Some("-") => {
            input =
                std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?;
            input.trim()
        }
        Some(text) => text,
    };
    RawJson::parse(text)
        .with_context(|| format!("invalid JSON: {text} (quote a string: '\"{text}\"')"))
}

/// The hosts that functions in this process may send requests to.
#[derive(clap::Args)]
pub(crate) struct EngineArgs {
    /// Allow tasks to send requests to this host: api.example.com, *.example.com, host:8443. Their
    /// component has to allow the host too
    #[arg(
        long = "allow-host",
        value_name = "HOST",
        env = "ONWARD_ALLOW_HOSTS",
        value_delimiter = ','
    )]
    hosts: Vec<HostPattern>,
    /// Like --allow-host, for a host in a private network: 10.0.0.7, localhost:8080
    #[arg(
        long = "allow-private-host",
        value_name = "HOST",
        env = "ONWARD_ALLOW_PRIVATE_HOSTS",
        value_delimiter = ','
    )]
    private_hosts: Vec<HostPattern>,
}

impl EngineArgs {
    /// Builds an engine in this process for the store and scope of `client`.
    pub(crate) fn engine_builder(&self, client: &EngineClient) -> EngineBuilder {
        let rule = |private_networks| {
            move |pattern: &HostPattern| HostRule {
                pattern: pattern.clone(),
                private_networks,
            }
        };
        let hosts = self
            .hosts
            .iter()
            .map(rule(false))
            .chain(self.private_hosts.iter().map(rule(true)));
        Engine::on_store(Arc::clone(client.store()))
            .with_scope(client.scope().clone())
            .allow_hosts(hosts)
            .with_workers()
    }
}
