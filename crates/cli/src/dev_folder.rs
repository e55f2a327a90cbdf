//! The folder of `onward dev`, and the token in it. The folder and its files are for one user only:
//! other users of the machine can reach the server, and only the token keeps them out.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use axum::http::Uri;
use onward_service::token;
use tempfile::NamedTempFile;

use crate::console;

/// Name of the folder, unless `onward dev --folder` names another.
pub(crate) const DEFAULT_FOLDER: &str = ".onward";
/// File with the token of the server.
const TOKEN_FILE: &str = "token";
/// File with the address of the server, so that a command sends the token to no other server.
const ADDRESS_FILE: &str = "address";
/// File of the store, in SQLite.
const STORE_FILE: &str = "onward.db";

/// Access of group and others.
const FOREIGN_ACCESS: u32 = 0o077;
/// Files are far smaller; a larger one is not ours.
const FILE_BYTES_MAX: u64 = 1_024;

/// The folder of a development server.
pub(crate) struct DevFolder(PathBuf);

impl DevFolder {
    /// Creates the folder with access for this user only. An existing folder that has a store is
    /// given these modes; another existing folder, which may have other purposes, is kept as it is.
    pub(crate) fn create(path: &Path) -> anyhow::Result<Self> {
        let folder = Self(path.to_owned());
        let cannot_create = || format!("cannot create {}", path.display());
        let (parent, mut builder) = (path.parent(), DirBuilder::new());
        builder.recursive(true);
        parent
            .map_or(Ok(()), |parent| builder.create(parent))
            .with_context(cannot_create)?;
        match DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => {}
            Err(error) => return Err(error).with_context(cannot_create),
        }
        let metadata = path.metadata().with_context(cannot_create)?;
        let user = rustix::process::geteuid();
        if metadata.uid() != user.as_raw() && !user.is_root() {
            bail!(
                "{} belongs to another user: use --folder FOLDER",
                path.display()
            );
        }
        if metadata.mode() & FOREIGN_ACCESS != 0 {
            if folder.store_path().exists() {
                std::fs::set_permissions(path, Permissions::from_mode(0o700))
                    .with_context(|| format!("cannot set the mode of {}", path.display()))?;
            } else {
                console::print_message(format_args!(
                    "{}: other users have access to {}: chmod 700 it",
                    console::style_error("warning"),
                    path.display()
                ));
            }
        }
        Ok(folder)
    }

    pub(crate) fn store_path(&self) -> PathBuf {
        self.0.join(STORE_FILE)
    }

    pub(crate) fn token_path(&self) -> PathBuf {
        self.0.join(TOKEN_FILE)
    }

    pub(crate) fn outbox_path(&self) -> PathBuf {
        self.0.join("outbox")
    }

    /// Returns the token of earlier starts, so that exported variables stay valid. Creates a new
    /// one if there is none, or if other users could read it.
    pub(crate) fn load_or_create_token(&self) -> anyhow::Result<String> {
        if let Some(token) = self.read_token() {
            return Ok(token);
        }
        // The folder is often in a repository, into which the token must not be committed.
        self.write_file(".gitignore", "*")?;
        let token = token::generate_token()?;
        self.write_file(TOKEN_FILE, &token)?;
        Ok(token)
    }

    /// Records the address of the server, to which commands may send the token.
    pub(crate) fn write_address(&self, address: SocketAddr) -> anyhow::Result<()> {
        self.write_file(ADDRESS_FILE, &address.to_string())
    }

    /// Reads the token. `None` if there is none, or if it is not this user's alone.
    fn read_token(&self) -> Option<String> {
        read_private_file(&self.token_path()).filter(|token| token::is_token_text(token))
    }

    /// Reads the address of the server that was started last.
    fn read_address(&self) -> Option<SocketAddr> {
        read_private_file(&self.0.join(ADDRESS_FILE))?.parse().ok()
    }

    /// Writes a file for this user only. It replaces an existing one at once.
    fn write_file(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let write = || {
            // A temporary file has the mode 0600 from the start.
            let mut file = NamedTempFile::new_in(&self.0)?;
            writeln!(file, "{text}")?;
            file.as_file().sync_all()?;
            file.persist(self.0.join(name))
                .map_err(|error| error.error)?;
            Ok::<(), std::io::Error>(())
        };
        write().with_context(|| format!("cannot write {}", self.0.join(name).display()))
    }
}

/// Returns the token for a server URL, if a development server with this port was started in the
/// current folder or in one above it. Other servers never receive the token.
pub(crate) fn find_token(server_url: &str) -> Option<String> {
    let server: Uri = server_url.parse().ok()?;
    let host = server.host()?;
    if server.scheme_str() != Some("http") || !matches!(host, "localhost" | "127.0.0.1" | "[::1]") {
        return None;
    }
    let port = server.port_u16().unwrap_or(80);
    let current = std::env::current_dir().ok()?;
    let folders = current
        .ancestors()
        .map(|folder| DevFolder(folder.join(DEFAULT_FOLDER)));
    let mut served = folders.filter(|folder| {
        folder
            .read_address()
            .is_some_and(|address| address.port() == port)
    });
    served.find_map(|folder| folder.read_token())
}

/// Reads a file that belongs to this user and that no other user may read or write. Returns `None`
/// for every other file.
fn read_private_file(path: &Path) -> Option<String> {
    // Opening another kind of file, such as a pipe, may block.
    if !path.metadata().ok()?.is_file() {
        return None;
    }
    let file = File::open(path).ok()?;
    if !is_private(&file.metadata().ok()?) {
        return None;
    }
    let mut text = String::new();
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned())
}

fn is_private(metadata: &Metadata) -> bool {
    metadata.is_file()
        && metadata.uid() == rustix::process::geteuid().as_raw()
        && metadata.mode() & FOREIGN_ACCESS == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    #[test]
    fn the_token_is_for_this_user_only_and_survives_a_restart() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/.onward");
        let folder = DevFolder::create(&path).unwrap();
        let token = folder.load_or_create_token().unwrap();
        assert!(token::is_token_text(&token));
        assert_eq!((mode(&path), mode(&folder.token_path())), (0o700, 0o600));
        let ignored = std::fs::read_to_string(path.join(".gitignore")).unwrap();
        assert_eq!(ignored, "*\n", "git commits nothing in the folder");
        let again = DevFolder::create(&path).unwrap();
        assert_eq!(again.load_or_create_token().unwrap(), token);
        for (text, file_mode) in [(token.as_str(), 0o640), ("guessable", 0o600), ("", 0o600)] {
            std::fs::write(folder.token_path(), text).unwrap();
            std::fs::set_permissions(folder.token_path(), Permissions::from_mode(file_mode))
                .unwrap();
            let new = folder.load_or_create_token().unwrap();
            assert!(new != token && token::is_token_text(&new), "{text}");
            assert_eq!(mode(&folder.token_path()), 0o600);
        }
    }

    #[test]
    fn an_existing_folder_is_closed_to_others_if_it_has_a_store() {
        let folder = tempfile::tempdir().unwrap();
        let open = Permissions::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open.clone()).unwrap();
        DevFolder::create(folder.path()).unwrap();
        assert_eq!(mode(folder.path()), 0o755);
        std::fs::write(folder.path().join(STORE_FILE), "").unwrap();
        DevFolder::create(folder.path()).unwrap();
        assert_eq!(mode(folder.path()), 0o700);
    }
}
