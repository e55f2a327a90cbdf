//! Finds the binaries of an installed Postgres server and the user to run them as.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::command::ServerCommand;

/// Where Debian installs the binaries, one folder per major version.
const DEBIAN_VERSIONS_DIR: &str = "/usr/lib/postgresql";
/// The user that Debian's package creates. The server refuses to run as root.
const SERVER_USER: &str = "postgres";

/// An installed Postgres server. `user` is `None` unless this process runs as root.
#[derive(Debug, Clone)]
pub(crate) struct PostgresInstallation {
    binaries: PathBuf,
    user: Option<&'static str>,
}

impl PostgresInstallation {
    /// Finds the newest version of Debian's packages, otherwise the one on the `PATH`.
    pub(crate) fn find_newest() -> Result<Self, Error> {
        let debian = newest_version(Path::new(DEBIAN_VERSIONS_DIR));
        let on_path = || {
            env::split_paths(&env::var_os("PATH").unwrap_or_default())
                .find(|folder| has_server_binaries(folder))
        };
        let binaries = debian.or_else(on_path).ok_or(Error::NotInstalled)?;
        Ok(Self {
            binaries,
            user: is_root().then_some(SERVER_USER),
        })
    }

    /// Returns a command of the server, run as the server user.
    pub(crate) fn server_command(&self, name: &str) -> ServerCommand {
        let program = self.binaries.join(name);
        let Some(user) = self.user else {
            return ServerCommand::new(program);
        };
        let dashes = [
            OsString::from("-u"),
            OsString::from(user),
            OsString::from("--"),
            program.into(),
        ];
        ServerCommand::new("runuser").with_args(dashes)
    }

    /// Changes the owner of a folder to the server user.
    pub(crate) fn chown_to_server_user(&self, folder: &Path) -> Result<(), Error> {
        let Some(user) = self.user else {
            return Ok(());
        };
        let id = ServerCommand::new("id")
            .with_args(["-u", user])
            .run_for_output()?;
        let id = id.trim().parse().ok();
        std::os::unix::fs::chown(folder, id, None).map_err(|source| Error::Folder {
            path: folder.to_owned(),
            source,
        })
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|of_this_process| of_this_process.uid() == 0)
}

fn has_server_binaries(folder: &Path) -> bool {
    ["initdb", "pg_ctl", "postgres", "createdb"]
        .iter()
        .all(|name| folder.join(name).is_file())
}

/// Returns the binaries of the newest complete installation.
fn newest_version(versions: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(versions).ok()?.filter_map(Result::ok);
    let numbered = entries.filter_map(|entry| {
        let version: u32 = entry.file_name().to_str()?.parse().ok()?;
        Some((version, entry.path().join("bin")))
    });
    numbered
        .filter(|(_, folder)| has_server_binaries(folder))
        .max()
        .map(|(_, folder)| folder)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::newest_version;

    fn install(versions: &Path, version: &str, binaries: &[&str]) {
        let folder = versions.join(version).join("bin");
        fs::create_dir_all(&folder).unwrap();
        binaries
            .iter()
            .for_each(|name| fs::write(folder.join(name), "").unwrap());
    }

    #[test]
    fn the_newest_complete_installation_is_used() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(newest_version(folder.path()), None);
        let server = ["initdb", "pg_ctl", "postgres", "createdb"];
        install(folder.path(), "9", &server);
        install(folder.path(), "15", &server);
        install(folder.path(), "16", &["createdb"]);
        install(folder.path(), "latest", &server);
        assert_eq!(
            newest_version(folder.path()),
            Some(folder.path().join("15/bin"))
        );
        assert_eq!(newest_version(&folder.path().join("absent")), None);
    }
}
