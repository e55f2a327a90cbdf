//! A server to measure: the binary `onward` as a child process on a free port.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use onward_api::OnwardApi as _;
use onward_api::client::{ApiClient, ClientConfig};
use onward_api::component::ComponentDeployment;
use onward_api::token::TokenRole;
use onward_base::Scope;
use onward_service::token;
use onward_store::StorePolicy;

use super::database::BenchStore;
use super::figures::BenchUsage;
use super::{BenchHost, BenchTaskRunner};
use crate::child_process::ChildProcess;
use crate::process_usage;

/// The compiled workflows of `examples/workflows/bench`.
pub(super) const WORKFLOWS: &[u8] = include_bytes!("../../../examples/workflows/built/bench.wasm");

/// Timeout until the server has printed its address.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// Rate limit that a driver, which uses a single token, cannot reach.
pub const UNLIMITED_REQUESTS_PER_SECOND: &str = "4294967295";

/// Settings to start a server with.
#[derive(Clone)]
pub(super) struct BenchServerLauncher {
    program: PathBuf,
    print_message: fn(&str),
    url: String,
    token: String,
    pub(super) lease_ms: Option<u64>,
    /// A host on this machine that workflows may send requests to.
    pub(super) host: Option<String>,
}

/// A running server and a client for it. The process is killed on drop.
pub(super) struct BenchServer {
    process: ChildProcess,
    pub(super) client: ApiClient,
    pub(super) url: String,
    pub(super) token: String,
}

impl BenchServerLauncher {
    /// Initializes a new store and creates an admin token for the driver.
    pub(super) async fn for_store(host: &BenchHost, store: &BenchStore) -> anyhow::Result<Self> {
        let opened = onward_embed::store::open_store(&store.url, StorePolicy::default()).await?;
        let scope = Scope {
            tenant: "default".parse()?,
            project: "default".parse()?,
            environment: "default".parse()?,
        };
        let token = token::create_token(&*opened, &scope, "bench", TokenRole::Admin, None).await?;
        Ok(Self {
            program: host.program.clone(),
            print_message: host.print_message,
            url: store.url.clone(),
            token,
            lease_ms: None,
            host: None,
        })
    }

    /// Starts a server and waits until it has printed its address.
    pub(super) fn spawn_server(&self) -> anyhow::Result<BenchServer> {
        let mut command = Command::new(&self.program);
        command.args(["serve", "--store", &self.url, "--listen", "127.0.0.1:0"]);
        command.args(["--requests-per-second", UNLIMITED_REQUESTS_PER_SECOND]);
        if let Some(lease_ms) = self.lease_ms {
            command.args(["--lease-ms", &lease_ms.to_string()]);
        }
        if let Some(host) = &self.host {
            command.args(["--allow-private-host", host]);
        }
        // Settings in the user's environment are meant for other servers.
        for name in [
            "ONWARD_CONFIG",
            "ONWARD_STORE",
            "ONWARD_LISTEN",
            "ONWARD_LEASE_MS",
            "ONWARD_NODE_NAME",
        ] {
            command.env_remove(name);
        }
        command.env("NO_COLOR", "1");
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut process =
            ChildProcess::spawn_command(&mut command).context("cannot start a server")?;
        let stderr = process
            .take_stderr()
            .context("the standard error of the server is not piped")?;
        let (sender, address) = mpsc::channel();
        let print_message = self.print_message;
        std::thread::spawn(move || read_server_output(stderr, &sender, print_message));
        let url = address
            .recv_timeout(STARTUP_TIMEOUT)
            .context("the server has not printed its address: its output is above")?;
        let token = self.token.clone();
        let client = ApiClient::new(&ClientConfig {
            url: url.clone(),
            token: Some(token.clone()),
            scope: None,
        })?;
        Ok(BenchServer {
            process,
            client,
            url,
            token,
        })
    }

    /// Starts a server and deploys the benchmark workflows.
    pub(super) async fn spawn_with_workflows(
        &self,
        tasks: BenchTaskRunner,
    ) -> anyhow::Result<BenchServer> {
        let server = self.spawn_server()?;
        let hosts = self
            .host
            .iter()
            .cloned()
            .chain(tasks.allowed_hosts())
            .collect();
        server
            .client
            .deploy_component(ComponentDeployment {
                code: WORKFLOWS.to_vec(),
                hosts,
                replace: false,
            })
            .await
            .context("cannot deploy the workflows")?;
        Ok(server)
    }
}

/// Reads the server's standard error until the server exits: sends its address to the channel and
/// prints all other lines.
fn read_server_output(stderr: ChildStderr, sender: &mpsc::Sender<String>, print_message: fn(&str)) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        match line.split_once(" on http://") {
            // The receiver may have timed out.
            Some((_, address)) => drop(sender.send(format!("http://{}", address.trim()))),
            None => print_message(&line),
        }
    }
}

/// Returns the usage to subtract for a server that is not started yet.
pub(super) async fn usage_before_start(store: &BenchStore) -> anyhow::Result<BenchUsage> {
    Ok(BenchUsage {
        cpu: Some(Duration::ZERO),
        driver_cpu: process_usage::cpu_time(std::process::id()),
        written_bytes: Some(store.log_bytes().await?.unwrap_or(0)),
        commits: Some(0),
    })
}

/// Returns the value of a metric without labels from the text of `/metrics`.
pub(super) fn parse_metric(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .strip_prefix(' ')?
            .trim()
            .parse()
            .ok()
    })
}

impl BenchServer {
    /// Reads the resources that the server and the driver have used so far.
    pub(super) async fn read_usage(&self, store: &BenchStore) -> anyhow::Result<BenchUsage> {
        let process = self.process.process_id();
        let written_bytes = match store.log_bytes().await? {
            Some(bytes) => Some(bytes),
            None => process_usage::written_bytes(process),
        };
        Ok(BenchUsage {
            cpu: process_usage::cpu_time(process),
            driver_cpu: process_usage::cpu_time(std::process::id()),
            written_bytes,
            commits: self
                .read_metric("onward_store_transactions_total")
                .await?
                .map(|count| count as u64),
        })
    }

    /// Returns the resident set size of the server in bytes.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        process_usage::resident_bytes(self.process.process_id())
    }

    /// Fetches the value of a metric without labels from `/metrics`.
    pub(super) async fn read_metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        Ok(parse_metric(&self.client.fetch_metrics().await?, name))
    }

    /// Kills the server with SIGKILL and waits until it has exited.
    pub(super) fn kill_server(mut self) -> anyhow::Result<()> {
        self.process
            .kill_and_wait()
            .context("cannot kill the server")
    }
}
