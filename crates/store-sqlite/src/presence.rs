//! Who is there on this machine. A process that works on the file holds a lock beside it, which the operating system releases when the
//! process ends, however it ends. So whoever comes next need not wait until a lease has run out.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What is left of somebody is kept for so long: until then others may ask for it.
const KEPT: Duration = Duration::from_secs(600);

/// A lock that is held until this is dropped.
pub(crate) struct Lock {
    _held: File,
    path: PathBuf,
}

impl Drop for Lock {
    /// Removed before it is released: nobody takes a process that ends in order for one that died.
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.path));
    }
}

/// Holds the lock of this name beside `store`.
pub(crate) fn appear(store: &Path, name: &str) -> io::Result<Lock> {
    tidy(store);
    let path = beside(store, name);
    let held = OpenOptions::new().create(true).truncate(true).write(true).open(&path)?;
    held.lock()?;
    Ok(Lock { _held: held, path })
}

/// Whether a lock of this name was held, and is not any more. Nobody is gone of whom nothing is known.
pub(crate) fn is_gone(store: &Path, name: &str) -> bool {
    File::open(beside(store, name)).is_ok_and(|file| file.try_lock_shared().is_ok())
}

fn beside(store: &Path, name: &str) -> PathBuf {
    let mut path = prefix(store);
    path.push(name);
    PathBuf::from(path)
}

fn prefix(store: &Path) -> std::ffi::OsString {
    let mut path = store.as_os_str().to_owned();
    path.push("-node-");
    path
}

/// Removes what is left of those that are long gone.
fn tidy(store: &Path) {
    for path in all(store) {
        let age = path.metadata().and_then(|about| about.modified()).ok().and_then(|at| at.elapsed().ok());
        if age.is_some_and(|age| age > KEPT) && File::open(&path).is_ok_and(|file| file.try_lock_shared().is_ok()) {
            drop(std::fs::remove_file(path));
        }
    }
}

/// The locks beside `store`, whether somebody holds them or not.
pub(crate) fn all(store: &Path) -> Vec<PathBuf> {
    let prefix = PathBuf::from(prefix(store));
    let folder = prefix.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let beginning = prefix.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_one = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with(&beginning);
    entries.filter(is_one).map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_holds_a_lock_is_there_and_who_left_in_order_is_not_known() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        assert!(!is_gone(&store, "a"), "nothing is known of it");
        let lock = appear(&store, "a").unwrap();
        assert!(!is_gone(&store, "a"));
        drop(lock);
        assert!(!is_gone(&store, "a"), "it has released what it had itself");
    }

    #[test]
    fn who_died_is_gone_and_is_forgotten_after_a_while() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store.db");
        let died = File::create(beside(&store, "b")).unwrap();
        assert!(is_gone(&store, "b"));
        let _other = appear(&store, "c").unwrap();
        assert!(is_gone(&store, "b"), "others may ask for it still");
        died.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        drop(died);
        let _another = appear(&store, "d").unwrap();
        assert!(!beside(&store, "b").exists() && beside(&store, "c").exists());
    }
}
