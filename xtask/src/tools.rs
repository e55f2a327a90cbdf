//! The external programs that the checks need: detects them, and installs missing ones on a machine
//! with Rust and root.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use crate::command::{ToolCommand, probe};
use crate::run::XtaskRun;

/// An external program that the checks run.
pub(crate) struct Tool {
    name: &'static str,
    /// Command that prints the version, and fails if the program is missing.
    probe: &'static [&'static str],
    source: Source,
}

/// How to install a tool, and which versions are accepted.
enum Source {
    Debian {
        package: &'static str,
        major_min: Option<u32>,
    },
    CargoInstall {
        version: &'static str,
        accepted: AcceptedVersions,
    },
    RustupComponent,
}

/// Which versions of an installed program will do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AcceptedVersions {
    Exact,
    OrNewer,
}

pub(crate) static GIT: Tool = Tool {
    name: "git",
    probe: &["git", "--version"],
    source: Source::any("git"),
};
/// Compiles libFuzzer, which is C++.
pub(crate) static CXX: Tool = Tool {
    name: "g++",
    probe: &["g++", "--version"],
    source: Source::any("g++"),
};
/// The programs are in PATH on some systems, and in one folder per version on others.
pub(crate) static POSTGRES: Tool = Tool {
    name: "postgres",
    probe: &[
        "sh",
        "-c",
        "command -v postgres || ls /usr/lib/postgresql/*/bin/postgres",
    ],
    source: Source::any("postgresql"),
};
/// Sets the clock of a process.
pub(crate) static FAKETIME: Tool = Tool {
    name: "faketime",
    probe: &["faketime", "--version"],
    source: Source::any("faketime"),
};
pub(crate) static NODE: Tool = Tool {
    name: "node",
    probe: &["node", "--version"],
    source: Source::Debian {
        package: "nodejs",
        major_min: Some(18),
    },
};
pub(crate) static NPM: Tool = Tool {
    name: "npm",
    probe: &["npm", "--version"],
    source: Source::any("npm"),
};
/// Runs the Python worker client, and schemathesis.
pub(crate) static PYTHON: Tool = Tool {
    name: "python3",
    probe: &["python3", "--version"],
    source: Source::any("python3"),
};
/// Debian packages it separately from Python.
pub(crate) static VENV: Tool = Tool {
    name: "venv",
    probe: &["python3", "-c", "import venv, ensurepip"],
    source: Source::any("python3-venv"),
};
pub(crate) static RUSTFMT: Tool = Tool {
    name: "rustfmt",
    probe: &["cargo", "fmt", "--version"],
    source: Source::RustupComponent,
};
pub(crate) static CLIPPY: Tool = Tool {
    name: "clippy",
    probe: &["cargo", "clippy", "--version"],
    source: Source::RustupComponent,
};
pub(crate) static CARGO_DENY: Tool = Tool {
    name: "cargo-deny",
    probe: &["cargo", "deny", "--version"],
    source: Source::CargoInstall {
        version: "0.20.2",
        accepted: AcceptedVersions::Exact,
    },
};
pub(crate) static CARGO_FUZZ: Tool = Tool {
    name: "cargo-fuzz",
    probe: &["cargo", "fuzz", "--version"],
    source: Source::CargoInstall {
        version: "0.13.2",
        accepted: AcceptedVersions::Exact,
    },
};
pub(crate) static CARGO_NEXTEST: Tool = Tool {
    name: "cargo-nextest",
    probe: &["cargo", "nextest", "--version"],
    source: Source::CargoInstall {
        version: "0.9.143",
        accepted: AcceptedVersions::OrNewer,
    },
};
pub(crate) static CARGO_MUTANTS: Tool = Tool {
    name: "cargo-mutants",
    probe: &["cargo", "mutants", "--version"],
    source: Source::CargoInstall {
        version: "27.1.0",
        accepted: AcceptedVersions::Exact,
    },
};

impl Source {
    const fn any(package: &'static str) -> Self {
        Self::Debian {
            package,
            major_min: None,
        }
    }

    /// `printed` is the output of `--version`: `v20.1.0`, or a name and a version.
    fn accepts(&self, printed: &str) -> bool {
        let mut words = printed.split_whitespace();
        let Some(found) = words.find_map(version_numbers) else {
            return matches!(
                self,
                Self::Debian {
                    major_min: None,
                    ..
                } | Self::RustupComponent
            );
        };
        match self {
            Self::CargoInstall { version, accepted } => {
                version_numbers(version).is_some_and(|pinned| match accepted {
                    AcceptedVersions::Exact => found == pinned,
                    AcceptedVersions::OrNewer => found >= pinned,
                })
            }
            Self::Debian {
                major_min: Some(least),
                ..
            } => found[0] >= *least,
            Self::Debian { .. } | Self::RustupComponent => true,
        }
    }
}

