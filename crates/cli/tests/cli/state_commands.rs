//! `onward state`: append, events, snapshot and verify, on every kind of store.

use std::process::Output;
use std::sync::Arc;

use onward_runs::{AppendResult, RunEventWrite};
use onward_testing::{ClusterDurability, PostgresCluster, RunEventGenerator};
use serde_json::Value;
use tempfile::TempDir;

use crate::{onward, run_with_input, text};

/// A store for run events that several commands use.
pub(crate) struct RunStoreFixture {
    pub(crate) url: String,
    _folder: TempDir,
    _cluster: Option<Arc<PostgresCluster>>,
}

impl RunStoreFixture {
    pub(crate) fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("store.db").display());
        Self {
            url,
            _folder: folder,
            _cluster: None,
        }
    }

    pub(crate) fn postgres() -> Self {
        let cluster = PostgresCluster::shared_cluster(ClusterDurability::Synced).unwrap();
        let url = cluster.create_database().unwrap();
        Self {
            url,
            _folder: tempfile::tempdir().unwrap(),
            _cluster: Some(cluster),
        }
    }

    pub(crate) fn state(&self, args: &[&str]) -> Output {
        onward(&[&["state", args[0], "--store", &self.url], &args[1..]].concat())
            .output()
            .unwrap()
    }

    pub(crate) fn append(&self, args: &[&str], input: &str) -> Output {
        run_with_input(
            onward(&[&["state", "append", "--store", &self.url, "-"], args].concat()),
            input.as_bytes(),
        )
    }
}

pub(crate) fn lines(events: &[RunEventWrite]) -> String {
    events.iter().map(|event| event.to_json() + "\n").collect()
}

