//! graphile-worker: from npm, with jobs that do nothing, in the configuration for which its
//! documentation reports the best figures.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::dispatch::round::{DispatchRound, RoundSize, number};
use crate::npm::NpmPackages;
use crate::process::{bound_to_this, clean, printed};

const SOURCES: &str = "benchmarks/compare/dispatch/graphile";
const FOLDER: &str = "target/compare/graphile";
const JOBS: &str = "jobs.mjs";
/// Jobs added by one call; more would make a statement of megabytes.
const ADD_BATCH: &str = "10000";
/// Polling interval for completion, the same as in the benchmark of Onward.
const POLL_MS: &str = "2";

pub(crate) fn install(root: &Path) -> Result<String> {
    let packages = NpmPackages::install(root, SOURCES, FOLDER, &[JOBS])?;
    let node = printed(packages.node(clean).arg("--version"))?;
    let (worker, client) = (
        packages.version("graphile-worker")?,
        packages.version("pg")?,
    );
    Ok(format!(
        "graphile-worker {worker}, pg {client}, Node {node}"
    ))
}

pub(crate) fn measure(root: &Path, database: &str, size: RoundSize) -> Result<DispatchRound> {
    let mut command = NpmPackages::at(root, FOLDER)?.node(bound_to_this);
    command
        .arg(JOBS)
        .env("DATABASE_URL", database)
        .env("WARM_UP_JOBS", size.warm_up.to_string())
        .env("JOBS", size.measured.to_string())
        .env("ADD_BATCH", ADD_BATCH)
        .env("POLL_MS", POLL_MS)
        .env("NODE_ENV", "production");
    read(&printed(&mut command)?)?.require_complete(size)
}

fn read(output: &str) -> Result<DispatchRound> {
    let document: Value = serde_json::from_str(output)
        .with_context(|| format!("the output is not JSON: {output}"))?;
    for name in ["fsync", "synchronousCommit"] {
        ensure!(
            document[name] == "on",
            "the database sessions are not durable: {name} is {}",
            document[name]
        );
    }
    let settings = document["settings"]
        .as_object()
        .with_context(|| format!("no settings in the output: {output}"))?;
    let settings = settings
        .iter()
        .map(|(name, value)| format!("{name}={}", value.to_string().replace('"', "")));
    Ok(DispatchRound {
        count: number(&document, "jobs")?,
        seconds: number(&document, "seconds")?,
        cpu_seconds: number(&document, "cpuSeconds")?,
        log_bytes: number(&document, "logBytes")?,
        other_cores: 0.0,
        settings: settings.collect::<Vec<String>>().join(", "),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::read;

    fn output(synchronous_commit: &str) -> String {
        json!({
            "jobs": 100, "seconds": 0.5, "cpuSeconds": 0.1, "logBytes": 5_000.0, "fsync": "on",
            "synchronousCommit": synchronous_commit, "settings": { "concurrentJobs": 24, "localQueue": { "size": 500 } },
        })
        .to_string()
    }

    #[test]
    fn the_output_of_the_jobs_is_parsed() {
        let round = read(&output("on")).unwrap();
        assert_eq!((round.rate(), round.log_bytes_each()), (200.0, 50.0));
        assert_eq!(round.settings, "concurrentJobs=24, localQueue={size:500}");
    }

    #[test]
    fn sessions_without_synchronous_commit_are_rejected() {
        assert!(read(&output("off")).is_err());
    }
}