/// The numbers of a version such as `v20.1.0`; `None` if the word is not a version.
fn version_numbers(word: &str) -> Option<Vec<u32>> {
    let numbers = word.trim_start_matches('v').split('.');
    let numbers: Option<Vec<u32>> = numbers.map(|number| number.parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() > 1)
}

impl Tool {
    fn present(&self, folder: &Path) -> bool {
        let (program, args) = self.probe.split_first().unwrap_or((&self.name, &[]));
        probe(folder, program, args).is_some_and(|printed| self.source.accepts(&printed))
    }

    fn requirement(&self) -> String {
        match self.source {
            Source::CargoInstall { version, .. } => format!("{} {version}", self.name),
            Source::Debian {
                major_min: Some(least),
                ..
            } => format!("{} {least} or newer", self.name),
            Source::Debian { .. } | Source::RustupComponent => self.name.to_owned(),
        }
    }
}

/// Installs the tools that are missing or do not have the pinned version.
///
/// Installs them one at a time, because one can provide the next: some packages of Node contain npm
/// and conflict with a separate one.
pub(crate) fn ensure(run: &XtaskRun, tools: &[&Tool]) -> Result<()> {
    let mut index = PackageIndex::Stale;
    require_installable(run, tools)?;
    for tool in tools.iter().filter(|tool| !tool.present(&run.root)) {
        install(run, tool, &mut index)?;
        ensure!(
            tool.present(&run.root),
            "{} was installed, but `{}` finds another version first in PATH: remove or update that one",
            tool.requirement(),
            tool.probe.join(" ")
        );
    }
    Ok(())
}

/// Whether `apt-get update` has run.
enum PackageIndex {
    Stale,
    Fresh,
}

/// Fails if Debian packages are missing and cannot be installed; the error lists all of them.
fn require_installable(run: &XtaskRun, tools: &[&Tool]) -> Result<()> {
    let mut missing = Vec::new();
    let mut packages = Vec::new();
    for tool in tools.iter().filter(|tool| !tool.present(&run.root)) {
        if let Source::Debian { package, .. } = tool.source {
            missing.push(tool.requirement());
            packages.push(package);
        }
    }
    let is_root = || probe(&run.root, "id", &["-u"]).is_some_and(|id| id == "0");
    let has_apt = || probe(&run.root, "apt-get", &["--version"]).is_some();
    ensure!(
        missing.is_empty() || (is_root() && has_apt()),
        "missing tools: {}. Automatic installation requires root and apt-get: install them by hand (on Debian: `apt-get install {}`)",
        missing.join(", "),
        packages.join(" ")
    );
    Ok(())
}

fn install(run: &XtaskRun, tool: &Tool, index: &mut PackageIndex) -> Result<()> {
    match tool.source {
        Source::Debian { package, .. } => install_package(run, package, index),
        Source::RustupComponent => add_component(run, tool.name),
        Source::CargoInstall { version, .. } => cargo_install(run, tool.name, version),
    }
}

fn install_package(run: &XtaskRun, package: &str, index: &mut PackageIndex) -> Result<()> {
    eprintln!("  installing the Debian package {package}");
    if matches!(index, PackageIndex::Stale) {
        apt_get(run, &["update"])?;
        *index = PackageIndex::Fresh;
    }
    apt_get(run, &["install", "-y", "--no-install-recommends", package])
}

fn apt_get(run: &XtaskRun, args: &[&str]) -> Result<()> {
    ToolCommand::new(run, "apt-get", args.iter().copied())
        .with_environment("DEBIAN_FRONTEND", "noninteractive")
        .quiet()?;
    Ok(())
}

fn add_component(run: &XtaskRun, name: &str) -> Result<()> {
    eprintln!("  adding the Rust component {name}");
    ToolCommand::new(run, "rustup", ["component", "add", name])
        .quiet()
        .with_context(|| {
            format!("cannot add the Rust component {name}: add it to the toolchain by hand")
        })?;
    Ok(())
}

