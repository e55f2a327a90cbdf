//! Looking at executions: why they wait, what they do, whether any is stuck, and whether code
//! repeats what it did.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_store::tables::ExecutionRow;
use onward_store::{ColumnCodec as _, Commit, RecordReader as _, RowKey, Store as _};
use onward_store_sqlite::{Options, SqliteStore};
use serde_json::Value;

use crate::text;
use crate::work::Place;

/// A process that works on the store of a place, until this is dropped.
struct Worker(Child);

impl Worker {
    fn of(place: &Place) -> Self {
        let mut command = place.command(&["node", "--lease-ms", "1000"]);
        Self(
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(place: &Place, function: &str, input: &str) -> String {
    let output = place.run(&["start", function, input]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    text(&output.stdout).trim().to_owned()
}

/// Looks until the journal of an execution ends with this event.
fn until(place: &Place, execution: &str, kind: &str) {
    while place
        .events(execution)
        .last()
        .is_none_or(|last| last["event"] != kind)
    {}
}

fn object(output: &Output) -> Value {
    assert!(!output.stdout.is_empty(), "{}", text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn code(output: &Output) -> i32 {
    output.status.code().unwrap()
}

#[test]
fn why_says_what_is_waited_for_and_how_to_go_on() {
    for place in [Place::sqlite(), Place::postgres()] {
        let id = start(&place, "blocking_signal", r#"{"order":7}"#);
        let before = place.run(&["why", &id]);
        assert_eq!(code(&before), 0, "{}", text(&before.stderr));
        assert!(
            text(&before.stdout).contains("no process works on this store"),
            "{}",
            text(&before.stdout)
        );
        let worker = Worker::of(&place);
        until(&place, &id, "ExecutionAwaiting");
        let told = place.run(&["why", &id[..12]]);
        let words = format!("onward signal {} user_approval [PAYLOAD]", &id[..12]);
        for words in [
            "waits for  signal user_approval, since ",
            "owner      pid ",
            &words,
        ] {
            assert!(
                text(&told.stdout).contains(words),
                "{words}: {}",
                text(&told.stdout)
            );
        }
        let why = object(&place.run(&["why", &id, "--json"]));
        assert_eq!(
            (&why["state"], &why["waitsFor"][0]["for"]),
            (&Value::from("Blocked"), &Value::from("signal"))
        );
        drop(worker);
        let sent = place.run(&[
            "signal",
            &id,
            "user_approval",
            r#"{"approved":true}"#,
            "--key",
            "one",
            "--json",
        ]);
        let sent = object(&sent);
        assert_eq!(
            (&sent["execution"], &sent["sent"]),
            (&Value::from(id.as_str()), &Value::from("signal"))
        );
        assert_eq!(
            (&sent["payload"]["approved"], &sent["key"]),
            (&Value::from(true), &Value::from("one"))
        );
        let why = object(&place.run(&["why", &id, "--json"]));
        assert_eq!(why["onItsWay"][0]["what"], "signal user_approval");
    }
}

#[test]
fn a_request_to_cancel_can_be_read_by_programs() {
    let place = Place::sqlite();
    let id = start(&place, "waiter", "{}");
    let sent = object(&place.run(&["cancel", &id, "--reason", "enough", "--json"]));
    assert_eq!(
        sent,
        serde_json::json!({"execution": id, "sent": "cancel", "reason": "enough"})
    );
}

#[test]
fn why_shows_the_words_of_others_without_obeying_them() {
    let place = Place::sqlite();
    let id = start(&place, "blocking_signal", "{\"order\":7}");
    assert_eq!(
        code(&place.run(&["cancel", &id, "--reason", "\x1b]0;owned\x07no"])),
        0
    );
    let waiting = place.run(&["why", &id]);
    place.run(&["start", "echo", "1", "--wait"]);
    until(&place, &id, "ExecutionCancelled");
    for output in [waiting, place.run(&["why", &id])] {
        let said = text(&output.stdout);
        assert!(
            said.contains("owned") && !said.contains('\x1b') && !said.contains('\x07'),
            "{said}"
        );
    }
}

#[test]
fn watch_shows_every_event_until_the_end() {
    for place in [Place::sqlite(), Place::postgres()] {
        let id = start(&place, "blocking_signal", r#"{"order":7}"#);
        let mut watching = place.command(&["watch", &id, "--json"]);
        let watching = watching
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let worker = Worker::of(&place);
        until(&place, &id, "ExecutionAwaiting");
        place.run(&["signal", &id, "user_approval", r#"{"approved":true}"#]);
        let watched = watching.wait_with_output().unwrap();
        assert_eq!(code(&watched), 0, "{}", text(&watched.stderr));
        assert_eq!(watched.stdout, place.run(&["journal", "show", &id]).stdout);
        let failed = start(&place, "fail", "\"card_declined\"");
        let watched = place.run(&["watch", &failed]);
        assert_eq!(code(&watched), 1, "{}", text(&watched.stderr));
        assert!(text(&watched.stdout).contains("ExecutionFailed(card_declined: as asked for)"));
        drop(worker);
    }
}

#[test]
fn watch_follows_successors_and_says_once_that_nobody_is_there() {
    let place = Place::sqlite();
    let id = start(&place, "counter", "2");
    let mut watching = place.command(&["watch", &id]);
    let watching = watching
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Nobody works on it when the watch begins, unless it begins late.
    let done = place.run(&["start", "echo", "1"]);
    assert_eq!(code(&done), 0);
    let _worker = Worker::of(&place);
    let watched = watching.wait_with_output().unwrap();
    assert_eq!(code(&watched), 0, "{}", text(&watched.stderr));
    assert_eq!(text(&watched.stdout).matches("ExecutionStarted").count(), 3);
    assert_eq!(
        text(&watched.stderr).matches("it goes on as ").count(),
        2,
        "{}",
        text(&watched.stderr)
    );
    assert!(
        text(&watched.stderr).matches("no process works on").count() <= 1,
        "{}",
        text(&watched.stderr)
    );
    let shown = object(&place.run(&["show", &id, "--json"]));
    assert!(text(&watched.stderr).contains(shown["continuedAs"].as_str().unwrap()));
}

#[test]
fn show_links_children() {
    let place = Place::sqlite();
    let done = place.result("parent", "3");
    let id = done["execution"].as_str().unwrap();
    let shown = object(&place.run(&["show", id, "--json"]));
    let children = shown["children"].as_array().unwrap();
    assert_eq!(children.len(), 2);
    for (child, promise) in children.iter().zip(["root.0", "root.2"]) {
        let expected = serde_json::json!({
            "promise": promise, "execution": child["execution"], "function": "child", "state": "Completed"
        });
        assert_eq!(child, &expected);
    }
    let first = &children[0]["execution"].as_str().unwrap()[..12];
    let told = place.run(&["show", id]);
    for words in [
        format!("children   root.0 {first} child (Completed)"),
        format!("child={first}…)"),
    ] {
        assert!(
            text(&told.stdout).contains(&words),
            "{words}: {}",
            text(&told.stdout)
        );
    }
    let why = place.run(&["why", first]);
    assert!(
        text(&why.stdout).contains(&format!("child of   {id} (Completed)")),
        "{}",
        text(&why.stdout)
    );
}

fn built() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/workflows/built")
}

/// Another build of the component: every `from` in it is a `to` of the same length.
fn rebuilt(folder: &Path, from: &str, to: &str) -> PathBuf {
    let mut code = std::fs::read(built().join("journals.wasm")).unwrap();
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
fn replay_repeats_or_says_where_the_code_goes_another_way() {
    let folder = tempfile::tempdir().unwrap();
    let (same, other) = (
        rebuilt(folder.path(), "flaky", "shaky"),
        rebuilt(folder.path(), "user_approval", "user_approved"),
    );
    for place in [Place::sqlite(), Place::postgres()] {
        let over = place.result("full_example", r#"{"id":42}"#);
        let id = start(&place, "blocking_signal", r#"{"order":7}"#);
        let worker = Worker::of(&place);
        until(&place, &id, "ExecutionAwaiting");
        drop(worker);
        let before = place.events(&id);
        let replay =
            |id: &str, more: &[&str]| place.run(&[&["journal", "replay", id], more].concat());
        let repeated = replay(over["execution"].as_str().unwrap(), &[]);
        assert_eq!(code(&repeated), 0, "{}", text(&repeated.stderr));
        assert!(
            text(&repeated.stderr).starts_with("repeats: ")
                && text(&repeated.stderr).contains(" ms, over")
        );
        let waits = replay(&id, &["--component", same.to_str().unwrap()]);
        assert_eq!(code(&waits), 0, "{}", text(&waits.stderr));
        assert!(
            text(&waits.stderr).contains("Blocked, waits for signal user_approval"),
            "{}",
            text(&waits.stderr)
        );
        let diverges = replay(&id, &["--component", other.to_str().unwrap(), "--json"]);
        let told = object(&diverges);
        assert_eq!(
            (code(&diverges), &told["verdict"]),
            (1, &Value::from("diverges"))
        );
        assert_eq!(
            (&told["sequence"], &told["asked"]),
            (
                &before.last().unwrap()["sequence"],
                &Value::from("signal user_approved")
            )
        );
        let orders = built().join("orders.wasm");
        let impossible = replay(&id, &["--component", orders.to_str().unwrap()]);
        assert_eq!(code(&impossible), 2);
        assert!(text(&impossible.stderr).contains("the component has no workflow blocking_signal"));
        assert_eq!(place.events(&id), before, "nothing was written");
    }
}

#[test]
fn the_doctor_finds_nothing_while_a_process_works() {
    for place in [Place::sqlite(), Place::postgres()] {
        let _worker = Worker::of(&place);
        for round in 0..6 {
            for (function, input) in [
                ("chain", r#"{"steps":60,"work":10}"#),
                ("fan_out", r#"{"steps":20}"#),
                ("parent", "3"),
                ("counter", "5"),
                ("waiter", "{}"),
                ("persistent", r#"{"count":2}"#),
            ] {
                start(&place, function, input);
            }
            let looked = place.run(&["doctor", "--json"]);
            assert_eq!(
                code(&looked),
                0,
                "round {round}: {}{}",
                text(&looked.stdout),
                text(&looked.stderr)
            );
            let last = text(&looked.stdout).lines().last().unwrap();
            let verdict: Value = serde_json::from_str(last).unwrap();
            assert_eq!(
                (&verdict["ok"], &verdict["findings"]),
                (&Value::from(true), &Value::from(0))
            );
            assert!(verdict["executions"].as_u64().unwrap() >= 6 * (round + 1));
        }
    }
}

/// Changes the row of an execution behind the engine's back.
fn tamper(place: &Place, id: &str, change: impl FnOnce(&mut ExecutionRow)) {
    let id: ExecutionId = id.parse().unwrap();
    let store = SqliteStore::open(
        Path::new(place.url.strip_prefix("sqlite:").unwrap()),
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
fn the_doctor_finds_an_execution_that_nothing_wakes() {
    let place = Place::sqlite();
    let id = start(&place, "sleeper", "3600000");
    let worker = Worker::of(&place);
    until(&place, &id, "ExecutionAwaiting");
    drop(worker);
    assert_eq!(code(&place.run(&["doctor"])), 0);
    tamper(&place, &id, |row| row.wake_at = Timestamp::MAX);
    let looked = place.run(&["doctor"]);
    assert_eq!(code(&looked), 1, "{}", text(&looked.stderr));
    let line = format!("execution {id}: WAKE_MISSING: it is due at ");
    assert!(
        text(&looked.stdout).starts_with(&line),
        "{}",
        text(&looked.stdout)
    );
    let looked = place.run(&["doctor", "--json"]);
    let found: Vec<Value> = text(&looked.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        (&found[0]["code"], &found[0]["class"]),
        (&Value::from("WAKE_MISSING"), &Value::from("wrong"))
    );
    assert_eq!(
        (&found[1]["ok"], &found[1]["findings"]),
        (&Value::from(false), &Value::from(1))
    );
}

#[test]
fn what_cannot_be_looked_at_is_said() {
    let place = Place::sqlite();
    for args in [
        &["why", "abcd"][..],
        &["watch", "abcd"],
        &["journal", "replay", "abcd"],
    ] {
        let output = place.run(args);
        assert_eq!(code(&output), 2, "{args:?}");
        assert!(
            text(&output.stderr).contains("there is no execution abcd"),
            "{args:?}: {}",
            text(&output.stderr)
        );
    }
    let mut absent: Command = place.command(&["doctor"]);
    let output = absent
        .env("ONWARD_STORE", "sqlite:absent.db")
        .output()
        .unwrap();
    assert_eq!(code(&output), 2);
    assert!(
        text(&output.stderr).contains("there is no store at absent.db"),
        "{}",
        text(&output.stderr)
    );
}
