//! `onward state`: events in, answers out, on every store.

use std::process::Output;
use std::sync::Arc;

use onward_runs::{AppendResult, RunEventWrite};
use onward_testing::{PostgresCluster, RunEventGenerator};
use serde_json::Value;
use tempfile::TempDir;

use crate::{fed, onward, text};

/// A store that several commands work on, one after the other.
pub(crate) struct Place {
    pub(crate) url: String,
    _folder: TempDir,
    _cluster: Option<Arc<PostgresCluster>>,
}

impl Place {
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
        let cluster = PostgresCluster::shared_cluster().unwrap();
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
        fed(
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

/// The same on every store that outlives a process.
fn everywhere(check: impl Fn(&Place)) {
    check(&Place::sqlite());
    check(&Place::postgres());
}

#[test]
fn events_go_in_and_come_back_as_they_were() {
    everywhere(|place| {
        let events = RunEventGenerator::new("round-trip").next_events(25);
        let output = place.append(&[], &lines(&events));
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let answers = results(&output);
        assert_eq!(answers.len(), 25);
        for (place, (answer, event)) in answers.iter().zip(&events).enumerate() {
            assert_eq!(
                (answer.event_id, answer.run_seq.as_u64()),
                (event.event_id, place as u64 + 1)
            );
            assert!(answer.persisted && !answer.idempotent);
        }
        let output = place.state(&["events", &events[0].run_id]);
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
fn a_repeated_append_is_answered_with_what_the_first_was_given() {
    everywhere(|place| {
        let events = RunEventGenerator::new("again").next_events(5);
        let first = results(&place.append(&[], &lines(&events)));
        let again = results(&place.append(&[], &lines(&events)));
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
fn a_bad_line_is_told_with_its_number_and_nothing_of_it_is_stored() {
    everywhere(|place| {
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
        let output = place.append(&[], &input.join("\n"));
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(results(&output).len(), 3);
        let told = text(&output.stderr);
        for (line, words) in [
            (2, "eventId"),
            (5, "idempotencyKey"),
            (6, "JSON"),
            (7, "event id"),
        ] {
            assert!(
                told.lines()
                    .any(|it| it.contains(&format!("line {line}: ")) && it.contains(words)),
                "{line}: {told}"
            );
        }
        let stored = place.state(&["events", &events[0].run_id]);
        assert_eq!(text(&stored.stdout).lines().count(), 3);
        assert_eq!(place.state(&["verify"]).status.code(), Some(0));
    });
}

#[test]
fn refused_lines_are_objects_with_json() {
    let place = Place::sqlite();
    let output = place.append(&["--json"], "nonsense\n");
    let told: Value = serde_json::from_slice(&output.stderr).unwrap();
    assert_eq!(told["line"], 1);
    assert!(told["message"].as_str().unwrap().contains("JSON"));
}

#[test]
fn a_wrong_key_can_be_let_through_on_demand() {
    for (policy, code) in [("reject", 1), ("warn", 0), ("off", 0)] {
        let place = Place::sqlite();
        let mut event = RunEventGenerator::new("keys").next_events(1).remove(0);
        event.idempotency_key = onward_runs::IdempotencyKey::from_bytes([9; 32]);
        let output = place.append(&["--keys", policy], &lines(&[event]));
        assert_eq!(output.status.code(), Some(code), "{policy}");
        assert_eq!(
            text(&output.stderr).is_empty(),
            policy == "off",
            "{}",
            text(&output.stderr)
        );
        assert_eq!(
            place.state(&["verify"]).status.code(),
            Some(if policy == "reject" { 0 } else { 1 })
        );
    }
}

#[test]
fn keys_of_version_1_are_taken_only_when_asked_for() {
    let place = Place::sqlite();
    let mut event = RunEventGenerator::new("import").next_events(1).remove(0);
    event.idempotency_key = onward_runs::IdempotencyKeyParts::from_event(&event, None)
        .preimage_v1()
        .compute_key();
    assert_eq!(
        place
            .append(&[], &lines(std::slice::from_ref(&event)))
            .status
            .code(),
        Some(1)
    );
    assert_eq!(
        place
            .append(&["--accept-v1-keys"], &lines(&[event]))
            .status
            .code(),
        Some(0)
    );
    assert_eq!(
        place.state(&["verify", "--accept-v1-keys"]).status.code(),
        Some(0)
    );
    assert_eq!(place.state(&["verify"]).status.code(), Some(1));
}

#[test]
fn another_payload_under_the_same_key_is_reported_and_the_first_is_kept() {
    everywhere(|place| {
        let events = RunEventGenerator::new("differs").next_events(3);
        place.append(&[], &lines(&events));
        let mut other = events[2].clone();
        other.payload = Some(onward_base::Payload::parse("{\"other\":true}").unwrap());
        let output = place.append(&[], &lines(&[other]));
        assert_eq!(output.status.code(), Some(0));
        assert!(
            text(&output.stderr).contains("warning: line 1: repeats event"),
            "{}",
            text(&output.stderr)
        );
        let stored = place.state(&["events", &events[0].run_id, "--after", "2"]);
        assert!(text(&stored.stdout).contains("dbt-manifest"));
    });
}

#[test]
fn events_are_paged_by_the_last_one_seen() {
    everywhere(|place| {
        let events = RunEventGenerator::new("page").next_events(30);
        place.append(&[], &lines(&events));
        let sequences = |args: &[&str]| -> Vec<u64> {
            let output = place.state(&[&["events", &events[0].run_id], args].concat());
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
fn the_snapshot_is_there_when_append_returns_and_is_what_the_log_gives() {
    everywhere(|place| {
        let events = RunEventGenerator::new("snapshot").next_events(41);
        place.append(&[], &lines(&events));
        let kept = json(&place.state(&["snapshot", &events[0].run_id]));
        assert_eq!(kept["status"], "RUNNING");
        assert_eq!(kept["lastEventSeq"], 41);
        assert_eq!(kept["steps"].as_array().unwrap().len(), 20);
        assert_eq!(
            kept,
            json(&place.state(&["snapshot", &events[0].run_id, "--project"]))
        );
    });
}

#[test]
fn what_is_not_there_is_said_to_be_absent() {
    let place = Place::sqlite();
    let output = place.state(&["snapshot", "nobody"]);
    assert_eq!(output.status.code(), Some(2), "reading makes no store");
    assert!(
        text(&output.stderr).contains("there is no store at"),
        "{}",
        text(&output.stderr)
    );
    place.append(&[], &lines(&RunEventGenerator::new("some").next_events(1)));
    for args in [
        vec!["snapshot", "nobody"],
        vec!["snapshot", "nobody", "--project"],
    ] {
        let output = place.state(&args);
        assert_eq!(output.status.code(), Some(1));
        assert!(
            text(&output.stderr).contains("there is no run nobody"),
            "{}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_url_that_names_no_store_is_answered_with_those_that_do() {
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
fn a_password_is_never_shown() {
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
fn the_store_can_come_from_the_environment() {
    let place = Place::sqlite();
    place.append(&[], &lines(&RunEventGenerator::new("env").next_events(1)));
    let output = onward(&["state", "verify", "--json"])
        .env("ONWARD_STORE", &place.url)
        .output()
        .unwrap();
    assert_eq!(
        text(&output.stdout),
        "{\"ok\":true,\"runs\":1,\"events\":1,\"findings\":0}\n"
    );
}

#[test]
fn what_is_left_of_a_line_that_is_too_long_is_no_line() {
    let place = Place::sqlite();
    let events = RunEventGenerator::new("long").next_events(2);
    let blanks = " ".repeat(17 << 20);
    let input = format!(
        "{{{blanks}{}\n{blanks}{}\nnonsense\n",
        events[0].to_json(),
        events[1].to_json()
    );
    let output = place.append(&[], &input);
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
    everywhere(|place| {
        let events = RunEventGenerator::new("collision").next_events(2);
        let mut other = events[1].clone();
        other.idempotency_key = events[0].idempotency_key;
        place.append(&[], &lines(&events[..1]));
        let output = place.append(&["--keys", "off"], &lines(&[other]));
        assert!(
            text(&output.stderr).contains("says something else"),
            "{}",
            text(&output.stderr)
        );
    });
}

#[test]
fn a_store_in_a_folder_that_cannot_be_written_to_is_read() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::process::CommandExt as _;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("store.db");
    let url = format!("sqlite:{}", file.display());
    let events = RunEventGenerator::new("kept").next_events(5);
    let appended = fed(
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
    // Permissions do not bind root, and somebody else may not get to where the program was built.
    let elsewhere = tempfile::tempdir().unwrap();
    allow(elsewhere.path(), 0o755);
    let program = elsewhere.path().join("onward");
    std::fs::copy(env!("CARGO_BIN_EXE_onward"), &program).unwrap();
    let is_root = std::fs::metadata("/proc/self")
        .is_ok_and(|it| std::os::unix::fs::MetadataExt::uid(&it) == 0);
    let as_somebody = |args: &[&str]| {
        let mut command = std::process::Command::new(&program);
        if is_root {
            command.uid(65_534);
        }
        command.args(args).output().unwrap()
    };
    let verified = as_somebody(&["state", "verify", "--store", &url]);
    assert_eq!(
        verified.status.code(),
        Some(0),
        "{}",
        text(&verified.stderr)
    );
    let read = as_somebody(&["state", "events", "--store", &url, &events[0].run_id]);
    assert_eq!(text(&read.stdout).lines().count(), 5);
    let refused = as_somebody(&["state", "append", "--store", &url, "/dev/null"]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    allow(folder.path(), 0o755);
}
