//! What a side has from npm: its packages, and a Node that they support. Installed under target/,
//! from a lock file of this repository.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::run::XtaskRun;
use crate::tools::{self, NODE, NPM};

/// What says what to install, and from whom.
const LOCKED: [&str; 3] = [".npmrc", "package.json", "package-lock.json"];

/// Packages that are installed, for this kind of machine.
pub(crate) struct Packages {
    pub(crate) folder: PathBuf,
    pub(crate) architecture: &'static str,
}

impl Packages {
    /// Installs what `sources` names into `folder`, both of this repository, and copies `files` to
    /// it: Node looks for modules beside the file that wants them.
    pub(crate) fn install(
        run: &XtaskRun,
        sources: &str,
        folder: &str,
        files: &[&str],
    ) -> Result<Self> {
        tools::ensure(run, &[&NODE, &NPM])?;
        let packages = Self::at(run, folder)?;
        fs::create_dir_all(&packages.folder)
            .with_context(|| format!("cannot make the folder {folder}"))?;
        for name in LOCKED.iter().chain(files) {
            copy_if_changed(
                &run.root.join(sources).join(name),
                &packages.folder.join(name),
            )?;
        }
        tools::ensure_node_modules(run, folder)?;
        Ok(packages)
    }

    /// Those that are installed in `folder` already.
    pub(crate) fn at(run: &XtaskRun, folder: &str) -> Result<Self> {
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "x64",
            "aarch64" => "arm64",
            other => bail!("no Node is known here for {other}"),
        };
        ensure!(
            cfg!(target_os = "linux"),
            "what a process uses is read from /proc: this needs Linux"
        );
        Ok(Self {
            folder: run.root.join(folder),
            architecture,
        })
    }

    /// The Node that the packages bring.
    pub(crate) fn node(&self, how: fn(&Path) -> Command) -> Command {
        let package = format!("node_modules/node-linux-{}", self.architecture);
        let mut command = how(&self.folder.join(package).join("bin/node"));
        command.current_dir(&self.folder);
        command
    }

    /// The version of a package, which package.json pins.
    pub(crate) fn version(&self, package: &str) -> Result<String> {
        let manifest = fs::read_to_string(self.folder.join("package.json"))
            .context("cannot read package.json")?;
        let manifest: Value =
            serde_json::from_str(&manifest).context("package.json is not JSON")?;
        let version = manifest["dependencies"][package].as_str();
        Ok(version
            .with_context(|| format!("package.json does not name {package}"))?
            .to_owned())
    }
}

/// Keeps the time of what is the same: modules are installed again when the lock file is newer.
fn copy_if_changed(from: &Path, to: &Path) -> Result<()> {
    let wanted = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    if fs::read(to).is_ok_and(|present| present == wanted) {
        return Ok(());
    }
    fs::write(to, wanted).with_context(|| format!("cannot write {}", to.display()))
}
