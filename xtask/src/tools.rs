//! The programs the checks need, how to see that each is there, and how to get it: a bare machine with Rust and root
//! becomes one that can run everything.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};

use crate::command::{Call, probe};
use crate::run::Run;

/// A program the checks call.
pub(crate) struct Tool {
    name: &'static str,
    /// Prints the version, and fails when the program is absent.
    probe: &'static [&'static str],
    version: Version,
    source: Source,
}

enum Version {
    Any,
    /// The first number of the version.
    AtLeast(u32),
    Exactly(&'static str),
}

enum Source {
    Debian(&'static [&'static str]),
    CargoInstall,
    RustupComponent,
}

pub(crate) static GIT: Tool = debian("git", &["git", "--version"], &["git"], Version::Any);
/// libFuzzer is C++ and is compiled from source.
pub(crate) static CXX: Tool = debian("g++", &["g++", "--version"], &["g++"], Version::Any);
pub(crate) static NODE: Tool = debian(
    "node",
    &["node", "--version"],
    &["nodejs"],
    Version::AtLeast(18),
);
pub(crate) static NPM: Tool = debian("npm", &["npm", "--version"], &["npm"], Version::Any);
pub(crate) static RUSTFMT: Tool = component("rustfmt", &["cargo", "fmt", "--version"]);
pub(crate) static CLIPPY: Tool = component("clippy", &["cargo", "clippy", "--version"]);
pub(crate) static CARGO_DENY: Tool = cargo_tool(
    "cargo-deny",
    &["cargo", "deny", "--version"],
    Version::Exactly("0.20.2"),
);
pub(crate) static CARGO_FUZZ: Tool = cargo_tool(
    "cargo-fuzz",
    &["cargo", "fuzz", "--version"],
    Version::Exactly("0.13.2"),
);
pub(crate) static CARGO_MUTANTS: Tool = cargo_tool(
    "cargo-mutants",
    &["cargo", "mutants", "--version"],
    Version::Exactly("27.1.0"),
);

const fn debian(
    name: &'static str,
    probe: &'static [&'static str],
    packages: &'static [&'static str],
    version: Version,
) -> Tool {
    Tool {
        name,
        probe,
        version,
        source: Source::Debian(packages),
    }
}

