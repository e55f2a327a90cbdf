//! Compiles the C files beside this one into libraries that are preloaded into processes under
//! test.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A library for `LD_PRELOAD`, in a temporary folder.
pub(crate) struct PreloadLibrary {
    path: PathBuf,
    _folder: TempDir,
}

impl PreloadLibrary {
    /// Compiles a source file of this folder.
    pub(crate) fn compile(source: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join(source).with_extension("so");
        let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"));
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&path)
            .arg(sources.join(source))
            .arg("-ldl")
            .status()
            .expect("a C compiler is needed to build the libraries that inject faults");
        assert!(built.success(), "{source} does not compile");
        Self {
            path,
            _folder: folder,
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}
