//! graphile-worker: from npm, with jobs that do nothing, in the configuration that its
//! documentation has its fastest figures for.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::compare::dispatch::round::{Round, Size, number};
use crate::compare::npm::Packages;
use crate::compare::process::{bound_to_this, clean, printed};
use crate::run::XtaskRun;

const SOURCES: &str = "xtask/src/compare/dispatch/graphile";
const FOLDER: &str = "target/compare/graphile";
const JOBS: &str = "jobs.mjs";
/// More than these in one call are one text of megabytes.
const ADDED_AT_ONCE: &str = "10000";
/// How often it is looked whether all is done; as often as Onward's benchmark looks.
const LOOK_MS: &str = "2";

pub(crate) fn install(run: &XtaskRun) -> Result<String> {
    let packages = Packages::install(run, SOURCES, FOLDER, &[JOBS])?;
    let node = printed(packages.node(clean).arg("--version"))?;
    let (worker, client) = (
        packages.version("graphile-worker")?,
        packages.version("pg")?,
    );
    Ok(format!(
        "graphile-worker {worker}, pg {client}, Node {node}"
    ))
}

pub(crate) fn measure(run: &XtaskRun, database: &str, size: Size) -> Result<Round> {
    let mut command = Packages::at(run, FOLDER)?.node(bound_to_this);
    command
        .arg(JOBS)
        .env("DATABASE_URL", database)
        .env("WARM_UP_JOBS", size.warm_up.to_string())
        .env("JOBS", size.measured.to_string())
        .env("ADDED_AT_ONCE", ADDED_AT_ONCE)
        .env("LOOK_MS", LOOK_MS)
        .env("NODE_ENV", "production");
    read(&printed(&mut command)?)?.expect(size)
}

fn read(answer: &str) -> Result<Round> {
    let document: Value =
        serde_json::from_str(answer).with_context(|| format!("this is not JSON: {answer}"))?;
    for name in ["fsync", "synchronousCommit"] {
        ensure!(
            document[name] == "on",
            "its sessions are not durable: {name} is {}",
            document[name]
        );
    }
    let settings = document["settings"]
        .as_object()
        .with_context(|| format!("no settings in {answer}"))?;
    let settings = settings
        .iter()
        .map(|(name, value)| format!("{name}={}", value.to_string().replace('"', "")));
    Ok(Round {
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

    fn answer(synchronous_commit: &str) -> String {
        json!({
            "jobs": 100, "seconds": 0.5, "cpuSeconds": 0.1, "logBytes": 5_000.0, "fsync": "on",
            "synchronousCommit": synchronous_commit, "settings": { "concurrentJobs": 24, "localQueue": { "size": 500 } },
        })
        .to_string()
    }

    #[test]
    fn what_the_jobs_print_is_understood() {
        let round = read(&answer("on")).unwrap();
        assert_eq!((round.rate(), round.log_bytes_each()), (200.0, 50.0));
        assert_eq!(round.settings, "concurrentJobs=24, localQueue={size:500}");
    }

    #[test]
    fn sessions_that_do_not_wait_for_the_disk_are_refused() {
        assert!(read(&answer("off")).is_err());
    }
}
