//! What every task needs to know about this invocation: where the workspace is, how long to search,
//! what to show.

use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// How much work the searching steps (model, fuzz) do.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Short,
    Long,
}

/// What happens to the output of a noisy command.
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
    /// Finds the workspace from the manifest folder that cargo names: at run time if it does, else
    /// at build time.
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