const fn component(name: &'static str, probe: &'static [&'static str]) -> Tool {
    Tool {
        name,
        probe,
        version: Version::Any,
        source: Source::RustupComponent,
    }
}

const fn cargo_tool(name: &'static str, probe: &'static [&'static str], version: Version) -> Tool {
    Tool {
        name,
        probe,
        version,
        source: Source::CargoInstall,
    }
}

impl Tool {
    fn present(&self, folder: &Path) -> bool {
        let (program, args) = self.probe.split_first().unwrap_or((&self.name, &[]));
        probe(folder, program, args).is_some_and(|printed| self.version.accepts(&printed))
    }

    fn wanted(&self) -> String {
        match self.version {
            Version::Any => self.name.to_owned(),
            Version::AtLeast(major) => format!("{} {major} or newer", self.name),
            Version::Exactly(version) => format!("{} {version}", self.name),
        }
    }
}

impl Version {
    /// `printed` is what `--version` says: `v20.1.0`, or a name and a version.
    fn accepts(&self, printed: &str) -> bool {
        let found = printed.split_whitespace().last().unwrap_or_default();
        match self {
            Self::Any => true,
            Self::Exactly(version) => found == *version,
            Self::AtLeast(major) => found
                .trim_start_matches('v')
                .split('.')
                .next()
                .and_then(|first| first.parse::<u32>().ok())
                .is_some_and(|first| first >= *major),
        }
    }
}

/// Installs those of `tools` that are missing or of another version than the pinned one.
pub(crate) fn ensure(run: &Run, tools: &[&Tool]) -> Result<()> {
    let missing: Vec<&Tool> = tools
        .iter()
        .copied()
        .filter(|tool| !tool.present(&run.root))
        .collect();
    install_packages(run, &missing)?;
    for tool in &missing {
        match (&tool.source, &tool.version) {
            (Source::Debian(_), _) => {}
            (Source::RustupComponent, _) => add_component(run, tool.name)?,
            (Source::CargoInstall, Version::Exactly(version)) => {
                cargo_install(run, &format!("{}@{version}", tool.name))?;
            }
            (Source::CargoInstall, _) => cargo_install(run, tool.name)?,
        }
        ensure!(
            tool.present(&run.root),
            "`{}` still does not give {} after installing it: another one comes first in PATH, remove or update it",
            tool.probe.join(" "),
            tool.wanted()
        );
    }
    Ok(())
}

fn install_packages(run: &Run, missing: &[&Tool]) -> Result<()> {
    let packages = packages_of(missing);
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    let is_root = probe(&run.root, "id", &["-u"]).is_some_and(|id| id == "0");
    if !is_root || probe(&run.root, "apt-get", &["--version"]).is_none() {
        let wanted: Vec<String> = missing.iter().map(|tool| tool.wanted()).collect();
        bail!(
            "missing: {}. Installing needs root and apt-get; install by hand (on Debian: `apt-get install {list}`)",
            wanted.join(", ")
        );
    }
    eprintln!("  installing the Debian packages {list}");
    apt_get(run, &["update"])?;
    let mut install = vec!["install", "-y", "--no-install-recommends"];
    install.extend(packages);
    apt_get(run, &install)
}

fn packages_of(missing: &[&Tool]) -> Vec<&'static str> {
    missing
        .iter()
        .filter_map(|tool| match tool.source {
            Source::Debian(packages) => Some(packages),
            Source::CargoInstall | Source::RustupComponent => None,
        })
        .flatten()
        .copied()
        .collect()
}

fn apt_get(run: &Run, args: &[&str]) -> Result<()> {
    Call::new(run, "apt-get", args.iter().copied())
        .with_environment("DEBIAN_FRONTEND", "noninteractive")
        .quiet()?;
    Ok(())
}

fn add_component(run: &Run, name: &str) -> Result<()> {
    eprintln!("  adding the Rust component {name}");
    Call::new(run, "rustup", ["component", "add", name])
        .quiet()
        .with_context(|| format!("add the component {name} to the Rust installation by hand"))?;
    Ok(())
}

fn cargo_install(run: &Run, what: &str) -> Result<()> {
    eprintln!("  installing {what} (a few minutes)");
    Call::new(run, "cargo", ["install", "--locked", what]).quiet()?;
    Ok(())
}

/// Installs the model's npm modules when they are absent or older than the lock file.
pub(crate) fn ensure_node_modules(run: &Run) -> Result<()> {
    let spec = run.root.join("spec");
    let installed = modified(&spec.join("node_modules/.package-lock.json"));
    let locked = modified(&spec.join("package-lock.json"));
    if installed.is_some() && installed >= locked {
        return Ok(());
    }
    eprintln!("  installing the npm modules of spec/");
    Call::new(run, "npm", ["ci", "--no-audit", "--no-fund"])
        .in_folder("spec")
        .quiet()?;
    Ok(())
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|meta| meta.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::{CARGO_FUZZ, CXX, GIT, NODE, NPM, Version, packages_of};

    #[test]
    fn a_pinned_version_accepts_only_itself() {
        let pinned = Version::Exactly("0.13.2");
        assert!(pinned.accepts("cargo-fuzz 0.13.2"));
        assert!(!pinned.accepts("cargo-fuzz 0.13.20"));
    }

    #[test]
    fn a_least_version_compares_numbers_and_not_text() {
        let least = Version::AtLeast(18);
        assert!(least.accepts("v18.20.4"));
        assert!(least.accepts("v100.0.0"));
        assert!(!least.accepts("v9.9.9"));
        assert!(!least.accepts("unknown"));
    }

    #[test]
    fn only_debian_tools_become_packages() {
        let missing = [&CXX, &CARGO_FUZZ, &NODE, &NPM, &GIT];
        assert_eq!(packages_of(&missing), ["g++", "nodejs", "npm", "git"]);
    }
}
