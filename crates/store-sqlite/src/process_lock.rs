//! Detects live and dead processes on this machine. A process that works on the file holds a lock
//! on a file beside it, which the operating system releases when the process ends in any way. So
//! the next process need not wait until the leases of a dead one expire.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::file_access;

/// Lock files of dead processes are kept this long, so that other processes can check for them.
const STALE_LOCK_AGE: Duration = Duration::from_secs(600);

/// A file lock that is held until it is dropped.
pub(crate) struct ProcessLock {
    _file: File,
    path: PathBuf,
}

impl Drop for ProcessLock {
    /// Removes the file before the lock is released, so that a process that stops gracefully is
    /// never taken for a dead one.
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

/// Acquires the lock of the process `name` beside `store`.
pub(crate) fn acquire_process_lock(store: &Path, name: &str) -> io::Result<ProcessLock> {
    remove_stale_locks(store);
    let path = lock_path(store, name);
    let held = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(file_access::PRIVATE_MODE)
        .open(&path)?;
    held.lock()?;
    Ok(ProcessLock { _file: held, path })
}

/// Returns `true` if the lock file of this process exists and no process holds the lock. A process
/// without a lock file is not considered dead.
pub(crate) fn is_process_dead(store: &Path, name: &str) -> bool {
    File::open(lock_path(store, name)).is_ok_and(|file| file.try_lock_shared().is_ok())
}

fn lock_path(store: &Path, name: &str) -> PathBuf {
    let mut path = lock_path_prefix(store);
    path.push(name);
    PathBuf::from(path)
}

fn lock_path_prefix(store: &Path) -> std::ffi::OsString {
    let mut path = store.as_os_str().to_owned();
    path.push("-node-");
    path
}

/// Removes lock files of processes that died long ago.
fn remove_stale_locks(store: &Path) {
    for path in list_lock_files(store) {
        let age = path
            .metadata()
            .and_then(|about| about.modified())
            .ok()
            .and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > STALE_LOCK_AGE)
            && File::open(&path).is_ok_and(|file| file.try_lock_shared().is_ok())
        {
            drop(std::fs::remove_file(path));
        }
    }
}

/// Returns the lock files beside `store`, whether or not they are locked.
pub(crate) fn list_lock_files(store: &Path) -> Vec<PathBuf> {
    let prefix = PathBuf::from(lock_path_prefix(store));
    let folder = prefix
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let beginning = prefix
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_one =
        |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&beginning);
    entries.filter(is_one).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_alive_while_it_holds_its_lock_and_unknown_after_a_clean_exit() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        assert!(
            !is_process_dead(&store, "a"),
            "a process without a lock file is not considered dead"
        );
        let lock = acquire_process_lock(&store, "a").unwrap();
        assert!(!is_process_dead(&store, "a"));
        drop(lock);
        assert!(
            !is_process_dead(&store, "a"),
            "a process that stops gracefully is not considered dead"
        );
    }

    #[test]
    fn a_process_that_died_is_reported_dead_until_its_lock_file_expires() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        let died = File::create(lock_path(&store, "b")).unwrap();
        assert!(is_process_dead(&store, "b"));
        let _other = acquire_process_lock(&store, "c").unwrap();
        assert!(
            is_process_dead(&store, "b"),
            "the lock file is kept, so that other processes can check it"
        );
        died.set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        drop(died);
        let _another = acquire_process_lock(&store, "d").unwrap();
        assert!(!lock_path(&store, "b").exists() && lock_path(&store, "c").exists());
    }
}
