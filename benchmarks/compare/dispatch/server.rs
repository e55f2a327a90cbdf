//! The Postgres server of both sides: a new cluster with default settings, removed at the end.
//!
//! Its data is under target/: in a memory file system, syncing would cost nothing.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::process::{EngineProcess, clean, printed};
use crate::side::{DataFolder, free_addresses};

const FOLDER: &str = "target/compare/dispatch";
/// The folder in which Debian installs the programs, with a subfolder per major version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that the Debian package creates. The server does not run as root.
const SERVER_USER: &str = "postgres";
/// The superuser. The server listens on the loopback interface only.
const USER: &str = "onward";
const DATABASE: &str = "compare";

/// The settings that must be on for a commit to survive a power loss.
const DURABLE: [&str; 3] = ["fsync", "synchronous_commit", "full_page_writes"];
/// Other settings that affect the rate.
const REPORTED: [&str; 5] = [
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
];

/// A running server. `_process` is first, because it is dropped before the data is removed.
pub(crate) struct PostgresServer {
    _process: EngineProcess,
    data: DataFolder,
    programs: PostgresPrograms,
    address: SocketAddr,
}

/// The version and the effective settings of the server.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PostgresSettings {
    pub(crate) version: String,
    /// Names and values, in the order of the report.
    pub(crate) values: Vec<(&'static str, String)>,
}

/// The folder of the programs, and the user that runs them.
struct PostgresPrograms {
    folder: Option<PathBuf>,
    user: Option<u32>,
}

impl PostgresServer {
    pub(crate) fn start(root: &Path) -> Result<Self> {
        let programs = PostgresPrograms::find()?;
        let folder = root.join(FOLDER);
        let data = DataFolder::create(folder.join("data"))?;
        chown(data.path(), programs.user, None)
            .context("cannot change the owner of the data folder to the user of the server")?;
        let options = [
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--username",
            USER,
            "-D",
        ];
        printed(programs.command("initdb").args(options).arg(data.path())).with_context(|| {
            format!(
                "initdb failed: check that the user {SERVER_USER} can access {}",
                data.path().display()
            )
        })?;
        let [address] = free_addresses()?;
        let mut command = programs.command("postgres");
        command
            .arg("-D")
            .arg(data.path())
            .args(["-p", &address.port().to_string()]);
        command.args([
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "unix_socket_directories=",
        ]);
        let mut process = EngineProcess::start("postgres", &mut command, &folder)?;
        process
            .poll_until_ready(|| printed(&mut programs.client("pg_isready", address)).map(drop))?;
        Ok(Self {
            _process: process,
            data,
            programs,
            address,
        })
    }

    /// Creates an empty database and returns its URL. Drops the previous one, and runs a checkpoint
    /// so that its writes do not slow down the next round.
    pub(crate) fn empty_database(&self) -> Result<String> {
        self.run("dropdb", &["--if-exists", "--force", DATABASE])?;
        self.run("createdb", &[DATABASE])?;
        self.run("psql", &["-X", "-d", DATABASE, "-c", "CHECKPOINT"])?;
        Ok(format!("postgres://{USER}@{}/{DATABASE}", self.address))
    }

    /// Fails if the server would lose commits on power loss.
    pub(crate) fn settings(&self) -> Result<PostgresSettings> {
        PostgresSettings::read(&self.run(
            "psql",
            &["-X", "-At", "-F", "\t", "-d", "postgres", "-c", "SHOW ALL"],
        )?)
    }

    fn run(&self, name: &str, args: &[&str]) -> Result<String> {
        printed(self.programs.client(name, self.address).args(args))
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        // Stops the child processes too, before the data folder is removed. A failure cannot be
        // handled here.
        let _ = printed(
            self.programs
                .command("pg_ctl")
                .args(["stop", "-m", "immediate", "-D"])
                .arg(self.data.path()),
        );
    }
}

