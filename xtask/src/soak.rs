//! `cargo xtask soak`: repeats the tests that search for rare failures, each time with other seeds,
//! and adds what they reached to docs/ledger.md.

mod ledger;

use std::env;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::clock::Stopwatch;
use crate::command::{ToolCommand, probe};
use crate::run::XtaskRun;
use crate::soak::ledger::{Ledger, SoakRecord};
use crate::tools::{self, CARGO_NEXTEST, POSTGRES};

const LEDGER: &str = "docs/ledger.md";

/// Seeds below this belong to `cargo xtask test`.
const FIRST_SOAK_SEED: u64 = 1_000_000;

#[derive(Args)]
pub(crate) struct SoakArgs {
    /// How long to start further batches, in minutes.
    #[arg(long, default_value_t = 30)]
    minutes: u64,
    /// Run only this soak; can be given several times.
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// List the soaks; run none.
    #[arg(long)]
    pub(crate) list: bool,
}

/// A test that can be repeated with other seeds, or that kills at random moments.
struct Soak {
    name: &'static str,
    unit: &'static str,
    /// The number of units of one batch.
    batch: u64,
    /// Arguments of `cargo nextest run`.
    tests: &'static [&'static str],
    /// The variable with the number of units.
    count_variable: &'static str,
    /// How many units the variable's 1 stands for.
    units_per_count: u64,
}

const SOAKS: [Soak; 6] = [
    Soak {
        name: "power-cuts-store",
        unit: "power cuts of the SQLite store",
        batch: 5_000,
        tests: &[
            "-p",
            "onward-store-sqlite",
            "power_cuts::no_acknowledged_event_is_lost_in_a_power_cut",
        ],
        count_variable: "ONWARD_POWER_CUTS",
        units_per_count: 1,
    },
    Soak {
        name: "power-cuts-server",
        unit: "power cuts of a server under load",
        batch: 300,
        tests: &[
            "-p",
            "onward",
            "server_power_cuts::no_acknowledged_request_is_lost_in_a_power_cut_of_the_server",
        ],
        count_variable: "ONWARD_SERVER_POWER_CUTS",
        units_per_count: 1,
    },
    Soak {
        name: "engine-seeds",
        unit: "simulated worlds with nodes that crash, stall and drain",
        batch: 10_000,
        tests: &["-p", "onward-sim", "faults_do_not_change_the_results"],
        count_variable: "ONWARD_SEEDS",
        units_per_count: 1,
    },
    Soak {
        name: "campaign-seeds",
        unit: "simulated worlds with campaigns",
        batch: 10_000,
        tests: &["-p", "onward-sim", "every_recipient_is_reached_once"],
        count_variable: "ONWARD_SEEDS",
        units_per_count: 1,
    },
    Soak {
        name: "append-kills",
        unit: "SIGKILLs of an appending process, one in five on Postgres",
        batch: 500,
        tests: &[
            "-p",
            "onward",
            "keeps_every_acknowledged_event_through_kills",
        ],
        count_variable: "ONWARD_KILLS",
        units_per_count: 250,
    },
    Soak {
        name: "campaign-kills",
        unit: "SIGKILLs of processes that send campaigns, half of them on Postgres",
        batch: 400,
        tests: &["-p", "onward", "process_kills::no_send_is_repeated_or_lost"],
        count_variable: "ONWARD_CAMPAIGN_KILLS",
        units_per_count: 2,
    },
];

/// The soaks and what each counts, one a line.
pub(crate) fn list() -> String {
    let line = |soak: &Soak| format!("{:<18} {}\n", soak.name, soak.unit);
    SOAKS.iter().map(line).collect()
}

/// Runs batches of the chosen soaks in turn until the time is over. The ledger is written after
/// every batch, also after one that fails.
pub(crate) fn soak(run: &XtaskRun, args: &SoakArgs) -> Result<()> {
    let chosen = selected(&args.only)?;
    tools::ensure(run, &[&CARGO_NEXTEST, &POSTGRES])?;
    let commit = committed_revision(run)?;
    let watch = Stopwatch::start();
    let limit = Duration::from_secs(args.minutes * 60);
    let path = run.root.join(LEDGER);
    loop {
        for soak in &chosen {
            if watch.elapsed() >= limit {
                return Ok(());
            }
            let text =
                fs::read_to_string(&path).with_context(|| format!("cannot read {LEDGER}"))?;
            let mut ledger = Ledger::parse(&text)?;
            let first = FIRST_SOAK_SEED + ledger.total(soak.name);
            let result = run_batch(run, soak, first);
            ledger.add(SoakRecord {
                date: today(run)?,
                commit: commit.clone(),
                soak: soak.name.to_owned(),
                units: soak.batch,
                first_seed: first,
                failures: u64::from(result.is_err()),
            });
            fs::write(&path, ledger.to_string())
                .with_context(|| format!("cannot write {LEDGER}"))?;
            result?;
        }
    }
}

fn selected(only: &[String]) -> Result<Vec<&'static Soak>> {
    for name in only {
        if !SOAKS.iter().any(|soak| soak.name == name) {
            let names: Vec<&str> = SOAKS.iter().map(|soak| soak.name).collect();
            bail!("no soak is called {name}: choose from {}", names.join(", "));
        }
    }
    let is_wanted = |soak: &&Soak| only.is_empty() || only.iter().any(|name| name == soak.name);
    Ok(SOAKS.iter().filter(is_wanted).collect())
}

/// The figures of the ledger belong to a commit, so nothing else may be changed.
fn committed_revision(run: &XtaskRun) -> Result<String> {
    let changes = ["status", "--porcelain", "--", ".", ":!docs/ledger.md"];
    let changes = probe(&run.root, "git", &changes).context("cannot run git")?;
    ensure!(
        changes.is_empty(),
        "uncommitted changes: commit them first, because the ledger names the commit"
    );
    probe(&run.root, "git", &["rev-parse", "--short=12", "HEAD"]).context("cannot run git")
}

fn today(run: &XtaskRun) -> Result<String> {
    probe(&run.root, "date", &["-u", "+%F"]).context("cannot run date")
}

fn run_batch(run: &XtaskRun, soak: &Soak, first_seed: u64) -> Result<()> {
    let this_program = env::current_exe().context("cannot locate the running xtask")?;
    ToolCommand::new(run, "cargo", ["build", "--workspace", "--locked"]).quiet()?;
    let with_clusters = this_program.with_file_name("with-clusters");
    let with_clusters = with_clusters.to_string_lossy();
    let count = (soak.batch / soak.units_per_count).to_string();
    let first_seed = first_seed.to_string();
    let args = ["cargo", "nextest", "run", "--locked"];
    ToolCommand::new(run, &with_clusters, args.iter().chain(soak.tests).copied())
        .with_environment(soak.count_variable, &count)
        .with_environment("ONWARD_FIRST_SEED", &first_seed)
        .shown()
}

#[cfg(test)]
mod tests {
    use super::{SOAKS, selected};

    #[test]
    fn soak_names_are_unique_and_batches_are_whole() {
        for (position, soak) in SOAKS.iter().enumerate() {
            assert!(
                SOAKS[..position]
                    .iter()
                    .all(|other| other.name != soak.name)
            );
            assert_eq!(soak.batch % soak.units_per_count, 0, "{}", soak.name);
        }
    }

    #[test]
    fn an_unknown_soak_is_reported_with_the_known_ones() {
        let error = selected(&["cuts".to_owned()]).err().unwrap().to_string();
        assert!(error.starts_with("no soak is called cuts: choose from power-cuts-store, "));
    }
}
