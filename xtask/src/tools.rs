//! The programs the checks need, how to see that each is there, and how to get it: a bare machine
//! with Rust and root becomes one that can run everything.

use std::path::Path;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use crate::command::{ToolCommand, probe};
use crate::run::XtaskRun;

/// A program the checks call.
pub(crate) struct Tool {
    name: &'static str,
    /// Prints the version, and fails when the program is absent.
    probe: &'static [&'static str],
    source: Source,
}

/// Where a tool comes from, and which of its versions will do.
enum Source {
    Debian {
        package: &'static str,
        major_min: Option<u32>,
    },
    CargoInstall {
        version: &'static str,
    },
    RustupComponent,
}

pub(crate) static GIT: Tool = Tool {
    name: "git",
    probe: &["git", "--version"],
    source: Source::any("git"),
};
/// libFuzzer is C++ and is compiled from source.
pub(crate) static CXX: Tool = Tool {
    name: "g++",
    probe: &["g++", "--version"],
    source: Source::any("g++"),
};
/// Its programs are in PATH on some systems and in a folder per version on others.
pub(crate) static POSTGRES: Tool = Tool {
    name: "postgres",
    probe: &[
        "sh",
        "-c",
        "command -v postgres || ls /usr/lib/postgresql/*/bin/postgres",
    ],
    source: Source::any("postgresql"),
};
/// It sets the clock of a process.
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
/// It runs the clients in Python, and what asks the server all kinds of things.
pub(crate) static PYTHON: Tool = Tool {
    name: "python3",
    probe: &["python3", "--version"],
    source: Source::any("python3"),
};
/// Debian has it apart from Python.
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
    source: Source::CargoInstall { version: "0.20.2" },
};
pub(crate) static CARGO_FUZZ: Tool = Tool {
    name: "cargo-fuzz",
    probe: &["cargo", "fuzz", "--version"],
    source: Source::CargoInstall { version: "0.13.2" },
};
pub(crate) static CARGO_MUTANTS: Tool = Tool {
    name: "cargo-mutants",
    probe: &["cargo", "mutants", "--version"],
    source: Source::CargoInstall { version: "27.1.0" },
};

impl Source {
    const fn any(package: &'static str) -> Self {
        Self::Debian {
            package,
            major_min: None,
        }
    }

    /// `printed` is what `--version` says: `v20.1.0`, or a name and a version.
    fn accepts(&self, printed: &str) -> bool {
        let found = printed.split_whitespace().last().unwrap_or_default();
        match self {
            Self::CargoInstall { version } => found == *version,
            Self::Debian {
                major_min: Some(least),
                ..
            } => major(found).is_some_and(|major| major >= *least),
            Self::Debian { .. } | Self::RustupComponent => true,
        }
    }
}

fn major(version: &str) -> Option<u32> {
    let (first, _) = version.trim_start_matches('v').split_once('.')?;
    first.parse().ok()
}

impl Tool {
    fn present(&self, folder: &Path) -> bool {
        let (program, args) = self.probe.split_first().unwrap_or((&self.name, &[]));
        probe(folder, program, args).is_some_and(|printed| self.source.accepts(&printed))
    }

    fn wanted(&self) -> String {
        match self.source {
            Source::CargoInstall { version } => format!("{} {version}", self.name),
            Source::Debian {
                major_min: Some(least),
                ..
            } => format!("{} {least} or newer", self.name),
            Source::Debian { .. } | Source::RustupComponent => self.name.to_owned(),
        }
    }
}

/// Installs those of `tools` that are missing or of another version than the pinned one.
///
/// One after the other, because one may bring the next: some packages of Node contain npm and
/// refuse a second one.
pub(crate) fn ensure(run: &XtaskRun, tools: &[&Tool]) -> Result<()> {
    let mut index = PackageIndex::Stale;
    require_installable(run, tools)?;
    for tool in tools.iter().filter(|tool| !tool.present(&run.root)) {
        install(run, tool, &mut index)?;
        ensure!(
            tool.present(&run.root),
            "`{}` still does not give {} after installing it: another one comes first in PATH, remove or update it",
            tool.probe.join(" "),
            tool.wanted()
        );
    }
    Ok(())
}

/// Whether apt-get has been told to look for what is there to install.
enum PackageIndex {
    Stale,
    Fresh,
}

/// Fails with everything there is to install by hand, where Debian packages are missing and cannot
/// be installed.
fn require_installable(run: &XtaskRun, tools: &[&Tool]) -> Result<()> {
    let mut wanted = Vec::new();
    let mut packages = Vec::new();
    for tool in tools.iter().filter(|tool| !tool.present(&run.root)) {
        if let Source::Debian { package, .. } = tool.source {
            wanted.push(tool.wanted());
            packages.push(package);
        }
    }
    let is_root = || probe(&run.root, "id", &["-u"]).is_some_and(|id| id == "0");
    let has_apt = || probe(&run.root, "apt-get", &["--version"]).is_some();
    ensure!(
        wanted.is_empty() || (is_root() && has_apt()),
        "missing: {}. Installing needs root and apt-get; install by hand (on Debian: `apt-get install {}`)",
        wanted.join(", "),
        packages.join(" ")
    );
    Ok(())
}

fn install(run: &XtaskRun, tool: &Tool, index: &mut PackageIndex) -> Result<()> {
    match tool.source {
        Source::Debian { package, .. } => install_package(run, package, index),
        Source::RustupComponent => add_component(run, tool.name),
        Source::CargoInstall { version } => cargo_install(run, tool.name, version),
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
        .with_context(|| format!("add the component {name} to the Rust installation by hand"))?;
    Ok(())
}

/// Unoptimised, because compiling one takes far longer than running it ever will.
fn cargo_install(run: &XtaskRun, name: &str, version: &str) -> Result<()> {
    eprintln!("  installing {name} {version} (a minute or more)");
    let package = format!("{name}@{version}");
    ToolCommand::new(run, "cargo", ["install", "--debug", "--locked", &package]).quiet()?;
    Ok(())
}

/// Installs the npm modules of `folder` when they are absent or older than its lock file.
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

/// The version of what asks the server all kinds of things.
const SCHEMATHESIS: &str = "schemathesis==4.32.5";

/// Installs it into a folder of its own.
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

/// The version of the server that takes mail in tests.
const AIOSMTPD: &str = "aiosmtpd==1.4.6";

/// Installs it into a folder of its own.
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
    use super::{CARGO_FUZZ, CXX, NODE};

    #[test]
    fn a_pinned_version_accepts_only_itself() {
        assert!(CARGO_FUZZ.source.accepts("cargo-fuzz 0.13.2"));
        assert!(!CARGO_FUZZ.source.accepts("cargo-fuzz 0.13.20"));
    }

    #[test]
    fn a_least_version_compares_numbers_and_not_text() {
        assert!(NODE.source.accepts("v18.20.4"));
        assert!(NODE.source.accepts("v100.0.0"));
        assert!(!NODE.source.accepts("v9.9.9"));
        assert!(!NODE.source.accepts("unknown"));
    }

    #[test]
    fn any_version_of_a_compiler_will_do() {
        assert!(
            CXX.source
                .accepts("g++ (Debian 12.2.0-14) 12.2.0\nNo warranty.")
        );
    }

    #[test]
    fn what_is_wanted_is_said_with_its_version() {
        assert_eq!(NODE.wanted(), "node 18 or newer");
        assert_eq!(CARGO_FUZZ.wanted(), "cargo-fuzz 0.13.2");
        assert_eq!(CXX.wanted(), "g++");
    }
}
