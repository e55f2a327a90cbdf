//! The Postgres server that both sides work on: new, with the settings that it comes with, gone in
//! the end.
//!
//! Its data is under target/, because a folder in memory would make syncing free.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::compare::process::{Process, clean, printed};
use crate::compare::side::{DataFolder, free_addresses};
use crate::run::XtaskRun;
use crate::tools::{self, POSTGRES};

const FOLDER: &str = "target/compare/dispatch";
/// Where Debian puts the programs, a folder a major version.
const VERSIONS: &str = "/usr/lib/postgresql";
/// The user that Debian's package makes. The server refuses to run as root.
const SERVER_USER: &str = "postgres";
/// Who may do everything in the server. It listens on the loopback interface only.
const USER: &str = "onward";
const DATABASE: &str = "compare";

/// What has to be on for a commit to survive a loss of power.
const DURABLE: [&str; 3] = ["fsync", "synchronous_commit", "full_page_writes"];
/// What else a rate depends on.
const BESIDE: [&str; 5] = [
    "wal_sync_method",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
];

/// A server that runs. The process comes first, because it is to end before its data goes.
pub(crate) struct Server {
    _process: Process,
    data: DataFolder,
    programs: PostgresPrograms,
    address: SocketAddr,
}

/// What the server says of itself.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PostgresSettings {
    pub(crate) version: String,
    /// By name, in the order that they are shown in.
    pub(crate) values: Vec<(&'static str, String)>,
}

/// Where the programs are, and as whom to run them.
struct PostgresPrograms {
    folder: Option<PathBuf>,
    user: Option<u32>,
}

impl Server {
    pub(crate) fn start(run: &XtaskRun) -> Result<Self> {
        tools::ensure(run, &[&POSTGRES])?;
        let programs = PostgresPrograms::find()?;
        let folder = run.root.join(FOLDER);
        let data = DataFolder::make(folder.join("data"))?;
        chown(data.path(), programs.user, None)
            .context("cannot give the folder of the data to the server's user")?;
        let options = [
            "--auth=trust",
            "--no-sync",
            "--encoding=UTF8",
            "--locale=C.UTF-8",
            "--username",
            USER,
            "-D",
        ];
        printed(programs.command("initdb").args(options).arg(data.path()))
            .with_context(|| format!("can {SERVER_USER} reach {}?", data.path().display()))?;
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
        let mut process = Process::start("postgres", &mut command, &folder)?;
        process.wait_until(|| printed(&mut programs.client("pg_isready", address)).is_ok())?;
        Ok(Self {
            _process: process,
            data,
            programs,
            address,
        })
    }

    /// An empty database, and its URL. The last one is gone, and all is on disk, so that nobody
    /// pays for it later.
    pub(crate) fn empty_database(&self) -> Result<String> {
        self.run("dropdb", &["--if-exists", "--force", DATABASE])?;
        self.run("createdb", &[DATABASE])?;
        self.run("psql", &["-X", "-d", DATABASE, "-c", "CHECKPOINT"])?;
        Ok(format!("postgres://{USER}@{}/{DATABASE}", self.address))
    }

    /// Refuses a server that would lose commits with the power.
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

impl Drop for Server {
    fn drop(&mut self) {
        // Its children end with it, and write no more into a folder that is about to go. Nothing
        // can be done about a failure.
        let _ = printed(
            self.programs
                .command("pg_ctl")
                .args(["stop", "-m", "immediate", "-D"])
                .arg(self.data.path()),
        );
    }
}

impl PostgresSettings {
    /// Finds them in what `SHOW ALL` answers: a line for each, with its name, its value and its
    /// meaning.
    fn read(shown: &str) -> Result<Self> {
        let value = |wanted: &str| {
            let mut lines = shown.lines().map(|line| line.split('\t'));
            let value = lines
                .find_map(|mut fields| (fields.next()? == wanted).then(|| fields.next()).flatten());
            value
                .map(str::to_owned)
                .with_context(|| format!("the server does not say what {wanted} is"))
        };
        for name in DURABLE {
            let is = value(name)?;
            ensure!(
                is == "on",
                "the server would lose commits with the power: {name} is {is}"
            );
        }
        let values: Result<Vec<_>> = DURABLE
            .into_iter()
            .chain(BESIDE)
            .map(|name| Ok((name, value(name)?)))
            .collect();
        Ok(Self {
            version: value("server_version")?,
            values: values?,
        })
    }

    /// All in one line.
    pub(crate) fn in_words(&self) -> String {
        self.values
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect::<Vec<String>>()
            .join(", ")
    }
}

impl PostgresPrograms {
    /// The newest that Debian's packages installed, else those on the PATH.
    fn find() -> Result<Self> {
        let is_root =
            fs::metadata("/proc/self").is_ok_and(|of_this_process| of_this_process.uid() == 0);
        let user = if is_root {
            let id = printed(clean(Path::new("id")).args(["-u", SERVER_USER]))?;
            Some(
                id.parse()
                    .with_context(|| format!("{SERVER_USER} has no number: {id}"))?,
            )
        } else {
            None
        };
        Ok(Self {
            folder: newest(Path::new(VERSIONS)),
            user,
        })
    }

    /// A program of the server, as the user that it must be run by. It ends with this process, even
    /// if this one is killed.
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

    /// A program that speaks to the server.
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

/// The programs of the highest version.
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
    fn what_is_durable_comes_first() {
        let settings = PostgresSettings::read(&shown("on")).unwrap();
        assert_eq!(settings.version, "15.18");
        assert!(
            settings.in_words().starts_with(
                "fsync=on, synchronous_commit=on, full_page_writes=on, wal_sync_method="
            )
        );
    }

    #[test]
    fn a_server_that_does_not_wait_for_the_disk_is_refused() {
        let error = PostgresSettings::read(&shown("off"))
            .unwrap_err()
            .to_string();
        assert_eq!(
            error,
            "the server would lose commits with the power: synchronous_commit is off"
        );
    }

    #[test]
    fn a_server_that_does_not_say_is_refused() {
        assert!(PostgresSettings::read("fsync\ton\tForces.\n").is_err());
    }
}
