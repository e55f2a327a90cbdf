//! The checks that are one cargo command each, with `--locked` so that none of them changes what it checks.

use anyhow::Result;

use crate::command::Call;
use crate::run::Run;
use crate::steps::Outcome;

pub(crate) fn fmt(run: &Run) -> Result<()> {
    Call::new(run, "cargo", ["fmt", "--all", "--check"]).shown()
}

pub(crate) fn clippy(run: &Run) -> Result<()> {
    const ARGS: [&str; 7] = [
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ];
    Call::new(run, "cargo", ARGS).shown()
}

pub(crate) fn test(run: &Run) -> Result<()> {
    Call::new(run, "cargo", ["test", "--workspace", "--locked"]).shown()
}

pub(crate) fn docs(run: &Run) -> Result<()> {
    const ARGS: [&str; 5] = [
        "doc",
        "--workspace",
        "--no-deps",
        "--document-private-items",
        "--locked",
    ];
    Call::new(run, "cargo", ARGS)
        .with_environment("RUSTDOCFLAGS", "-D warnings")
        .quiet()?;
    Ok(())
}

/// Advisories are left out: their database is a download, and a check must not depend on today's network.
pub(crate) fn deny(run: &Run) -> Result<()> {
    const ARGS: [&str; 6] = ["deny", "--locked", "check", "bans", "licenses", "sources"];
    Call::new(run, "cargo", ARGS).quiet()?;
    Ok(())
}

pub(crate) fn bench(run: &Run) -> Result<Outcome> {
    if !run.root.join("benches/Cargo.toml").exists() {
        return Ok(Outcome::Skipped("there is no benches/Cargo.toml"));
    }
    const ARGS: [&str; 6] = ["bench", "-p", "onward-benches", "--locked", "--", "--quick"];
    Call::new(run, "cargo", ARGS).shown()?;
    Ok(Outcome::Passed)
}
