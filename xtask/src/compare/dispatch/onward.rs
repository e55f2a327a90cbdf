//! Onward: `onward bench dispatch`, as it is shipped.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::compare::dispatch::round::{Round, Size, number};
use crate::compare::onward;
use crate::compare::process::{bound_to_this, printed};
use crate::run::XtaskRun;

/// What its sessions have to say of themselves.
const DURABLE: &str = "fsync=on, synchronous_commit=on, full_page_writes=on";
const JOB_ITEMS: u32 = 100;

pub(crate) fn install(run: &XtaskRun) -> Result<String> {
    onward::build(run)
}

pub(crate) fn measure(run: &XtaskRun, database: &str, size: Size) -> Result<Round> {
    let mut command = bound_to_this(&onward::program(run));
    // It warms up with a tenth. Only what it measures besides, which is not asked for here, is
    // quick.
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
    read(&printed(&mut command)?)?.expect(size)
}

fn read(answer: &str) -> Result<Round> {
    let document: Value =
        serde_json::from_str(answer).with_context(|| format!("this is not JSON: {answer}"))?;
    let durability = document["durability"].as_str().unwrap_or_default();
    ensure!(
        durability.contains(DURABLE),
        "its sessions are not durable: {durability}"
    );
    let figures = &document["workloads"][0];
    ensure!(
        figures["unit"] == "item",
        "no items are counted in {figures}"
    );
    Ok(Round {
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

    fn answer(synchronous_commit: &str) -> String {
        let durability = format!(
            "Postgres 15, fsync=on, synchronous_commit={synchronous_commit}, full_page_writes=on"
        );
        let figures = json!({
            "unit": "item", "units": 100, "seconds": 0.5, "cpuSeconds": 0.1, "writtenBytes": 5_000, "concurrency": 8,
        });
        json!({ "durability": durability, "workloads": [figures] }).to_string()
    }

    #[test]
    fn what_the_benchmark_prints_is_understood() {
        let round = read(&answer("on")).unwrap();
        assert_eq!((round.rate(), round.log_bytes_each()), (200.0, 50.0));
        assert_eq!(round.settings, "jobs of 100 items, 8 jobs at a time");
    }

    #[test]
    fn sessions_that_do_not_wait_for_the_disk_are_refused() {
        assert!(read(&answer("off")).is_err());
    }
}
