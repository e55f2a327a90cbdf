//! A Postgres cluster for tests: one server with its data folder, from creation to removal.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::Error;
use crate::installation::PostgresInstallation;
use crate::reaper::ClusterReaper;

/// Superuser of every cluster. It needs no password: the server listens on the loopback interface
/// only.
const SUPERUSER: &str = "onward";
/// Environment variables with the base directories of clusters that several test processes share:
/// see [`PostgresCluster::shared_cluster`].
const SHARED_SYNCED: &str = "ONWARD_TEST_POSTGRES";
const SHARED_UNSYNCED: &str = "ONWARD_TEST_POSTGRES_UNSYNCED";
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

impl ClusterDurability {
    /// The environment variable that names a running cluster of this durability.
    pub const fn shared_variable(self) -> &'static str {
        match self {
            Self::Synced => SHARED_SYNCED,
            Self::Unsynced => SHARED_UNSYNCED,
        }
    }
}

/// A Postgres server for tests. Dropping it stops the server and removes its data, unless another
/// process started it.
#[derive(Debug)]
pub struct PostgresCluster {
    installation: PostgresInstallation,
    base_dir: PathBuf,
    port: u16,
    durability: ClusterDurability,
    /// `None` if another process started the server and stops it.
    _reaper: Option<ClusterReaper>,
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
        let reaper = ClusterReaper::watch_cluster(made.path())?;
        let folder = made.keep();
        let mut cluster = Self {
            installation,
            base_dir: folder,
            port: 0,
            durability,
            _reaper: Some(reaper),
        };
        cluster.init_data_dir()?;
        cluster.start_on_free_port()?;
        Ok(cluster)
    }

    /// Returns a cluster for tests that do not stop it: the running one that the environment names
    /// (the program `with-clusters` of this crate sets it), or one that the tests of this process
    /// share.
    pub fn shared_cluster(durability: ClusterDurability) -> Result<Arc<Self>, Error> {
        static SHARED: [Mutex<Weak<PostgresCluster>>; 2] =
            [Mutex::new(Weak::new()), Mutex::new(Weak::new())];
        let slot = &SHARED[usize::from(durability == ClusterDurability::Unsynced)];
        let mut shared = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cluster) = shared.upgrade() {
            return Ok(cluster);
        }
        let cluster = Arc::new(match std::env::var_os(durability.shared_variable()) {
            Some(base_dir) => Self::attach(base_dir.into(), durability)?,
            None => Self::start_with_durability(durability)?,
        });
        *shared = Arc::downgrade(&cluster);
        Ok(cluster)
    }

    /// Uses a running cluster of another process, which stops it.
    fn attach(base_dir: PathBuf, durability: ClusterDurability) -> Result<Self, Error> {
        let mut cluster = Self {
            installation: PostgresInstallation::find_newest()?,
            base_dir,
            port: 0,
            durability,
            _reaper: None,
        };
        cluster.port = cluster.read_pid_file(3)?;
        Ok(cluster)
    }

    /// Creates a database and returns its URL.
    pub fn create_database(&self) -> Result<String, Error> {
        // Unique in this process, and among the processes that share the cluster.
        static DATABASES: AtomicU32 = AtomicU32::new(0);
        let number = DATABASES.fetch_add(1, Ordering::Relaxed) + 1;
        let name = format!("test_{}_{number}", std::process::id());
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

    /// Returns a database as an SQL dump.
    pub fn dump_database(&self, url: &str) -> Result<String, Error> {
        self.installation
            .server_command("pg_dump")
            .with_args(["--no-owner", "-d", url])
            .run_for_output()
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
        self.read_pid_file(0)
    }

    /// Reads a number from a line of the server's pid file: 0 is its process id, 3 its port.
    fn read_pid_file<T: FromStr>(&self, line: usize) -> Result<T, Error> {
        let file = fs::read_to_string(self.data_dir().join("postmaster.pid"))
            .map_err(|_| Error::Stopped)?;
        file.lines()
            .nth(line)
            .and_then(|text| text.trim().parse().ok())
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
                let log = fs::read_to_string(&log).unwrap_or_default();
                Error::Failed {
                    program,
                    output: format!("{output}\n{log}"),
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