fn results(output: &Output) -> Vec<AppendResult> {
    text(&output.stdout)
        .lines()
        .map(|line| AppendResult::from_json(line).unwrap())
        .collect()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Runs a test on each kind of durable store.
fn on_each_store(check: impl Fn(&RunStoreFixture)) {
    check(&RunStoreFixture::sqlite());
    check(&RunStoreFixture::postgres());
}

#[test]
fn appended_events_are_read_back_unchanged() {
    on_each_store(|fixture| {
        let events = RunEventGenerator::new("round-trip").next_events(25);
        let output = fixture.append(&[], &lines(&events));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let results_printed = results(&output);
        assert_eq!(results_printed.len(), 25);
        for (index, (result, event)) in results_printed.iter().zip(&events).enumerate() {
            assert_eq!(
                (result.event_id, result.run_seq.as_u64()),
                (event.event_id, index as u64 + 1)
            );
            assert!(result.persisted && !result.idempotent);
        }
        let output = fixture.state(&["events", &events[0].run_id]);
        let found: Vec<Value> = text(&output.stdout)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for (mut found, event) in found.into_iter().zip(&events) {
            let record = found.as_object_mut().unwrap();
            assert!(record.remove("runSeq").is_some() && record.remove("persistedAt").is_some());
            assert_eq!(
                found,
                serde_json::from_str::<Value>(&event.to_json()).unwrap()
            );
        }
    });
}

#[test]
fn a_repeated_append_returns_the_results_of_the_first() {
    on_each_store(|fixture| {
        let events = RunEventGenerator::new("again").next_events(5);
        let first = results(&fixture.append(&[], &lines(&events)));
        let again = results(&fixture.append(&[], &lines(&events)));
        for (first, again) in first.iter().zip(&again) {
            assert_eq!(
                *again,
                AppendResult {
                    idempotent: true,
                    persisted: false,
                    ..*first
                }
            );
        }
    });
}

#[test]
fn an_invalid_line_is_reported_with_its_number_and_not_stored() {
    on_each_store(|fixture| {
        let events = RunEventGenerator::new("bad").next_events(6);
        let mut forged = events[2].clone();
        forged.logical_attempt_id = onward_runs::AttemptNumber::new(2).unwrap();
        let mut stolen = events[4].clone();
        stolen.event_id = events[0].event_id;
        let input = [
            events[0].to_json(),
            "{\"eventType\": 7}".to_owned(),
            String::new(),
            events[1].to_json(),
            forged.to_json(),
            "not json".to_owned(),
            stolen.to_json(),
            events[5].to_json(),
        ];
        let output = fixture.append(&[], &input.join("\n"));
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(results(&output).len(), 3);
        let stderr = text(&output.stderr);
        for (line, reason) in [
            (2, "eventId"),
            (5, "idempotencyKey"),
            (6, "JSON"),
            (7, "event id"),
        ] {
            assert!(
                stderr
                    .lines()
                    .any(|it| it.contains(&format!("line {line}: ")) && it.contains(reason)),
                "{line}: {stderr}"
            );
        }
        let stored = fixture.state(&["events", &events[0].run_id]);
        assert_eq!(text(&stored.stdout).lines().count(), 3);
        assert_eq!(fixture.state(&["verify"]).status.code(), Some(0));
    });
}

#[test]
fn json_reports_refused_lines_as_objects() {
    let fixture = RunStoreFixture::sqlite();
    let output = fixture.append(&["--json"], "nonsense\n");
    let refused: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(
        (&refused["line"], &refused["result"]),
        (&1.into(), &"refused".into())
    );
    assert!(refused["message"].as_str().unwrap().contains("JSON"));
}

#[test]
fn keys_controls_the_check_of_idempotency_keys() {
    for (policy, code) in [("reject", 1), ("warn", 0), ("off", 0)] {
        let fixture = RunStoreFixture::sqlite();
        let mut event = RunEventGenerator::new("keys").next_events(1).remove(0);
        event.idempotency_key = onward_runs::IdempotencyKey::from_bytes([9; 32]);
        let output = fixture.append(&["--keys", policy], &lines(&[event]));
        assert_eq!(output.status.code(), Some(code), "{policy}");
        assert_eq!(
            text(&output.stderr).is_empty(),
            policy == "off",
            "{}",
            text(&output.stderr)
        );
        assert_eq!(
            fixture.state(&["verify"]).status.code(),
            Some(if policy == "reject" { 0 } else { 1 })
        );
    }
}

#[test]
fn keys_of_contract_v1_are_accepted_only_with_accept_v1_keys() {
    let fixture = RunStoreFixture::sqlite();
    let mut event = RunEventGenerator::new("import").next_events(1).remove(0);
    event.idempotency_key = onward_runs::IdempotencyKeyParts::from_event(&event, None)
        .preimage_v1()
        .compute_key();
    assert_eq!(
        fixture
            .append(&[], &lines(std::slice::from_ref(&event)))
            .status
            .code(),
        Some(1)
    );
    assert_eq!(
        fixture
            .append(&["--accept-v1-keys"], &lines(&[event]))
            .status
            .code(),
        Some(0)
    );
    assert_eq!(
        fixture.state(&["verify", "--accept-v1-keys"]).status.code(),
        Some(0)
    );
    assert_eq!(fixture.state(&["verify"]).status.code(), Some(1));
}

#[test]
fn another_payload_under_the_same_key_is_reported_and_the_first_is_kept() {
    on_each_store(|fixture| {
        let events = RunEventGenerator::new("differs").next_events(3);
        fixture.append(&[], &lines(&events));
        let mut other = events[2].clone();
        other.payload = Some(onward_base::Payload::parse("{\"other\":true}").unwrap());
        let output = fixture.append(&[], &lines(&[other]));
        assert_eq!(output.status.code(), Some(0));
        assert!(
            text(&output.stderr).contains("warning: line 1: duplicate of event"),
            "{}",
            text(&output.stderr)
        );
        let stored = fixture.state(&["events", &events[0].run_id, "--after", "2"]);
        assert!(text(&stored.stdout).contains("dbt-manifest"));
    });
}

#[test]
fn events_are_paged_by_sequence() {
    on_each_store(|fixture| {
        let events = RunEventGenerator::new("page").next_events(30);
        fixture.append(&[], &lines(&events));
        let sequences = |args: &[&str]| -> Vec<u64> {
            let output = fixture.state(&[&["events", &events[0].run_id], args].concat());
            let seq = |line: &str| {
                serde_json::from_str::<Value>(line).unwrap()["runSeq"]
                    .as_u64()
                    .unwrap()
            };
            text(&output.stdout).lines().map(seq).collect()
        };
        assert_eq!(sequences(&[]), (1..=30).collect::<Vec<u64>>());
        assert_eq!(sequences(&["--after", "10", "--limit", "3"]), [11, 12, 13]);
        assert_eq!(sequences(&["--limit", "0"]), [0; 0]);
        assert_eq!(sequences(&["--after", "30"]), [0; 0]);
        assert_eq!(sequences(&["--after", "18446744073709551615"]), [0; 0]);
    });
}

#[test]
fn append_returns_after_the_snapshot_is_up_to_date() {
    on_each_store(|fixture| {
        let events = RunEventGenerator::new("snapshot").next_events(41);
        fixture.append(&[], &lines(&events));
        let kept = json(&fixture.state(&["snapshot", &events[0].run_id]));
        assert_eq!(kept["status"], "RUNNING");
        assert_eq!(kept["lastEventSeq"], 41);
        assert_eq!(kept["steps"].as_array().unwrap().len(), 20);
        assert_eq!(
            kept,
            json(&fixture.state(&["snapshot", &events[0].run_id, "--from-log"]))
        );
    });
}

#[test]
fn a_missing_store_or_run_is_reported() {
    let fixture = RunStoreFixture::sqlite();
    let output = fixture.state(&["snapshot", "no-such-run"]);
    assert_eq!(
        output.status.code(),
        Some(2),
        "reading does not create a store"
    );
    assert!(
        text(&output.stderr).contains("no store found at"),
        "{}",
        text(&output.stderr)
    );
    fixture.append(&[], &lines(&RunEventGenerator::new("some").next_events(1)));
    for args in [
        vec!["snapshot", "no-such-run"],
        vec!["snapshot", "no-such-run", "--from-log"],
    ] {
        let output = fixture.state(&args);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output.stderr).contains("run no-such-run not found"),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn an_invalid_store_url_is_reported_with_the_valid_forms() {
    for url in [
        "",
        "sqlite:",
        "mysql://host/db",
        "postgres:db",
        "memory:x",
        "/tmp/x.db",
    ] {
        let output = onward(&["state", "verify", "--store", url])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(
            text(&output.stderr).contains("expected sqlite:PATH, postgres://"),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn events_are_not_acknowledged_by_a_store_that_keeps_nothing() {
    let events = lines(&RunEventGenerator::new("some").next_events(1));
    let output = run_with_input(
        onward(&["state", "append", "-", "--store", "memory:"]),
        events.as_bytes(),
    );
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), ""));
    let printed = text(&output.stderr);
    assert!(printed.contains("memory: keeps nothing"), "{printed}");
}

#[test]
fn a_run_that_the_path_of_a_url_cannot_name_is_refused() {
    let fixture = RunStoreFixture::sqlite();
    for run in [".", ".."] {
        let mut event = RunEventGenerator::new("dots").next_events(1).remove(0);
        event.run_id = run.parse().unwrap();
        event.idempotency_key = onward_runs::IdempotencyKeyParts::from_event(&event, None)
            .current_preimage()
            .compute_key();
        let output = fixture.append(&[], &lines(&[event]));
        assert_eq!(output.status.code(), Some(1));
        let printed = text(&output.stderr);
        assert!(printed.contains("is not allowed"), "{printed}");
    }
}

#[test]
fn a_password_is_never_printed() {
    let output = onward(&[
        "state",
        "verify",
        "--store",
        "postgres://u:hunter2@127.0.0.1:1/db",
    ])
    .output()
    .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        !text(&output.stderr).contains("hunter2"),
        "{}",
        text(&output.stderr)
    );
}

#[test]
fn onward_store_selects_the_store() {
    let fixture = RunStoreFixture::sqlite();
    fixture.append(&[], &lines(&RunEventGenerator::new("env").next_events(1)));
    let output = onward(&["state", "verify", "--json"])
        .env("ONWARD_STORE", &fixture.url)
        .output()
        .unwrap();
    assert_eq!(
        text(&output.stdout),
        "{\"ok\":true,\"runs\":1,\"events\":1,\"findings\":0}\n"
    );
}

#[test]
fn the_rest_of_a_line_that_is_too_long_is_skipped() {
    let fixture = RunStoreFixture::sqlite();
    let events = RunEventGenerator::new("long").next_events(2);
    let blanks = " ".repeat(17 << 20);
    let input = format!(
        "{{{blanks}{}\n{blanks}{}\nnonsense\n",
        events[0].to_json(),
        events[1].to_json()
    );
    let output = fixture.append(&[], &input);
    assert_eq!(text(&output.stdout), "");
    for line in [
        "line 1: longer than",
        "line 2: longer than",
        "line 3: not a JSON",
    ] {
        assert!(
            text(&output.stderr).contains(line),
            "{line}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn another_event_under_the_same_key_is_reported() {
    on_each_store(|fixture| {
        let events = RunEventGenerator::new("collision").next_events(2);
        let mut other = events[1].clone();
        other.idempotency_key = events[0].idempotency_key;
        fixture.append(&[], &lines(&events[..1]));
        let output = fixture.append(&["--keys", "off"], &lines(&[other]));
        assert!(
            text(&output.stderr).contains("with different content"),
            "{}",
            text(&output.stderr)
        );
    });
}

#[test]
fn a_store_in_a_read_only_folder_can_be_read() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let url = format!("sqlite:{}", file.display());
    let events = RunEventGenerator::new("kept").next_events(5);
    let appended = run_with_input(
        onward(&["state", "append", "--store", &url, "-"]),
        lines(&events).as_bytes(),
    );
    assert_eq!(appended.status.code(), Some(0));
    let allow = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    // A process that ended without closing the store leaves these behind.
    for left in ["-wal", "-shm"] {
        let left = folder.path().join(format!("store.db{left}"));
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&left)
            .unwrap();
        allow(&left, 0o444);
    }
    allow(&file, 0o444);
    allow(folder.path(), 0o555);
    // Root ignores permissions, and another user may not have access to the build folder.
    let elsewhere = tempfile::tempdir().unwrap();
    allow(elsewhere.path(), 0o755);
    let program = elsewhere.path().join("onward");
    std::fs::copy(env!("CARGO_BIN_EXE_onward"), &program).unwrap();
    let is_root = std::fs::metadata("/proc/self")
        .is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
    let as_other_user = |args: &[&str]| {
        let mut command = std::process::Command::new(&program);
        if is_root {
            command.uid(65_534);
        }
        command.args(args).output().unwrap()
    };
    let verified = as_other_user(&["state", "verify", "--store", &url]);
    assert_eq!(
        verified.status.code(),
        Some(0),
        "{}",
        text(&verified.stderr)
    );
    let read = as_other_user(&["state", "events", "--store", &url, &events[0].run_id]);
    assert_eq!(text(&read.stdout).lines().count(), 5);
    let refused = as_other_user(&["state", "append", "--store", &url, "/dev/null"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    allow(folder.path(), 0o755);
}
