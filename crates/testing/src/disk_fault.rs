//! Injects a disk fault: a library to preload into a process whose store is called `store.db`.

use std::process::Command;
use std::sync::OnceLock;

use crate::preload_library::PreloadLibrary;

static LIBRARY: OnceLock<PreloadLibrary> = OnceLock::new();

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
        let library = LIBRARY.get_or_init(|| PreloadLibrary::compile("disk.c"));
        command
            .env("LD_PRELOAD", library.path())
            .env(self.variable_name(), nth.to_string());
    }
}
