//! `onward bench`: it measures the workloads that it reports, and removes what it created. The
//! speed itself is not tested.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use onward_testing::{ClusterDurability, PostgresCluster};
use serde_json::Value;
use tempfile::TempDir;

use crate::{onward, text};

/// A benchmark in a folder of its own, with compiled code beside the other tests'.
fn bench(folder: &TempDir, args: &[&str]) -> Command {
    let mut command = onward(&[&["bench", "--quick"], args].concat());
    command
        .env(
            "ONWARD_CACHE",
            std::env::temp_dir().join("onward-test-cache"),
        )
        .current_dir(folder.path());
    command
}

fn document(folder: &TempDir, args: &[&str]) -> Value {
    let output = bench(folder, &[args, &["--json"]].concat())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(workload: &Value, name: &str) -> f64 {
    workload[name]
        .as_f64()
        .unwrap_or_else(|| panic!("no {name} in {workload}"))
}

/// What holds for all workloads.
fn check(workload: &Value) {
    assert!(
        number(workload, "executions") > 0.0 && number(workload, "units") > 0.0,
        "{workload}"
    );
    let rate = number(workload, "units") / number(workload, "seconds");
    assert!(
        (number(workload, "perSecond") / rate - 1.0).abs() < 0.01,
        "{workload}"
    );
    assert!(number(workload, "commits") > 0.0, "{workload}");
    assert!(
        workload["rawCommitsPerSecond"]
            .as_array()
            .unwrap()
            .iter()
            .all(|rate| rate.as_f64().unwrap() > 0.0)
    );
    assert!(number(workload, "timesRaw") > 0.0, "{workload}");
    if cfg!(target_os = "linux") {
        assert!(
            workload["cpuSeconds"].is_number() && workload["writtenBytes"].is_number(),
            "{workload}"
        );
    }
}

#[test]
fn every_workload_is_measured_on_a_store_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let document = document(&folder, &["--count", "50"]);
    assert_eq!(
        (&document["store"], &document["tasks"]),
        (&"SQLite".into(), &"wasm".into())
    );
    assert_eq!(document["durability"], "journal_mode=wal, synchronous=FULL");
    assert!(document["machine"]["cores"].as_u64().unwrap() > 0);
    let workloads = document["workloads"].as_array().unwrap();
    let names: Vec<&str> = workloads
        .iter()
        .map(|workload| workload["workload"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "chain", "chain", "fanout", "long", "start", "parked", "recovery", "dispatch"
        ]
    );
    workloads.iter().for_each(check);
    for workload in &workloads[..5] {
        assert!(number(workload, "p50Ms") > 0.0, "{workload}");
    }
    assert_eq!(
        (&workloads[0]["concurrency"], &workloads[1]["concurrency"]),
        (&1.into(), &64.into())
    );
    assert!(
        number(&workloads[3], "firstPerSecond") > 0.0
            && number(&workloads[3], "lastPerSecond") > 0.0
    );
    assert!(number(&workloads[5], "diskBytesEach") > 0.0);
    let recovery = &workloads[6];
    assert!(number(recovery, "allFinishedMs") >= number(recovery, "firstAnswerMs"));
    // Ten steps and a request each.
    assert_eq!(
        (number(recovery, "inFlight"), number(recovery, "effects")),
        (50.0, 50.0)
    );
    assert_eq!(
        (
            number(recovery, "recorded"),
            number(recovery, "recordedTwice")
        ),
        (550.0, 0.0)
    );
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "something was left behind"
    );
}

#[test]
fn tasks_can_be_performed_by_a_worker_in_a_process_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let document = document(
        &folder,
        &[
            "chain",
            "recovery",
            "--tasks",
            "worker",
            "--concurrency",
            "8",
            "--count",
            "20",
        ],
    );
    assert_eq!(document["tasks"], "worker");
    let workloads = document["workloads"].as_array().unwrap();
    workloads.iter().for_each(check);
    assert!(workloads[0]["workerCpuSeconds"].is_number(), "{document}");
    assert_eq!(
        (
            number(&workloads[1], "recorded"),
            number(&workloads[1], "recordedTwice")
        ),
        (220.0, 0.0)
    );
}

#[test]
fn the_table_says_how_durable_it_was_and_what_the_disk_does() {
    let folder = tempfile::tempdir().unwrap();
    let output = bench(&folder, &["start", "--concurrency", "2"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(
        table.contains("SQLite: journal_mode=wal, synchronous=FULL\n"),
        "{table}"
    );
    assert!(table.contains("\nstart × 2, starts "), "{table}");
    assert!(
        table.lines().last().unwrap().starts_with("  yardstick "),
        "{table}"
    );
}

#[test]
fn postgres_is_measured_in_a_schema_that_is_dropped_at_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = PostgresCluster::start_with_durability(ClusterDurability::Unsynced).unwrap();
    let url = cluster.create_database().unwrap();
    let document = document(&folder, &["chain", "--concurrency", "4", "--store", &url]);
    assert_eq!(document["store"], "Postgres");
    // The document states that the measured commits do not survive a power failure.
    assert!(
        document["durability"]
            .as_str()
            .unwrap()
            .contains("fsync=off"),
        "{document}"
    );
    check(&document["workloads"][0]);
    let listed = onward(&["ls", "--store", &url]).output().unwrap();
    assert!(
        text(&listed.stderr).contains("the database contains no store"),
        "{}",
        text(&listed.stderr)
    );
}

#[test]
fn stores_are_measured_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let cluster = PostgresCluster::start_with_durability(ClusterDurability::Unsynced).unwrap();
    let url = cluster.create_database().unwrap();
    let args = [
        "chain",
        "--concurrency",
        "4",
        "--store",
        "sqlite:here.db",
        "--store",
        &url,
        "--json",
    ];
    let output = bench(&folder, &args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let documents: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let stores: Vec<&Value> = documents
        .iter()
        .map(|document| &document["store"])
        .collect();
    assert_eq!(stores, ["SQLite", "Postgres"]);
    documents
        .iter()
        .for_each(|document| check(&document["workloads"][0]));
}

#[test]
fn a_benchmark_that_is_stopped_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = bench(&folder, &["chain", "--seconds", "60"]);
    let mut child = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let words = BufReader::new(child.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok);
    assert!(
        words
            .into_iter()
            .any(|line| line.starts_with("chain, 1 at a time"))
    );
    let sent = Command::new("kill")
        .args(["-s", "TERM", &child.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(
        std::fs::read_dir(folder.path()).unwrap().count(),
        0,
        "something was left behind"
    );
}

#[test]
fn a_store_that_is_there_is_not_touched() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.db");
    std::fs::write(&path, "mine").unwrap();
    let output = bench(&folder, &["start", "--store", "sqlite:mine.db"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("mine.db is there already"),
        "{}",
        text(&output.stderr)
    );
    assert_eq!(std::fs::read(&path).unwrap(), b"mine");
    let output = bench(&folder, &["start", "--store", "memory:"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_option_that_no_chosen_workload_has_a_use_for_is_refused() {
    let folder = TempDir::new().unwrap();
    let refused = bench(&folder, &["fanout", "--count", "5"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        text(&refused.stderr).contains("--count is for parked, recovery and dispatch"),
        "{}",
        text(&refused.stderr)
    );
}
