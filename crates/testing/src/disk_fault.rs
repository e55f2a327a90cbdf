//! Injects a disk fault: a library to preload into a process whose store is called `store.db`.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

/// The fault that the n-th call of its kind on the store's files meets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskFault {
    /// A sync fails.
    Sync,
    /// A write fails because the disk is full.
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

    /// Injects the fault into `command` at the `nth` call, counted from 1 since the process start.
    pub fn inject_at(self, nth: usize, command: &mut Command) {
        command
            .env("LD_PRELOAD", preload_library())
            .env(self.variable_name(), nth.to_string());
    }
}

/// Returns the path of the library, which is compiled once per process.
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
