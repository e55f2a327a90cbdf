//! The three worked journals of the specification are what real guests leave behind: event by
//! event, up to the interleaving of promises that do not wait for each other.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use onward_journal::Journal;
use onward_journal::jsonl::JournalLineReader;
use serde_json::Value;

use crate::work::Place;
use crate::{fed, onward, text};

const APPROVED: &str = r#"{"approved":true}"#;

/// A journal as lines, and the state after each.
struct Told(Vec<(Value, String)>);

/// What two journals of the same workflow have in common.
#[derive(Debug, PartialEq, Eq)]
struct Projection {
    /// What the guest did and how it was resumed, in order, with the state after each event.
    own: Vec<String>,
    /// The attempts of each promise, in order. Those of different promises may be interleaved
    /// otherwise.
    attempts: BTreeMap<String, Vec<String>>,
    /// What came from outside, in order: it may come at another moment.
    outside: Vec<String>,
    /// Which results were taken from a join set: who ends first is taken first.
    taken: Vec<String>,
}

impl Told {
    fn read(lines: &str) -> Self {
        let mut reader = JournalLineReader::new();
        let mut journal: Option<Journal> = None;
        let told = lines.lines().map(|line| {
            let event = reader.read_line(line).unwrap();
            let journal = journal.get_or_insert_with(|| Journal::new(reader.execution_id()));
            journal.append(event).unwrap();
            (
                serde_json::from_str(line).unwrap(),
                format!("{:?}", journal.execution_state().unwrap()),
            )
        });
        Self(told.collect())
    }

    /// One of the files that the repository has to look at.
    fn example(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/journals");
        Self::read(&std::fs::read_to_string(folder.join(name)).unwrap())
    }

    /// What `journal show` prints, which `journal check` accepts.
    fn shown(place: &Place, execution: &str) -> Self {
        let shown = place.run(&["journal", "show", execution]);
        let judged = fed(onward(&["journal", "check", "--quiet", "-"]), &shown.stdout);
        assert_eq!(judged.status.code(), Some(0), "{}", text(&judged.stderr));
        Self::read(text(&shown.stdout))
    }

    fn kinds(&self) -> Vec<&str> {
        self.0
            .iter()
            .map(|(event, _)| event["event"].as_str().unwrap())
            .collect()
    }

    fn project(&self) -> Projection {
        let mut projection = Projection {
            own: Vec::new(),
            attempts: BTreeMap::new(),
            outside: Vec::new(),
            taken: Vec::new(),
        };
        let mut before = "";
        for (event, state) in &self.0 {
            projection.take_in(event, state, before);
            before = state;
        }
        projection.taken.sort_unstable();
        projection
    }
}

impl Projection {
    fn take_in(&mut self, event: &Value, state: &str, before: &str) {
        let kind = event["event"].as_str().unwrap();
        let with = |fields: &[&str]| {
            fields
                .iter()
                .map(|field| format!(" {}", event[field]))
                .collect::<String>()
        };
        let ended = || {
            if event["result"].get("ok").is_some() {
                "well"
            } else {
                "badly"
            }
        };
        let own = match kind {
            "InvokeStarted" | "InvokeRetrying" | "InvokeCompleted" => {
                assert_eq!(state, before, "attempts do not change the state");
                let said = match kind {
                    "InvokeStarted" => with(&["attempt"]),
                    "InvokeRetrying" => {
                        with(&["failed_attempt"]) + " " + event["error"]["kind"].as_str().unwrap()
                    }
                    _ => with(&["attempt"]) + " " + ended(),
                };
                let promise = event["promise_id"].to_string();
                return self
                    .attempts
                    .entry(promise)
                    .or_default()
                    .push(format!("{kind}{said}"));
            }
            "SignalDelivered" => {
                assert_eq!(state, before, "a delivery does not change the state");
                return self.outside.push(format!(
                    "{kind}{}",
                    with(&["signal_name", "payload", "delivery_id"])
                ));
            }
            "JoinSetAwaited" => {
                self.taken
                    .push(format!("{}{}", with(&["promise_id"]), ended()));
                with(&["join_set_id"])
            }
            // The specification says what the first function is called with.
            "InvokeScheduled" if event["function_name"] == "fetch_user" => {
                with(&["promise_id", "kind", "function_name", "input"])
            }
            "InvokeScheduled" => with(&["promise_id", "kind", "function_name"]),
            // Who is left depends on who was taken.
            "ExecutionAwaiting" if event["kind"] == "any" => {
                format!(
                    "{} of {}",
                    with(&["kind"]),
                    event["waiting_on"].as_array().unwrap().len()
                )
            }
            "ExecutionAwaiting" => with(&["kind", "signal_name", "waiting_on"]),
            "RandomGenerated" => format!(
                "{} {}",
                with(&["promise_id"]),
                event["value"].as_str().unwrap().len()
            ),
            "SignalReceived" => with(&["promise_id", "signal_name", "payload", "delivery_id"]),
            "JoinSetCreated" => with(&["join_set_id"]),
            "JoinSetSubmitted" => with(&["join_set_id", "promise_id"]),
            _ => String::new(),
        };
        self.own.push(format!("{kind}{own} → {state}"));
    }
}

#[test]
fn the_full_example_is_what_a_guest_leaves_behind() {
    let worked = Told::example("order.jsonl");
    for place in [Place::sqlite(), Place::postgres()] {
        let done = place.result("full_example", r#"{"id":42}"#);
        let told = Told::shown(&place, done["execution"].as_str().unwrap());
        assert_eq!(told.project(), worked.project());
        assert_eq!(
            told.kinds()[..13],
            worked.kinds()[..13],
            "so far nothing can come in another order"
        );
    }
}

/// The signal is there before anybody runs the workflow, so it is recorded earlier than in the
/// file, and consumed as there.
#[test]
fn a_signal_that_comes_early_is_consumed_without_waiting() {
    let worked = Told::example("signal-buffered.jsonl");
    for place in [Place::sqlite(), Place::postgres()] {
        let start = [
            "start",
            "buffered_signal",
            r#"{"order":7}"#,
            "--key",
            "approval-7",
        ];
        let started = place.run(&start);
        let execution = text(&started.stdout).trim();
        let sent = place.run(&[
            "signal",
            execution,
            "user_approval",
            APPROVED,
            "--key",
            "one",
        ]);
        assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
        let ended = place.run(&[&start[..], &["--wait"]].concat());
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        let told = Told::shown(&place, execution);
        assert_eq!(told.project(), worked.project());
        assert_eq!(told.0.len(), worked.0.len());
    }
}

/// The signal comes when the workflow waits for it, so nothing is left to chance.
#[test]
fn a_signal_that_comes_late_is_waited_for() {
    let worked = Told::example("signal-blocking.jsonl");
    for place in [Place::sqlite(), Place::postgres()] {
        let start = [
            "start",
            "blocking_signal",
            r#"{"order":7}"#,
            "--key",
            "approval-7",
        ];
        let started = place.run(&start);
        let execution = text(&started.stdout).trim();
        let mut waiting = place.command(&[&start[..], &["--wait"]].concat());
        let waiting = waiting
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while !place
            .events(execution)
            .last()
            .is_some_and(|event| event["kind"] == "signal")
        {}
        let sent = place.run(&[
            "signal",
            execution,
            "user_approval",
            APPROVED,
            "--key",
            "one",
        ]);
        assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
        let ended = waiting.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        let told = Told::shown(&place, execution);
        assert_eq!(told.project(), worked.project());
        assert_eq!(told.kinds(), worked.kinds());
    }
}
