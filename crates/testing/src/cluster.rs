//! A Postgres cluster for tests: one server with its data folder, from creation to removal.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::Error;
use crate::installation::PostgresInstallation;
use crate::reaper::ClusterReaper;

/// Superuser of every cluster. It needs no password: the server listens on the loopback interface
/// only.
const SUPERUSER: &str = "onward";
/// Attempts to start on a free port: another process may take the port between its selection and
/// the start of the server.
const PORT_ATTEMPTS_MAX: usize = 5;

/// Whether the server syncs a commit to disk before it acknowledges it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ClusterDurability {
    /// Commits are synced, as in production.
    #[default]
    Synced,
    /// Syncing is left to the operating system: faster, for tests that neither crash the server nor
    /// measure it.
    Unsynced,
}

/// A Postgres server for tests. Dropping it stops the server and removes its data.
#[derive(Debug)]
pub struct PostgresCluster {
    installation: PostgresInstallation,
    base_dir: PathBuf,
    port: u16,
    durability: ClusterDurability,
    databases: AtomicU32,
    _reaper: ClusterReaper,
}

impl PostgresCluster {
    /// Creates and starts a cluster with synced commits.
    pub fn start() -> Result<Self, Error> {
        Self::start_with_durability(ClusterDurability::Synced)
    }

    /// Creates and starts a cluster with the given durability. Fails if no Postgres server is
    /// installed.
    pub fn start_with_durability(durability: ClusterDurability) -> Result<Self, Error> {
        let installation = PostgresInstallation::find_newest()?;
        let made = tempfile::Builder::new()
            .prefix("onward-postgres-")
            .tempdir();
        let made = made.map_err(|source| Error::Folder {
            path: std::env::temp_dir(),
            source,
        })?;
        installation.chown_to_server_user(made.path())?;
        let undertaker = ClusterReaper::watch_cluster(made.path())?;
        let folder = made.keep();
        let databases = AtomicU32::new(0);
        let mut cluster = Self {
            installation,
            base_dir: folder,
            port: 0,
            durability,
            databases,
            _reaper: undertaker,
        };
        cluster.init_data_dir()?;
        cluster.start_on_free_port()?;
        Ok(cluster)
    }

    /// Returns the cluster that the tests of this process share; starts one if no test holds it.
    pub fn shared_cluster() -> Result<Arc<Self>, Error> {
        static SHARED: Mutex<Weak<PostgresCluster>> = Mutex::new(Weak::new());
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = shared.upgrade() {
            return Ok(cluster);
        }
        let cluster = Arc::new(Self::start()?);
        *shared = Arc::downgrade(&cluster);
        Ok(cluster)
    }

    /// Creates a database and returns its URL.
    pub fn create_database(&self) -> Result<String, Error> {
        let name = format!(
            "test_{}",
            self.databases.fetch_add(1, Ordering::Relaxed) + 1
        );
        let port = self.port.to_string();
        let args = [
            "-h",
            "127.0.0.1",
            "-p",
            &port,
            "-U",
            SUPERUSER,
            "--maintenance-db=postgres",
            &name,
        ];
        self.installation
            .server_command("createdb")
            .with_args(args)
            .run_for_output()?;
        Ok(self.database_url(&name))
    }

    /// Creates a database from an SQL dump and returns its URL.
    pub fn restore_database(&self, dump: &Path) -> Result<String, Error> {
        let url = self.create_database()?;
        self.installation
            .server_command("psql")
            .with_args(["--quiet", "-v", "ON_ERROR_STOP=1", "-d", &url, "-f"])
            .with_args([dump])
            .run_for_output()?;
        Ok(url)
    }

    /// Returns the URL of a database by name; the database need not exist.
    pub fn database_url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}@127.0.0.1:{}/{database}", self.port)
    }

    /// The port of the server on 127.0.0.1.
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The folder that contains the data, the log and the Unix socket.
    pub fn base_dir(&self) -> &Path {
        &self.base_dir
    }

    /// The process id of the server. Fails if the server is not running.
    pub fn server_pid(&self) -> Result<u32, Error> {
        let file = fs::read_to_string(self.data_dir().join("postmaster.pid"))
            .map_err(|_| Error::Stopped)?;
        file.lines()
            .next()
            .and_then(|line| line.trim().parse().ok())
            .ok_or(Error::Stopped)
    }

    /// Stops the server immediately, like a crash: it writes nothing more to disk.
    pub fn stop_immediately(&self) -> Result<(), Error> {
        self.run_pg_ctl(["stop", "-m", "immediate"])
    }

    /// Starts the server again on the same port. After a crash, it recovers from its WAL.
    pub fn restart_server(&self) -> Result<(), Error> {
        self.start_server(self.port)
    }

    fn data_dir(&self) -> PathBuf {
        self.base_dir.join("data")
    }

    fn init_data_dir(&self) -> Result<(), Error> {
        let options = [
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--username",
            SUPERUSER,
            "-D",
        ];
        self.installation
            .server_command("initdb")
            .with_args(options)
            .with_args([self.data_dir()])
            .run_for_output()
            .map(drop)
    }

    fn start_on_free_port(&mut self) -> Result<(), Error> {
        let mut tried = free_port().and_then(|port| self.start_server(port).map(|()| port));
        for _ in 1..PORT_ATTEMPTS_MAX {
            if tried.is_ok() {
                break;
            }
            tried = free_port().and_then(|port| self.start_server(port).map(|()| port));
        }
        self.port = tried?;
        Ok(())
    }

    fn start_server(&self, port: u16) -> Result<(), Error> {
        let fsync = if self.durability == ClusterDurability::Synced {
            "on"
        } else {
            "off"
        };
        let settings = format!(
            "-p {port} -k '{}' -c listen_addresses=127.0.0.1 -c max_connections=200 -c fsync={fsync}",
            self.base_dir.display()
        );
        self.run_pg_ctl(["start", "--wait", "-o", &settings])
    }

    fn run_pg_ctl<'a>(&'a self, args: impl IntoIterator<Item = &'a str>) -> Result<(), Error> {
        let log = self.base_dir.join("log");
        let control = self.installation.server_command("pg_ctl").with_args(args);
        let done = control
            .with_args([Path::new("-D"), &self.data_dir(), Path::new("-l"), &log])
            .run_detached();
        done.map_err(|error| match error {
            Error::Failed { program, output } => {
                let said = fs::read_to_string(&log).unwrap_or_default();
                Error::Failed {
                    program,
                    output: format!("{output}\n{said}"),
                }
            }
            other => other,
        })
    }
}

fn free_port() -> Result<u16, Error> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Error::Port)?;
    listener
        .local_addr()
        .map(|address| address.port())
        .map_err(Error::Port)
}
