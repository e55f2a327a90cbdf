//! Onward: runs the released command `onward bench dispatch`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use onward_benchmarks::dispatch_load::JOB_ITEMS;
use serde_json::Value;

use crate::dispatch::round::{DispatchRound, RoundSize, number};
use crate::onward;
use crate::process::{bound_to_this, printed};

/// The durability settings that its database sessions must report.
const DURABLE: &str = "fsync=on, synchronous_commit=on, full_page_writes=on";

pub(crate) fn install(root: &Path) -> Result<String> {
    onward::build(root)
}

pub(crate) fn measure(root: &Path, database: &str, size: RoundSize) -> Result<DispatchRound> {
    let mut command = bound_to_this(&onward::program(root));
    // The benchmark warms up with a tenth of the items. `--quick` shortens only its other
    // measurements, which are not used here.
    command.args([
        "bench",
        "dispatch",
        "--json",
        "--quick",
        "--count",
        &size.measured.to_string(),
        "--store",
        database,
    ]);
    read(&printed(&mut command)?)?.require_complete(size)
}

fn read(output: &str) -> Result<DispatchRound> {
    let document: Value = serde_json::from_str(output)
        .with_context(|| format!("the output is not JSON: {output}"))?;
    let durability = document["durability"].as_str().unwrap_or_default();
    ensure!(
        durability.contains(DURABLE),
        "the database sessions are not durable: {durability}"
    );
    let figures = &document["workloads"][0];
    ensure!(
        figures["unit"] == "item",
        "the first workload does not count items: {figures}"
    );
    Ok(DispatchRound {
        count: number(figures, "units")?,
        seconds: number(figures, "seconds")?,
        cpu_seconds: number(figures, "cpuSeconds")?,
        log_bytes: number(figures, "writtenBytes")?,
        other_cores: 0.0,
        settings: format!(
            "jobs of {JOB_ITEMS} items, {} jobs at a time",
            figures["concurrency"]
        ),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::read;

    fn output(synchronous_commit: &str) -> String {
        let durability = format!(
            "Postgres 15, fsync=on, synchronous_commit={synchronous_commit}, full_page_writes=on"
        );
        let figures = json!({
            "unit": "item", "units": 100, "seconds": 0.5, "cpuSeconds": 0.1, "writtenBytes": 5_000, "concurrency": 8,
        });
        json!({ "durability": durability, "workloads": [figures] }).to_string()
    }

    #[test]
    fn the_output_of_the_benchmark_is_parsed() {
        let round = read(&output("on")).unwrap();
        assert_eq!((round.rate(), round.log_bytes_each()), (200.0, 50.0));
        assert_eq!(round.settings, "jobs of 100 items, 8 jobs at a time");
    }

    #[test]
    fn sessions_without_synchronous_commit_are_rejected() {
        assert!(read(&output("off")).is_err());
    }
}
