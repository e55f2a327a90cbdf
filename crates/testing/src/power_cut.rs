//! Cuts the power of a process: a library to preload, which undoes what the process has not synced.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tempfile::TempDir;

use crate::preload_library::PreloadLibrary;

static LIBRARY: OnceLock<PreloadLibrary> = OnceLock::new();

/// A folder on a disk that loses power.
///
/// The process that writes to it is killed at one of its writes or syncs. A random half of the
/// 512-byte sectors that it wrote after the last sync of their file are undone, and so are new and
/// removed files whose folder was not synced.
#[derive(Debug)]
pub struct PowerCutDisk {
    folder: TempDir,
    /// Keeps removed files until their removal is synced.
    lost: TempDir,
}

impl PowerCutDisk {
    /// Creates an empty folder, in memory where the machine has a memory file system.
    ///
    /// # Panics
    ///
    /// If no temporary folder can be created.
    #[must_use]
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let parent = if memory.is_dir() {
            memory.to_owned()
        } else {
            std::env::temp_dir()
        };
        Self {
            folder: tempfile::tempdir_in(&parent).expect("a temporary folder"),
            lost: tempfile::tempdir_in(&parent).expect("a temporary folder"),
        }
    }

    /// Returns the real path of the folder, without symbolic links.
    ///
    /// # Panics
    ///
    /// If the folder was removed.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.folder
            .path()
            .canonicalize()
            .expect("the folder exists")
    }

    /// Cuts the power of `command` at its `step`th write or sync, counted from 1; `seed` selects
    /// the sectors that are lost.
    pub fn cut_at(&self, step: u64, seed: u64, command: &mut Command) {
        let library = LIBRARY.get_or_init(|| PreloadLibrary::compile("power_cut.c"));
        command
            .env("LD_PRELOAD", library.path())
            .env("POWER_CUT_FOLDER", self.path())
            .env("POWER_CUT_LOST", self.lost.path())
            .env("POWER_CUT_STEP", step.to_string())
            .env("POWER_CUT_SEED", seed.to_string());
    }
}

impl Default for PowerCutDisk {
    fn default() -> Self {
        Self::new()
    }
}
