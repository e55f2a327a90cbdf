//! Components and executions in a store: deploy, start, look, explain, signal, cancel. And a demonstration.

mod cancel;
mod demo;
mod deploy;
mod doctor;
mod ls;
mod show;
mod signal;
mod start;
mod watch;
mod why;
mod worker;

use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use clap::Subcommand;
use onward_embed::{Builder, Engine, HostPattern, HostRule};
use onward_engine::client::{Client, Scope};
use onward_journal::{ExecutionId, Payload};
use onward_store::Policy;
use onward_store::tables::Execution;

use crate::store::{StoreArgs, block_on};

#[derive(Subcommand)]
pub(crate) enum Command {
    Demo(demo::Args),
    Deploy(deploy::Args),
    Start(start::Args),
    Ls(ls::Args),
    Show(show::Args),
    Why(why::Args),
    Watch(watch::Args),
    Signal(signal::Args),
    Cancel(cancel::Args),
    Doctor(doctor::Args),
    Worker(worker::Args),
}

pub(crate) fn run(command: &Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Demo(args) => block_on(demo::run(args)),
        Command::Deploy(args) => block_on(deploy::run(args)),
        Command::Start(args) => block_on(start::run(args)),
        Command::Ls(args) => block_on(ls::run(args)),
        Command::Show(args) => block_on(show::run(args)),
        Command::Why(args) => block_on(why::run(args)),
        Command::Watch(args) => block_on(watch::run(args)),
        Command::Signal(args) => block_on(signal::run(args)),
        Command::Cancel(args) => block_on(cancel::run(args)),
        Command::Doctor(args) => block_on(doctor::run(args)),
        Command::Worker(args) => block_on(worker::run(args)),
    }
}

/// Which store, and whose executions in it.
#[derive(clap::Args)]
pub(crate) struct WorkArgs {
    #[command(flatten)]
    store: StoreArgs,
    /// The tenant
    #[arg(long, env = "ONWARD_TENANT", default_value = "default", hide_default_value = true)]
    tenant: onward_runs::TenantId,
    /// The project
    #[arg(long, env = "ONWARD_PROJECT", default_value = "default", hide_default_value = true)]
    project: onward_runs::ProjectId,
    /// The environment
    #[arg(long, env = "ONWARD_ENVIRONMENT", default_value = "default", hide_default_value = true)]
    environment: onward_runs::EnvironmentId,
}

impl WorkArgs {
    fn scope(&self) -> Scope {
        Scope { tenant: self.tenant.clone(), project: self.project.clone(), environment: self.environment.clone() }
    }

    /// A store that is there, to read from it.
    pub(crate) async fn existing(&self) -> anyhow::Result<Client> {
        Ok(Client::new(self.store.open_existing().await?, self.scope()))
    }

    /// A store that is there, to write to.
    async fn open_existing(&self) -> anyhow::Result<Client> {
        drop(self.existing().await?);
        self.open().await
    }

    /// A store to write to.
    async fn open(&self) -> anyhow::Result<Client> {
        Ok(Client::new(self.store.open(Policy::default()).await?, self.scope()))
    }
}

/// Which execution.
#[derive(clap::Args)]
pub(crate) struct ExecutionArg {
    /// The execution: its id, or the beginning of it
    #[arg(value_name = "ID")]
    id: String,
}

/// Executions that are looked through for one whose id begins as given.
const LOOKED_THROUGH: usize = 100_000;

impl ExecutionArg {
    /// The execution that is meant.
    pub(crate) async fn find(&self, client: &Client) -> anyhow::Result<Execution> {
        if let Ok(id) = self.id.parse::<ExecutionId>() {
            return client.execution(id).await?.with_context(|| format!("there is no execution {id}"));
        }
        let beginning = self.id.to_ascii_lowercase();
        if beginning.len() < 4 || !beginning.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            bail!("{} is not the id of an execution, nor four or more digits of one", self.id);
        }
        let (mut found, mut after, mut seen): (Option<Execution>, Option<Execution>, _) = (None, None, 0);
        while seen < LOOKED_THROUGH {
            let rows = client.executions(after.as_ref(), 1_000).await?;
            let Some(last) = rows.last().cloned() else { break };
            (seen, after) = (seen + rows.len(), Some(last));
            for row in rows.into_iter().filter(|row| row.execution_id.to_string().starts_with(&beginning)) {
                if found.replace(row).is_some() {
                    bail!("several executions begin with {beginning}: give more digits");
                }
            }
        }
        found.with_context(|| format!("there is no execution {beginning}…"))
    }
}

/// JSON, or - for standard input.
fn payload(text: Option<&str>) -> anyhow::Result<Payload> {
    let read;
    let text = match text {
        None => "null",
        Some("-") => {
            read = std::io::read_to_string(std::io::stdin()).context("cannot read standard input")?;
            read.trim()
        }
        Some(text) => text,
    };
    Payload::parse(text).with_context(|| format!("not JSON: {text} (a text needs quotes: '\"{text}\"')"))
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
        Engine::on(Arc::clone(client.store())).scope(client.scope().clone()).allow_hosts(hosts)
    }
}