/// Builds without optimisation: compiling takes longer than the tool will ever run.
fn cargo_install(run: &XtaskRun, name: &str, version: &str) -> Result<()> {
    eprintln!("  installing {name} {version} (a minute or more)");
    let package = format!("{name}@{version}");
    ToolCommand::new(run, "cargo", ["install", "--debug", "--locked", &package]).quiet()?;
    Ok(())
}

/// Installs the npm modules of `folder` if they are missing or older than its lock file.
pub(crate) fn ensure_node_modules(run: &XtaskRun, folder: &str) -> Result<()> {
    let path = run.root.join(folder);
    let installed = modified(&path.join("node_modules/.package-lock.json"));
    let locked = modified(&path.join("package-lock.json"));
    if installed.is_some() && installed >= locked {
        return Ok(());
    }
    eprintln!("  installing the npm modules of {folder}");
    ToolCommand::new(run, "npm", ["ci", "--no-audit", "--no-fund"])
        .in_folder(folder)
        .quiet()?;
    Ok(())
}

/// Tests the HTTP API against its OpenAPI description.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// Installs schemathesis into a virtual environment under target/.
pub(crate) fn ensure_schemathesis(run: &XtaskRun) -> Result<()> {
    let program = run.root.join("target/schemathesis/bin/schemathesis");
    let version = SCHEMATHESIS.rsplit('=').next().unwrap_or_default();
    let printed = program
        .to_str()
        .and_then(|program| probe(&run.root, program, &["--version"]));
    if printed.is_some_and(|printed| printed.split_whitespace().last() == Some(version)) {
        return Ok(());
    }
    eprintln!("  installing {SCHEMATHESIS}");
    ToolCommand::new(
        run,
        "python3",
        ["-m", "venv", "--clear", "target/schemathesis"],
    )
    .quiet()?;
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        SCHEMATHESIS,
    ];
    ToolCommand::new(run, "target/schemathesis/bin/python", pip).quiet()?;
    Ok(())
}

/// The SMTP server of the tests.
const AIOSMTPD: &str = "aiosmtpd==1.4.6";

/// Installs aiosmtpd into a virtual environment under target/.
pub(crate) fn ensure_aiosmtpd(run: &XtaskRun) -> Result<()> {
    let python = run.root.join("target/aiosmtpd/bin/python");
    let version = AIOSMTPD.rsplit('=').next().unwrap_or_default();
    let printed = python
        .to_str()
        .and_then(|python| probe(&run.root, python, &["-m", "aiosmtpd", "--version"]));
    if printed.is_some_and(|printed| printed.split_whitespace().last() == Some(version)) {
        return Ok(());
    }
    eprintln!("  installing {AIOSMTPD}");
    ToolCommand::new(run, "python3", ["-m", "venv", "--clear", "target/aiosmtpd"]).quiet()?;
    let pip = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        AIOSMTPD,
    ];
    ToolCommand::new(run, "target/aiosmtpd/bin/python", pip).quiet()?;
    Ok(())
}

fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|meta| meta.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::{CARGO_FUZZ, CARGO_NEXTEST, CXX, NODE};

    #[test]
    fn a_pinned_version_accepts_only_itself() {
        assert!(CARGO_FUZZ.source.accepts("cargo-fuzz 0.13.2"));
        assert!(!CARGO_FUZZ.source.accepts("cargo-fuzz 0.13.20"));
    }

    #[test]
    fn a_newer_test_runner_is_accepted() {
        let printed = |version: &str| format!("cargo-nextest {version} (60fa45f 2026-08-04)");
        for (version, is_accepted) in [("0.9.142", false), ("0.9.143", true), ("0.10.0", true)] {
            let accepts = CARGO_NEXTEST.source.accepts(&printed(version));
            assert_eq!(accepts, is_accepted, "{version}");
        }
    }

    #[test]
    fn minimum_versions_are_compared_numerically() {
        assert!(NODE.source.accepts("v18.20.4"));
        assert!(NODE.source.accepts("v100.0.0"));
        assert!(!NODE.source.accepts("v9.9.9"));
        assert!(!NODE.source.accepts("unknown"));
    }

    #[test]
    fn any_compiler_version_is_accepted() {
        assert!(
            CXX.source
                .accepts("g++ (Debian 12.2.0-14) 12.2.0\nNo warranty.")
        );
    }

    #[test]
    fn a_requirement_includes_the_version() {
        assert_eq!(NODE.requirement(), "node 18 or newer");
        assert_eq!(CARGO_FUZZ.requirement(), "cargo-fuzz 0.13.2");
        assert_eq!(CXX.requirement(), "g++");
    }
}
