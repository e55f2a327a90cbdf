//! Installs npm packages and a supported Node under target/, from a lock file of this repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::process::printed;

/// The files that determine which packages are installed.
const LOCKED: [&str; 3] = [".npmrc", "package.json", "package-lock.json"];

/// Installed packages, for the architecture of this machine.
pub(crate) struct NpmPackages {
    pub(crate) folder: PathBuf,
    pub(crate) architecture: &'static str,
}

impl NpmPackages {
    /// Installs the packages that `sources` lists into `folder`, and copies `files` to it: Node
    /// resolves modules relative to the importing file. Both folders are in this repository.
    pub(crate) fn install(
        root: &Path,
        sources: &str,
        folder: &str,
        files: &[&str],
    ) -> Result<Self> {
        let packages = Self::at(root, folder)?;
        fs::create_dir_all(&packages.folder)
            .with_context(|| format!("cannot create the folder {folder}"))?;
        for name in LOCKED.iter().chain(files) {
            copy_if_changed(&root.join(sources).join(name), &packages.folder.join(name))?;
        }
        ensure_node_modules(&packages.folder)?;
        Ok(packages)
    }

    /// The packages that are already installed in `folder`.
    pub(crate) fn at(root: &Path, folder: &str) -> Result<Self> {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => bail!(
                "no Node package for the architecture {other}: supported are x86_64 and aarch64"
            ),
        };
        ensure!(
            cfg!(target_os = "linux"),
            "the comparison requires Linux: it reads the usage of processes from /proc"
        );
        Ok(Self {
            folder: root.join(folder),
            architecture,
        })
    }

    /// A command that runs the Node of the packages.
    pub(crate) fn node(&self, how: fn(&Path) -> Command) -> Command {
        let package = format!("node_modules/node-linux-{}", self.architecture);
        let mut command = how(&self.folder.join(package).join("bin/node"));
        command.current_dir(&self.folder);
        command
    }

    /// The version of a package that package.json pins.
    pub(crate) fn version(&self, package: &str) -> Result<String> {
        let manifest = fs::read_to_string(self.folder.join("package.json"))
            .context("cannot read package.json")?;
        let manifest: Value =
            serde_json::from_str(&manifest).context("package.json is not JSON")?;
        let version = manifest["dependencies"][package].as_str();
        Ok(version
            .with_context(|| format!("package.json has no dependency {package}"))?
            .to_owned())
    }
}

/// Installs the npm modules of `folder` if they are missing or older than its lock file.
fn ensure_node_modules(folder: &Path) -> Result<()> {
    let modified = |name: &str| {
        folder
            .join(name)
            .metadata()
            .and_then(|it| it.modified())
            .ok()
    };
    let installed = modified("node_modules/.package-lock.json");
    if installed.is_some() && installed >= modified("package-lock.json") {
        return Ok(());
    }
    eprintln!("  installing the npm modules of {}", folder.display());
    let mut command = Command::new("npm");
    command
        .args(["ci", "--no-audit", "--no-fund"])
        .current_dir(folder);
    printed(&mut command).context("cannot install the npm modules: is npm installed?")?;
    Ok(())
}

/// Keeps the modification time of an unchanged file, because a newer lock file causes a reinstall.
fn copy_if_changed(from: &Path, to: &Path) -> Result<()> {
    let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|present| present == content) {
        return Ok(());
    }
    fs::write(to, content).with_context(|| format!("cannot write {}", to.display()))
}
