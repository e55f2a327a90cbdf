//! The checks that are one cargo command each, with `--locked` so that none of them changes what it
//! checks.

use std::env;

use anyhow::{Context as _, Result};

use crate::command::ToolCommand;
use crate::run::{Length, XtaskRun};
use crate::tools;

pub(crate) fn fmt(run: &XtaskRun) -> Result<()> {
    ToolCommand::new(run, "cargo", ["fmt", "--all", "--check"]).shown()
}

pub(crate) fn clippy(run: &XtaskRun) -> Result<()> {
    const ARGS: [&str; 7] = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    ToolCommand::new(run, "cargo", ARGS).shown()
}

/// Everything that the tests and the model execute. They select the whole workspace too: with other
/// packages cargo would resolve other features and build most crates again. For the same reason the
/// library of benchmarks is built here and not last; `onward bench` is a part of the binary anyway.
///
/// The bench targets are left out: the last step builds them, optimised, and clippy checks them.
pub(crate) fn build(run: &XtaskRun) -> Result<()> {
    const ARGS: [&str; 7] = [
        "build",
        "--workspace",
        "--lib",
        "--bins",
        "--tests",
        "--examples",
        "--locked",
    ];
    ToolCommand::new(run, "cargo", ARGS).shown()
}

/// Every test in a process of its own, the slowest first, with two Postgres servers that all of
/// them share; then the examples in the documentation.
///
/// A long run enumerates longer journals, kills appending processes ten times as often and sending
/// processes a thousand times, and lets nodes join and leave for two minutes.
pub(crate) fn test(run: &XtaskRun) -> Result<()> {
    const NEXTEST: [&str; 5] = ["cargo", "nextest", "run", "--workspace", "--locked"];
    tools::ensure_schemathesis(run)?;
    tools::ensure_aiosmtpd(run)?;
    build(run)?;
    let this_program = env::current_exe().context("cannot locate the running xtask")?;
    // Cargo writes all programs of the workspace to one folder.
    let with_clusters = this_program.with_file_name("with-clusters");
    let with_clusters = with_clusters.to_string_lossy();
    let mut call = ToolCommand::new(run, &with_clusters, NEXTEST);
    if run.length == Length::Long {
        for (name, value) in LONG_TESTS {
            call = call.with_environment(name, value);
        }
    }
    call.shown()?;
    let examples = ["test", "--workspace", "--locked", "--doc", "--quiet"];
    ToolCommand::new(run, "cargo", examples).quiet()?;
    Ok(())
}

/// How much more a long run does.
const LONG_TESTS: [(&str, &str); 4] = [
    ("ONWARD_EXHAUSTIVE", "10"),
    ("ONWARD_KILLS", "10"),
    ("ONWARD_NODES_SECONDS", "120"),
    ("ONWARD_CAMPAIGN_KILLS", "1000"),
];

pub(crate) fn docs(run: &XtaskRun) -> Result<()> {
    const ARGS: [&str; 5] = [
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
        "--locked",
    ];
    ToolCommand::new(run, "cargo", ARGS)
        .with_environment("RUSTDOCFLAGS", "-D warnings")
        .quiet()?;
    Ok(())
}

/// Advisories are left out: their database is a download, and a check must not depend on today's
/// network.
pub(crate) fn deny(run: &XtaskRun) -> Result<()> {
    const ARGS: [&str; 6] = ["deny", "--locked", "check", "bans", "licenses", "sources"];
    ToolCommand::new(run, "cargo", ARGS).quiet()?;
    Ok(())
}

/// The gate is far below the targets: a shared machine is noisy, and a real regression is not
/// small. Cargo builds `onward-compare` too, because it is a binary of the same package.
pub(crate) fn bench(run: &XtaskRun) -> Result<()> {
    const ARGS: [&str; 8] = [
        "bench",
        "-p",
        "onward-benchmarks",
        "--locked",
        "--",
        "--quick",
        "--gate",
        "0.3",
    ];
    ToolCommand::new(run, "cargo", ARGS).shown()
}
