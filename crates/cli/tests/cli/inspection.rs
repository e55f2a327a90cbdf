//! Inspecting executions: `why`, `watch`, `show`, `doctor` and `journal replay`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_store::tables::ExecutionRow;
use onward_store::{ColumnCodec as _, Commit, RecordReader as _, RowKey, Store as _};
use onward_store_sqlite::{Options, SqliteStore};
use serde_json::Value;

use crate::text;
use crate::workflows::WorkflowStoreFixture;

/// A node that runs the executions of a store, killed on drop.
struct RunningNode(Child);

impl RunningNode {
    fn start(fixture: &WorkflowStoreFixture) -> Self {
        let mut command = fixture.command(&["node", "--lease-ms", "1000"]);
        Self(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(fixture: &WorkflowStoreFixture, function: &str, input: &str) -> String {
    let output = fixture.run(&["start", function, input]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// Polls until the journal of an execution ends with this event.
fn wait_for_event(fixture: &WorkflowStoreFixture, execution: &str, kind: &str) {
    while fixture
        .events(execution)
        .last()
        .is_none_or(|last| last["event"] != kind)
    {}
}

fn json_object(output: &Output) -> Value {
    assert!(!output.stdout.is_empty(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn why_explains_the_wait_and_the_next_step() {
    for fixture in [
        WorkflowStoreFixture::sqlite(),
        WorkflowStoreFixture::postgres(),
    ] {
        let id = start(&fixture, "blocking_signal", r#"{"order":7}"#);
        let before = fixture.run(&["why", &id]);
        assert_eq!(code(&before), 0, "{}", text(&before.stderr));
        assert!(
            text(&before.stdout).contains("no process works on this store"),
            "{}",
            text(&before.stdout)
        );
        let node = RunningNode::start(&fixture);
        wait_for_event(&fixture, &id, "ExecutionAwaiting");
        let output = fixture.run(&["why", &id[..12]]);
        let expected = format!("onward signal {} user_approval [PAYLOAD]", &id[..12]);
        for expected in [
            "waits for  signal user_approval, since ",
            "owner      pid ",
            &expected,
        ] {
            assert!(
                text(&output.stdout).contains(expected),
                "{expected}: {}",
                text(&output.stdout)
            );
        }
        let why = json_object(&fixture.run(&["why", &id, "--json"]));
        assert_eq!(
            (&why["state"], &why["waitsFor"][0]["kind"]),
            (&Value::from("Blocked"), &Value::from("signal"))
        );
        drop(node);
        let sent = fixture.run(&[
            "signal",
            &id,
            "user_approval",
            r#"{"approved":true}"#,
            "--key",
            "one",
            "--json",
        ]);
        let sent = json_object(&sent);
        assert_eq!(
            (&sent["execution"], &sent["kind"]),
            (&Value::from(id.as_str()), &Value::from("signal"))
        );
        assert_eq!(
            (&sent["payload"]["approved"], &sent["key"]),
            (&Value::from(true), &Value::from("one"))
        );
        let why = json_object(&fixture.run(&["why", &id, "--json"]));
        assert_eq!(
            why["pendingMessages"][0]["description"],
            "signal user_approval"
        );
    }
}

#[test]
fn cancel_prints_json() {
    let fixture = WorkflowStoreFixture::sqlite();
    let id = start(&fixture, "waiter", "{}");
    let sent = json_object(&fixture.run(&["cancel", &id, "--reason", "enough", "--json"]));
    assert_eq!(
        sent,
        serde_json::json!({"execution": id, "kind": "cancel", "reason": "enough"})
    );
}

#[test]
fn why_escapes_control_characters() {
    let fixture = WorkflowStoreFixture::sqlite();
    let id = start(&fixture, "blocking_signal", "{\"order\":7}");
    assert_eq!(
        code(&fixture.run(&["cancel", &id, "--reason", "\x1b]0;owned\x07no"])),
        0
    );
    let waiting = fixture.run(&["why", &id]);
    fixture.run(&["start", "echo", "1", "--wait"]);
    wait_for_event(&fixture, &id, "ExecutionCancelled");
    for output in [waiting, fixture.run(&["why", &id])] {
        let printed = text(&output.stdout);
        assert!(
            printed.contains("owned") && !printed.contains('\x1b') && !printed.contains('\x07'),
            "{printed}"
        );
    }
}

#[test]
fn watch_prints_every_event_until_the_end() {
    for fixture in [
        WorkflowStoreFixture::sqlite(),
        WorkflowStoreFixture::postgres(),
    ] {
        let id = start(&fixture, "blocking_signal", r#"{"order":7}"#);
        let mut watching = fixture.command(&["watch", &id, "--json"]);
        let watching = watching
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let node = RunningNode::start(&fixture);
        wait_for_event(&fixture, &id, "ExecutionAwaiting");
        fixture.run(&["signal", &id, "user_approval", r#"{"approved":true}"#]);
        let watched = watching.wait_with_output().unwrap();
        assert_eq!(code(&watched), 0, "{}", text(&watched.stderr));
        assert_eq!(
            watched.stdout,
            fixture.run(&["journal", "show", &id]).stdout
        );
        let failed = start(&fixture, "fail", "\"card_declined\"");
        let watched = fixture.run(&["watch", &failed]);
        assert_eq!(code(&watched), 1, "{}", text(&watched.stderr));
        assert!(text(&watched.stdout).contains("ExecutionFailed(card_declined: as requested)"));
        drop(node);
    }
}

#[test]
fn watch_follows_continuations_and_reports_a_missing_node_once() {
    let fixture = WorkflowStoreFixture::sqlite();
    let id = start(&fixture, "counter", "2");
    let mut watching = fixture.command(&["watch", &id]);
    let watching = watching
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // No node runs when the watch starts, unless the watch starts late.
    let done = fixture.run(&["start", "echo", "1"]);
    assert_eq!(code(&done), 0);
    let _node = RunningNode::start(&fixture);
    let watched = watching.wait_with_output().unwrap();
    assert_eq!(code(&watched), 0, "{}", text(&watched.stderr));
    assert_eq!(text(&watched.stdout).matches("ExecutionStarted").count(), 3);
    assert_eq!(
        text(&watched.stderr).matches("continued as ").count(),
        2,
        "{}",
        text(&watched.stderr)
    );
    assert!(
        text(&watched.stderr).matches("no process works on").count() <= 1,
        "{}",
        text(&watched.stderr)
    );
    let shown = json_object(&fixture.run(&["show", &id, "--json"]));
    assert!(text(&watched.stderr).contains(shown["continuedAs"].as_str().unwrap()));
}

#[test]
fn show_links_children() {
    let fixture = WorkflowStoreFixture::sqlite();
    let done = fixture.run_workflow("parent", "3");
    let id = done["execution"].as_str().unwrap();
    let shown = json_object(&fixture.run(&["show", id, "--json"]));
    let children = shown["children"].as_array().unwrap();
    assert_eq!(children.len(), 2);
    for (child, promise) in children.iter().zip(["root.0", "root.2"]) {
        let expected = serde_json::json!({
            "promise": promise, "execution": child["execution"], "function": "child", "state": "Completed"
        });
        assert_eq!(child, &expected);
    }
    let first = &children[0]["execution"].as_str().unwrap()[..12];
    let output = fixture.run(&["show", id]);
    for expected in [
        format!("children   root.0 {first} child (Completed)"),
        format!("child={first}…)"),
    ] {
        assert!(
            text(&output.stdout).contains(&expected),
            "{expected}: {}",
            text(&output.stdout)
        );
    }
    let why = fixture.run(&["why", first]);
    assert!(
        text(&why.stdout).contains(&format!("child of   {id} (Completed)")),
        "{}",
        text(&why.stdout)
    );
}

pub(crate) fn built_components() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workflows/built")
}

/// Writes a copy of the component with every `from` replaced by `to`, which has the same length.
pub(crate) fn write_modified_component(folder: &Path, from: &str, to: &str) -> PathBuf {
    let mut code = std::fs::read(built_components().join("journals.wasm")).unwrap();
    assert_eq!(from.len(), to.len());
    let places: Vec<usize> = (0..code.len() - from.len())
        .filter(|at| code[*at..].starts_with(from.as_bytes()))
        .collect();
    assert!(!places.is_empty(), "{from} is not in the component");
    places
        .into_iter()
        .for_each(|at| code[at..at + to.len()].copy_from_slice(to.as_bytes()));
    let file = folder.join(format!("{to}.wasm"));
    std::fs::write(&file, code).unwrap();
    file
}

#[test]
fn replay_repeats_the_journal_or_reports_the_divergence() {
    let folder = tempfile::tempdir().unwrap();
    let (same, other) = (
        write_modified_component(folder.path(), "flaky", "shaky"),
        write_modified_component(folder.path(), "user_approval", "user_approved"),
    );
    for fixture in [
        WorkflowStoreFixture::sqlite(),
        WorkflowStoreFixture::postgres(),
    ] {
        let ended = fixture.run_workflow("full_example", r#"{"id":42}"#);
        let id = start(&fixture, "blocking_signal", r#"{"order":7}"#);
        let node = RunningNode::start(&fixture);
        wait_for_event(&fixture, &id, "ExecutionAwaiting");
        drop(node);
        let before = fixture.events(&id);
        let replay =
            |id: &str, more: &[&str]| fixture.run(&[&["journal", "replay", id], more].concat());
        let repeated = replay(ended["execution"].as_str().unwrap(), &[]);
        assert_eq!(code(&repeated), 0, "{}", text(&repeated.stderr));
        assert!(
            text(&repeated.stderr).starts_with("repeats: ")
                && text(&repeated.stderr).contains(" ms, ended")
        );
        let waits = replay(&id, &["--component", same.to_str().unwrap()]);
        assert_eq!(code(&waits), 0, "{}", text(&waits.stderr));
        assert!(
            text(&waits.stderr).contains("Blocked, waits for signal user_approval"),
            "{}",
            text(&waits.stderr)
        );
        let diverges = replay(&id, &["--component", other.to_str().unwrap(), "--json"]);
        let report = json_object(&diverges);
        assert_eq!(
            (code(&diverges), &report["outcome"]),
            (1, &Value::from("diverges"))
        );
        assert_eq!(
            (&report["sequence"], &report["requested"]),
            (
                &before.last().unwrap()["sequence"],
                &Value::from("signal user_approved")
            )
        );
        let orders = built_components().join("orders.wasm");
        let unsupported = replay(&id, &["--component", orders.to_str().unwrap()]);
        assert_eq!(code(&unsupported), 2);
        assert!(
            text(&unsupported.stderr)
                .contains("workflow blocking_signal not found in the component")
        );
        assert_eq!(fixture.events(&id), before, "replay writes nothing");
    }
}

#[test]
fn the_doctor_finds_nothing_while_a_node_runs() {
    for fixture in [
        WorkflowStoreFixture::sqlite(),
        WorkflowStoreFixture::postgres(),
    ] {
        let _node = RunningNode::start(&fixture);
        for round in 0..6 {
            for (function, input) in [
                ("chain", r#"{"steps":60,"work":10}"#),
                ("fan_out", r#"{"steps":20}"#),
                ("parent", "3"),
                ("counter", "5"),
                ("waiter", "{}"),
                ("persistent", r#"{"count":2}"#),
            ] {
                start(&fixture, function, input);
            }
            let output = fixture.run(&["doctor", "--json"]);
            assert_eq!(
                code(&output),
                0,
                "round {round}: {}{}",
                text(&output.stdout),
                text(&output.stderr)
            );
            let last = text(&output.stdout).lines().last().unwrap();
            let report: Value = serde_json::from_str(last).unwrap();
            assert_eq!(
                (&report["ok"], &report["findings"]),
                (&Value::from(true), &Value::from(0))
            );
            assert!(report["executions"].as_u64().unwrap() >= 6 * (round + 1));
        }
    }
}

/// Changes the row of an execution directly in the database.
fn modify_row(fixture: &WorkflowStoreFixture, id: &str, change: impl FnOnce(&mut ExecutionRow)) {
    let id: ExecutionId = id.parse().unwrap();
    let store = SqliteStore::open(
        Path::new(fixture.url.strip_prefix("sqlite:").unwrap()),
        Options::default(),
    )
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (mut row, version): (ExecutionRow, u64) = store
            .read_record(RowKey(vec![id.to_value()]))
            .await
            .unwrap()
            .unwrap();
        change(&mut row);
        store
            .commit(Commit::new().update(&row, version))
            .await
            .unwrap();
    });
}

#[test]
fn the_doctor_finds_an_execution_without_a_wake_up() {
    let fixture = WorkflowStoreFixture::sqlite();
    let id = start(&fixture, "sleeper", "3600000");
    let node = RunningNode::start(&fixture);
    wait_for_event(&fixture, &id, "ExecutionAwaiting");
    drop(node);
    assert_eq!(code(&fixture.run(&["doctor"])), 0);
    modify_row(&fixture, &id, |row| row.wake_at = Timestamp::MAX);
    let output = fixture.run(&["doctor"]);
    assert_eq!(code(&output), 1, "{}", text(&output.stderr));
    let line = format!("execution {id}: WAKE_MISSING: it is due at ");
    assert!(
        text(&output.stdout).starts_with(&line),
        "{}",
        text(&output.stdout)
    );
    let output = fixture.run(&["doctor", "--json"]);
    let found: Vec<Value> = text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&found[0]["code"], &found[0]["class"]),
        (&Value::from("WAKE_MISSING"), &Value::from("error"))
    );
    assert_eq!(
        (&found[1]["ok"], &found[1]["findings"]),
        (&Value::from(false), &Value::from(1))
    );
}

#[test]
fn inspecting_a_missing_execution_or_store_fails() {
    let fixture = WorkflowStoreFixture::sqlite();
    for args in [
        &["why", "abcd"][..],
        &["watch", "abcd"],
        &["journal", "replay", "abcd"],
    ] {
        let output = fixture.run(args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(
            text(&output.stderr).contains("execution abcd… not found"),
            "{args:?}: {}",
            text(&output.stderr)
        );
    }
    let mut absent: Command = fixture.command(&["doctor"]);
    let output = absent
        .env("ONWARD_STORE", "sqlite:absent.db")
        .output()
        .unwrap();
    assert_eq!(code(&output), 2);
    assert!(
        text(&output.stderr).contains("no store found at absent.db"),
        "{}",
        text(&output.stderr)
    );
}
