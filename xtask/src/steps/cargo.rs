//! The checks that are one cargo command each, with `--locked` so that none of them changes what it
//! checks.

use anyhow::Result;

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

/// A long run also enumerates longer journals, kills processes ten times as often, those that send
/// campaigns two hundred times, and lets nodes come and go for two minutes.
pub(crate) fn test(run: &XtaskRun) -> Result<()> {
    tools::ensure_schemathesis(run)?;
    tools::ensure_aiosmtpd(run)?;
    let call = ToolCommand::new(run, "cargo", ["test", "--workspace", "--locked"]);
    match run.length {
        Length::Short => call.shown(),
        Length::Long => call
            .with_environment("ONWARD_EXHAUSTIVE", "10")
            .with_environment("ONWARD_KILLS", "10")
            .with_environment("ONWARD_NODES_SECONDS", "120")
            .with_environment("ONWARD_CAMPAIGN_KILLS", "1000")
            .shown(),
    }
}

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
/// small.
pub(crate) fn bench(run: &XtaskRun) -> Result<()> {
    const ARGS: [&str; 8] = [
        "bench",
        "-p",
        "onward-benches",
        "--locked",
        "--",
        "--quick",
        "--gate",
        "0.3",
    ];
    ToolCommand::new(run, "cargo", ARGS).shown()
}
