//! Copies the sources of the components to one folder, so that their builds are reproducible.
//!
//! Cargo derives the identity of a crate from its path in the workspace, or from its absolute path
//! if it is outside, as the SDK is for the examples. The identity affects the order of functions in
//! a component. In one folder, it does not depend on the location of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::command::probe;
use crate::run::XtaskRun;

/// The folder of the copy, relative to the workspace.
pub(crate) const FOLDER: &str = "target/guests/stage";

const WORKSPACE: &str = "examples/workflows";
const SDK: &str = "sdk/rust";
const SDK_PARTS: [&str; 3] = ["Cargo.toml", "macros", "src"];
const INTERFACE: &str = "sdk/wit";
const WORKSPACE_PARTS: [&str; 6] = [
    "Cargo.lock",
    "Cargo.toml",
    "bench",
    "journals",
    "orders",
    "remote",
];

pub(crate) fn copy_sources(run: &XtaskRun) -> Result<()> {
    let stage = run.root.join(FOLDER);
    if stage.exists() {
        fs::remove_dir_all(&stage).with_context(|| format!("cannot remove {FOLDER}"))?;
    }
    for part in WORKSPACE_PARTS {
        copy(&run.root.join(WORKSPACE).join(part), &stage.join(part))?;
    }
    for part in SDK_PARTS {
        copy(
            &run.root.join(SDK).join(part),
            &stage.join("sdk").join(part),
        )?;
    }
    // The SDK expects the interface in a sibling folder.
    copy(&run.root.join(INTERFACE), &stage.join("wit"))?;
    let manifest = stage.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let local = with_sdk_inside(&text);
    ensure!(
        local != text,
        "{WORKSPACE}/Cargo.toml does not reference the SDK as ../../{SDK}"
    );
    fs::write(&manifest, local).with_context(|| format!("cannot write {}", manifest.display()))
}

/// The manifest with the SDK inside the folder; excluded, because it has its own workspace.
fn with_sdk_inside(manifest: &str) -> String {
    manifest
        .replace("path = \"../../sdk/rust\"", "path = \"sdk\"")
        .replace("\n[workspace]\n", "\n[workspace]\nexclude = [\"sdk\"]\n")
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    let failed = || format!("cannot copy {}", from.display());
    if from.is_dir() {
        for entry in fs::read_dir(from).with_context(failed)? {
            let name = entry.with_context(failed)?.file_name();
            copy(&from.join(&name), &to.join(&name))?;
        }
        return Ok(());
    }
    let folder = to.parent().unwrap_or(to);
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create the folder {}", folder.display()))?;
    fs::copy(from, to).with_context(failed)?;
    Ok(())
}

/// Compiler flags that keep local paths out of the components, in the format of
/// `CARGO_ENCODED_RUSTFLAGS`.
pub(crate) fn flags(run: &XtaskRun) -> Result<String> {
    let mut remaps = vec![remap(&run.root.join(FOLDER), "/onward")];
    // The folder name of a registry depends on its URL, which differs between machines.
    let registries = cargo_home()
        .map(|home| home.join("registry/src"))
        .and_then(|folder| fs::read_dir(folder).ok());
    for registry in registries.into_iter().flatten() {
        remaps.push(remap(
            &registry.context("cannot list the cargo registries")?.path(),
            "/cargo",
        ));
    }
    remaps.extend(standard_library(run));
    Ok(remaps.join("\u{1f}"))
}

fn cargo_home() -> Option<PathBuf> {
    let set = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    set.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))
}

/// If the sources of the standard library are installed, rustc uses their local paths instead of
/// the original ones.
fn standard_library(run: &XtaskRun) -> Option<String> {
    let sysroot = probe(&run.root, "rustc", &["--print", "sysroot"])?;
    let version = probe(&run.root, "rustc", &["-vV"])?;
    let commit = version
        .lines()
        .find_map(|line| line.strip_prefix("commit-hash: "))?;
    Some(remap(
        &Path::new(&sysroot).join("lib/rustlib/src/rust"),
        &format!("/rustc/{commit}"),
    ))
}

fn remap(folder: &Path, name: &str) -> String {
    format!("--remap-path-prefix={}={name}", folder.display())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{remap, with_sdk_inside};

    #[test]
    fn a_local_path_is_replaced_by_a_fixed_name() {
        assert_eq!(
            remap(Path::new("/a/b"), "/onward"),
            "--remap-path-prefix=/a/b=/onward"
        );
    }

    #[test]
    fn the_copied_manifest_references_the_copied_sdk() {
        let manifest = "# A comment.\n[workspace]\nresolver = \"3\"\n\nonward-sdk = { path = \"../../sdk/rust\" }\n";
        let inside = "# A comment.\n[workspace]\nexclude = [\"sdk\"]\nresolver = \"3\"\n\nonward-sdk = { path = \"sdk\" }\n";
        assert_eq!(with_sdk_inside(manifest), inside);
    }
}
