//! Access of other users to the files of a store. They contain every input and result, and the
//! addresses of recipients.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Mode of a new store: access for its owner only. SQLite gives the files beside it the same mode.
pub(crate) const PRIVATE_MODE: u32 = 0o600;

/// Access of users that are neither the owner nor in the group of the file.
const OTHERS_MASK: u32 = 0o007;

/// Creates an empty file for its owner only, unless the path exists. SQLite would create it with
/// the mode that the umask leaves, and reports a path that cannot be used.
///
/// The file is closed before it gets its name: closing it later would release the locks that
/// another connection of this process holds on it.
pub(crate) fn create_private_file(path: &Path) {
    if path.exists() {
        return;
    }
    let parent = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let created = tempfile::Builder::new()
        .permissions(Permissions::from_mode(PRIVATE_MODE))
        .tempfile_in(parent.unwrap_or(Path::new(".")))
        .and_then(|file| {
            (file.into_temp_path().persist_noclobber(path)).map_err(|error| error.error)
        });
    if let Err(error) = created {
        tracing::debug!(%error, "the file of the store was not created");
    }
}

/// Restricts the files of a store to their owner if all users have access: earlier versions created
/// files with the mode that the umask left. Access of the group alone is kept: an operator may
/// share the store with a group.
pub(crate) fn restrict_access(path: &Path, suffixes: &[&str]) {
    for suffix in suffixes {
        let mut name = path.as_os_str().to_owned();
        name.push(suffix);
        restrict_file(&PathBuf::from(name));
    }
}

fn restrict_file(path: &Path) {
    let Ok(metadata) = path.metadata() else {
        return;
    };
    if !metadata.is_file() || metadata.permissions().mode() & OTHERS_MASK == 0 {
        return;
    }
    let file = path.display();
    match std::fs::set_permissions(path, Permissions::from_mode(PRIVATE_MODE)) {
        Ok(()) => {
            tracing::info!(%file, "all users had access to a file of the store: its mode is now 0600")
        }
        Err(error) => {
            tracing::warn!(%file, %error, "all users have access to a file of the store: chmod 600 it")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_store_that_all_users_could_read_is_restricted_and_a_group_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("store.db");
        create_private_file(&path);
        assert_eq!(mode(&path), 0o600);
        for (before, after) in [
            (0o644, 0o600),
            (0o666, 0o600),
            (0o660, 0o660),
            (0o400, 0o400),
        ] {
            for suffix in ["", "-wal"] {
                let file = folder.path().join(format!("store.db{suffix}"));
                std::fs::write(&file, "").ok();
                std::fs::set_permissions(&file, Permissions::from_mode(before)).unwrap();
            }
            restrict_access(&path, &["", "-wal"]);
            assert_eq!(mode(&path), after);
            assert_eq!(mode(&folder.path().join("store.db-wal")), after);
        }
    }
}
