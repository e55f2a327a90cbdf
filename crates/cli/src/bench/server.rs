//! A server to measure: this binary again, as a process of its own, on a port that is free.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use onward_api::OnwardApi as _;
use onward_api::client::{ApiClient, ClientConfig};
use onward_api::token::TokenRole;
use onward_base::Scope;
use onward_service::token;
use onward_store::StorePolicy;

use super::BenchTaskRunner;
use super::database::BenchStore;
use super::figures::BenchUsage;
use super::process_usage;

/// The workflows of examples/workflows/bench.
pub(super) const WORKFLOWS: &[u8] =
    include_bytes!("../../../../examples/workflows/built/bench.wasm");

/// How long a server may take until it says where it is.
const STARTUP_TIMEOUT: Duration = Duration::from_secs(60);

/// More requests than anybody can send: the driver is one token.
const REQUESTS_PER_SECOND: &str = "4294967295";

/// How a server is started.
#[derive(Clone)]
pub(super) struct BenchServerLauncher {
    url: String,
    token: String,
    pub(super) lease_ms: Option<u64>,
    /// A host on this machine that workflows may send requests to.
    pub(super) host: Option<String>,
}

/// A server that is killed in the end.
pub(super) struct BenchServer {
    process: ChildProcess,
    pub(super) client: ApiClient,
    pub(super) url: String,
    pub(super) token: String,
}

impl BenchServerLauncher {
    /// On a store that is new: makes it, and a token for the driver.
    pub(super) async fn for_store(store: &BenchStore) -> anyhow::Result<Self> {
        let opened = onward_embed::store::open_store(&store.url, StorePolicy::default()).await?;
        let scope = Scope {
            tenant: "default".parse()?,
            project: "default".parse()?,
            environment: "default".parse()?,
        };
        let token = token::create_token(&*opened, &scope, "bench", TokenRole::Admin, None).await?;
        Ok(Self {
            url: store.url.clone(),
            token,
            lease_ms: None,
            host: None,
        })
    }

    /// A server that answers.
    pub(super) fn spawn_server(&self) -> anyhow::Result<BenchServer> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(["serve", "--store", &self.url, "--listen", "127.0.0.1:0"]);
        command.args(["--requests-per-second", REQUESTS_PER_SECOND]);
        if let Some(lease_ms) = self.lease_ms {
            command.args(["--lease-ms", &lease_ms.to_string()]);
        }
        if let Some(host) = &self.host {
            command.args(["--allow-private-host", host]);
        }
        // What the user has set for other servers is not meant here.
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
        let mut process = ChildProcess(command.spawn().context("cannot start a server")?);
        let stderr = process.0.stderr.take().context("a server without words")?;
        let (told, address) = mpsc::channel();
        std::thread::spawn(move || read_server_output(stderr, &told));
        let url = address
            .recv_timeout(STARTUP_TIMEOUT)
            .context("the server did not start: its words are above")?;
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

    /// The same, with the workflows deployed.
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
            .deploy_component(WORKFLOWS.to_vec(), hosts)
            .await
            .context("the workflows cannot be deployed")?;
        Ok(server)
    }
}

/// A process that is killed in the end: whatever goes wrong, none stays behind.
pub(super) struct ChildProcess(pub(super) Child);

impl ChildProcess {
    fn kill_and_wait(&mut self) -> std::io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        // Nothing more can be done about a failure here.
        drop(self.kill_and_wait());
    }
}

/// Reads what a server says until it is gone: first where it is. All else is handed on.
fn read_server_output(stderr: ChildStderr, told: &mpsc::Sender<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        match line.split_once(" on http://") {
            // Whoever waited for it may have given up.
            Some((_, address)) => drop(told.send(format!("http://{}", address.trim()))),
            None => crate::console::print_message(crate::console::escape_control_chars(&line)),
        }
    }
}

/// What is used before a server is started.
pub(super) async fn usage_before_start(store: &BenchStore) -> anyhow::Result<BenchUsage> {
    Ok(BenchUsage {
        cpu: Some(Duration::ZERO),
        driver_cpu: process_usage::cpu_time(std::process::id()),
        written_bytes: Some(store.log_bytes().await?.unwrap_or(0)),
        commits: Some(0),
    })
}

/// A figure without labels, in the text of `/metrics`.
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
    /// What it has used so far.
    pub(super) async fn read_usage(&self, store: &BenchStore) -> anyhow::Result<BenchUsage> {
        let process = self.process.0.id();
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

    /// Bytes that it has in memory.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        process_usage::resident_bytes(self.process.0.id())
    }

    /// A figure of `/metrics` that has no labels.
    pub(super) async fn read_metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        Ok(parse_metric(&self.client.fetch_metrics().await?, name))
    }

    /// SIGKILL, at once.
    pub(super) fn kill_server(mut self) -> anyhow::Result<()> {
        self.process
            .kill_and_wait()
            .context("cannot kill the server")
    }
}
