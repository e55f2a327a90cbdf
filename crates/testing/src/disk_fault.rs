//! A disk that fails once: a library to preload into a process whose store is called `store.db`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// What the disk does to the n-th call of its kind; the name of the variable that says which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// A sync fails.
    Sync,
    /// A write finds the disk full.
    Full,
    /// A read fails.
    Read,
    /// The process is killed before a sync or in the middle of a write.
    Kill,
}

impl DiskFault {
    const fn variable_name(self) -> &'static str {
        match self {
            Self::Sync => "FAIL_SYNC",
            Self::Full => "FULL_WRITE",
            Self::Read => "FAIL_READ",
            Self::Kill => "KILL_STEP",
        }
    }

    /// Makes `command` meet the fault at the `nth` call.
    pub fn inject_at(self, nth: usize, command: &mut Command) {
        command
            .env("LD_PRELOAD", preload_library())
            .env(self.variable_name(), nth.to_string());
    }
}

/// The library, compiled once a process.
fn preload_library() -> &'static PathBuf {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let library = folder.path().join("disk.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/disk.c");
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(source)
            .arg("-ldl");
        let built = compiler
            .status()
            .expect("a C compiler is needed to build the failing disk");
        assert!(built.success(), "the failing disk does not compile");
        (folder, library)
    });
    path
}
