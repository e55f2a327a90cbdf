//! A cluster: one server with its data, from its making to its end.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::Error;
use crate::installation::Installation;
use crate::undertaker::Undertaker;

/// The superuser of every cluster. It needs no password: the server listens on the loopback interface only.
const USER: &str = "onward";
/// Another process may take a port between our choice and the server's start.
const PORT_TRIES: usize = 5;

/// Whether the server writes what it commits to disk before it says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// It does, as in production.
    #[default]
    Synced,
    /// It leaves that to the operating system: faster, for tests that crash nothing and measure nothing.
    Careless,
}

/// A Postgres server of our own. Dropping it stops the server and removes its data.
#[derive(Debug)]
pub struct Cluster {
    installation: Installation,
    folder: PathBuf,
    port: u16,
    durability: Durability,
    databases: AtomicU32,
    _undertaker: Undertaker,
}

impl Cluster {
    /// Makes and starts a cluster that keeps what it commits.
    pub fn start() -> Result<Self, Error> {
        Self::start_with(Durability::Synced)
    }

    /// Makes and starts a cluster.
    pub fn start_with(durability: Durability) -> Result<Self, Error> {
        let installation = Installation::find()?;
        let made = tempfile::Builder::new().prefix("onward-postgres-").tempdir();
        let made = made.map_err(|source| Error::Folder { path: std::env::temp_dir(), source })?;
        installation.hand_over(made.path())?;
        let undertaker = Undertaker::watch(made.path())?;
        let folder = made.keep();
        let databases = AtomicU32::new(0);
        let mut cluster = Self { installation, folder, port: 0, durability, databases, _undertaker: undertaker };
        cluster.initialise()?;
        cluster.start_on_some_port()?;
        Ok(cluster)
    }

    /// The cluster that the tests of this process share while any of them holds it.
    pub fn shared() -> Result<Arc<Self>, Error> {
        static SHARED: Mutex<Weak<Cluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = shared.upgrade() {
            return Ok(cluster);
        }
        let cluster = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&cluster);
        Ok(cluster)
    }

    /// Makes a database and returns its URL.
    pub fn database(&self) -> Result<String, Error> {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed) + 1);
        let port = self.port.to_string();
        let args = ["-h", "127.0.0.1", "-p", &port, "-U", USER, "--maintenance-db=postgres", &name];
        self.installation.command("createdb").args(args).output()?;
        Ok(self.url(&name))
    }

    /// The URL of a database by its name, whether there is one or not.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// The port on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The folder of the data, the log and the Unix socket.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The process id of the server.
    pub fn pid(&self) -> Result<u32, Error> {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).map_err(|_| Error::Stopped)?;
        file.lines().next().and_then(|line| line.trim().parse().ok()).ok_or(Error::Stopped)
    }

    /// Stops the server at once, as a crash would: nothing is written to disk that is not there already.
    pub fn kill(&self) -> Result<(), Error> {
        self.control(["stop", "-m", "immediate"])
    }

    /// Starts the server again on the same port; it recovers from its log if it was killed.
    pub fn restart(&self) -> Result<(), Error> {
        self.serve(self.port)
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn initialise(&self) -> Result<(), Error> {
        let options = ["--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8", "--username", USER, "-D"];
        self.installation.command("initdb").args(options).args([self.data()]).output().map(drop)
    }

    fn start_on_some_port(&mut self) -> Result<(), Error> {
        let mut tried = free_port().and_then(|port| self.serve(port).map(|()| port));
        for _ in 1..PORT_TRIES {
            if tried.is_ok() {
                break;
            }
            tried = free_port().and_then(|port| self.serve(port).map(|()| port));
        }
        self.port = tried?;
        Ok(())
    }

    fn serve(&self, port: u16) -> Result<(), Error> {
        let fsync = if self.durability == Durability::Synced { "on" } else { "off" };
        let settings = format!(
            "-p {port} -k '{}' -c listen_addresses=127.0.0.1 -c max_connections=200 -c fsync={fsync}",
            self.folder.display()
        );
        self.control(["start", "--wait", "-o", &settings])
    }

    fn control<'a>(&'a self, args: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
        let log = self.folder.join("log");
        let control = self.installation.command("pg_ctl").args(args);
        let done = control.args([Path::new("-D"), &self.data(), Path::new("-l"), &log]).run();
        done.map_err(|error| match error {
            Error::Failed { program, output } => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                Error::Failed { program, output: format!("{output}\n{said}") }
            }
            other => other,
        })
    }
}

fn free_port() -> Result<u16, Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::Port)?;
    listener.local_addr().map(|address| address.port()).map_err(Error::Port)
}