impl PostgresSettings {
    /// Parses the output of `SHOW ALL`: one line per setting, with its name, value and description.
    fn read(shown: &str) -> Result<Self> {
        let value = |setting: &str| {
            let mut lines = shown.lines().map(|line| line.split('\t'));
            let value = lines.find_map(|mut fields| {
                (fields.next()? == setting).then(|| fields.next()).flatten()
            });
            value
                .map(str::to_owned)
                .with_context(|| format!("`SHOW ALL` does not contain {setting}"))
        };
        for name in DURABLE {
            let is = value(name)?;
            ensure!(
                is == "on",
                "the server would lose commits on power loss: {name} is {is}"
            );
        }
        let values: Result<Vec<_>> = DURABLE
            .into_iter()
            .chain(REPORTED)
            .map(|name| Ok((name, value(name)?)))
            .collect();
        Ok(Self {
            version: value("server_version")?,
            values: values?,
        })
    }

    /// All settings in one line.
    pub(crate) fn in_one_line(&self) -> String {
        self.values
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<String>>()
            .join(", ")
    }
}

impl PostgresPrograms {
    /// The newest programs that Debian packages installed, else those in PATH.
    fn find() -> Result<Self> {
        let is_root =
            fs::metadata("/proc/self").is_ok_and(|of_this_process| of_this_process.uid() == 0);
        let user = if is_root {
            let id = printed(clean(Path::new("id")).args(["-u", SERVER_USER]))?;
            Some(
                id.parse()
                    .with_context(|| format!("invalid user id of {SERVER_USER}: {id}"))?,
            )
        } else {
            None
        };
        Ok(Self {
            folder: newest(Path::new(VERSIONS)),
            user,
        })
    }

    /// A program of the server, run as the required user. It is stopped with this process, even if
    /// this one is killed.
    fn command(&self, name: &str) -> Command {
        let mut command = clean(Path::new("setpriv"));
        command.args(["--pdeathsig", "QUIT"]).current_dir("/");
        if self.user.is_some() {
            command.args([
                "--reuid",
                SERVER_USER,
                "--regid",
                SERVER_USER,
                "--init-groups",
            ]);
        }
        command.arg(
            self.folder
                .as_ref()
                .map_or_else(|| PathBuf::from(name), |folder| folder.join(name)),
        );
        command
    }

    /// A client program, connected to the server.
    fn client(&self, name: &str, address: SocketAddr) -> Command {
        let mut command = self.command(name);
        command.args([
            "-h",
            &address.ip().to_string(),
            "-p",
            &address.port().to_string(),
            "-U",
            USER,
        ]);
        command
    }
}

/// The folder of the highest version.
fn newest(versions: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(versions).ok()?.filter_map(Result::ok);
    let numbered = entries.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((version, entry.path().join("bin")))
    });
    numbered
        .filter(|(_, folder)| folder.join("postgres").is_file())
        .max()
        .map(|(_, folder)| folder)
}

#[cfg(test)]
mod tests {
    use super::PostgresSettings;

    fn shown(synchronous_commit: &str) -> String {
        format!(
            "autovacuum\ton\tStarts it.\ncheckpoint_timeout\t5min\tTime.\nfsync\ton\tForces.\nfull_page_writes\ton\tWrites.\n\
             max_wal_size\t1GB\tSize.\nserver_version\t15.18\tShows it.\nshared_buffers\t128MB\tBuffers.\n\
             synchronous_commit\t{synchronous_commit}\tLevel.\nwal_sync_method\tfdatasync\tMethod."
        )
    }

    #[test]
    fn durability_settings_come_first() {
        let settings = PostgresSettings::read(&shown("on")).unwrap();
        assert_eq!(settings.version, "15.18");
        assert!(
            settings.in_one_line().starts_with(
                "fsync=on, synchronous_commit=on, full_page_writes=on, wal_sync_method="
            )
        );
    }

    #[test]
    fn a_server_without_synchronous_commit_is_rejected() {
        let error = PostgresSettings::read(&shown("off"))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "the server would lose commits on power loss: synchronous_commit is off"
        );
    }

    #[test]
    fn incomplete_settings_are_rejected() {
        assert!(PostgresSettings::read("fsync\ton\tForces.\n").is_err());
    }
}
