//! Settings of one invocation: the root of the workspace, how thorough the checks are, and which
//! output is shown.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// How long the steps that search for errors (model, fuzz) run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Short,
    Long,
}

/// When the output of commands is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    Shown,
    OnFailure,
}

pub(crate) struct XtaskRun {
    pub(crate) root: PathBuf,
    pub(crate) length: Length,
    pub(crate) output: Output,
}

impl XtaskRun {
    /// Locates the workspace by `CARGO_MANIFEST_DIR`: the one at run time if cargo set it, else the
    /// one at build time.
    pub(crate) fn locate(length: Length, output: Output) -> Result<Self> {
        let manifest_dir = std::env::var_os("CARGO_MANIFEST_DIR")
            .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
        let root = manifest_dir.parent().map_or(PathBuf::new(), Path::to_owned);
        ensure!(
            root.join("Cargo.toml").is_file(),
            "no Cargo.toml in {}: run this as `cargo xtask …` inside the repository",
            root.display()
        );
        Ok(Self {
            root,
            length,
            output,
        })
    }
}
