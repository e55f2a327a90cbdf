//! A server to measure: this binary again, as a process of its own, on a port that is free.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::Context as _;
use onward_api::Onward as _;
use onward_api::client::{Access, Client};
use onward_api::token::Role;
use onward_engine::client::Scope;
use onward_server::token;
use onward_store::Policy;

use super::Tasks;
use super::figures::Meters;
use super::place::Store;
use super::usage;

/// The workflows of examples/workflows/bench.
pub(super) const WORKFLOWS: &[u8] = include_bytes!("../../../../examples/workflows/built/bench.wasm");

/// How long a server may take until it says where it is.
const PATIENCE: Duration = Duration::from_secs(60);

/// More requests than anybody can send: the driver is one token.
const REQUESTS_PER_SECOND: &str = "4294967295";

/// How a server is started.
#[derive(Clone)]
pub(super) struct Start {
    url: String,
    token: String,
    pub(super) lease_ms: Option<u64>,
    /// A host on this machine that workflows may send requests to.
    pub(super) host: Option<String>,
}

/// A server that is killed in the end.
pub(super) struct Server {
    process: Process,
    pub(super) client: Client,
    pub(super) url: String,
    pub(super) token: String,
}

impl Start {
    /// On a store that is new: makes it, and a token for the driver.
    pub(super) async fn on(store: &Store) -> anyhow::Result<Self> {
        let opened = onward_embed::store::open(&store.url, Policy::default()).await?;
        let scope = Scope { tenant: "default".parse()?, project: "default".parse()?, environment: "default".parse()? };
        let token = token::create(&*opened, &scope, "bench", Role::Admin, None).await?;
        Ok(Self { url: store.url.clone(), token, lease_ms: None, host: None })
    }

    /// A server that answers.
    pub(super) fn run(&self) -> anyhow::Result<Server> {
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
        for name in ["ONWARD_CONFIG", "ONWARD_STORE", "ONWARD_LISTEN", "ONWARD_LEASE_MS", "ONWARD_NODE_NAME"] {
            command.env_remove(name);
        }
        command.env("NO_COLOR", "1");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = Process(command.spawn().context("cannot start a server")?);
        let stderr = process.0.stderr.take().context("a server without words")?;
        let (told, address) = mpsc::channel();
        std::thread::spawn(move || listen(stderr, &told));
        let url = address.recv_timeout(PATIENCE).context("the server did not start: its words are above")?;
        let token = self.token.clone();
        let client = Client::new(&Access { url: url.clone(), token: Some(token.clone()), scope: None })?;
        Ok(Server { process, client, url, token })
    }

    /// The same, with the workflows deployed.
    pub(super) async fn run_with_workflows(&self, tasks: Tasks) -> anyhow::Result<Server> {
        let server = self.run()?;
        let hosts = self.host.iter().cloned().chain(tasks.hosts()).collect();
        server.client.deploy(WORKFLOWS.to_vec(), hosts).await.context("the workflows cannot be deployed")?;
        Ok(server)
    }
}

/// A process that is killed in the end: whatever goes wrong, none stays behind.
pub(super) struct Process(pub(super) Child);

impl Process {
    fn kill(&mut self) -> std::io::Result<()> {
        self.0.kill()?;
        self.0.wait().map(drop)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing more can be done about a failure here.
        drop(self.kill());
    }
}

/// Reads what a server says until it is gone: first where it is. All else is handed on.
fn listen(stderr: ChildStderr, told: &mpsc::Sender<String>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        match line.split_once(" on http://") {
            // Whoever waited for it may have given up.
            Some((_, address)) => drop(told.send(format!("http://{}", address.trim()))),
            None => crate::paint::say(crate::paint::plain(&line)),
        }
    }
}

/// What is used before a server is started.
pub(super) async fn nothing_yet(store: &Store) -> anyhow::Result<Meters> {
    Ok(Meters {
        cpu: Some(Duration::ZERO),
        driver_cpu: usage::cpu(std::process::id()),
        written_bytes: Some(store.log_bytes().await?.unwrap_or(0)),
        commits: Some(0),
    })
}

/// A figure without labels, in the text of `/metrics`.
pub(super) fn figure(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
}

impl Server {
    /// What it has used so far.
    pub(super) async fn meters(&self, store: &Store) -> anyhow::Result<Meters> {
        let process = self.process.0.id();
        let written_bytes = match store.log_bytes().await? {
            Some(bytes) => Some(bytes),
            None => usage::written_bytes(process),
        };
        Ok(Meters {
            cpu: usage::cpu(process),
            driver_cpu: usage::cpu(std::process::id()),
            written_bytes,
            commits: self.metric("onward_store_transactions_total").await?.map(|count| count as u64),
        })
    }

    /// Bytes that it has in memory.
    pub(super) fn resident_bytes(&self) -> Option<u64> {
        usage::resident_bytes(self.process.0.id())
    }

    /// A figure of `/metrics` that has no labels.
    pub(super) async fn metric(&self, name: &str) -> anyhow::Result<Option<f64>> {
        Ok(figure(&self.client.metrics().await?, name))
    }

    /// SIGKILL, at once.
    pub(super) fn kill(mut self) -> anyhow::Result<()> {
        self.process.kill().context("cannot kill the server")
    }
}
