//! Real guests produce the three worked journals of the specification, event by event, up to the
//! interleaving of independent promises.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;

use onward_journal::Journal;
use onward_journal::jsonl::JournalLineReader;
use serde_json::Value;

use crate::workflows::WorkflowStoreFixture;
use crate::{onward, run_with_input, text};

const APPROVED: &str = r#"{"approved":true}"#;

/// The lines of a journal, and the state after each.
struct ParsedJournal(Vec<(Value, String)>);

/// The parts of a journal that are equal in each run of the same workflow.
#[derive(Debug, PartialEq, Eq)]
struct JournalProjection {
    /// Requests of the guest and its resumptions, in order, with the state after each event.
    requests: Vec<String>,
    /// Attempts of each promise, in order. The interleaving of different promises may vary.
    attempts: BTreeMap<String, Vec<String>>,
    /// Delivered signals, in order; the time of their delivery may vary.
    deliveries: Vec<String>,
    /// Results taken from join sets; their order depends on which promise completes first.
    taken: Vec<String>,
}

impl ParsedJournal {
    fn read(lines: &str) -> Self {
        let mut reader = JournalLineReader::new();
        let mut journal: Option<Journal> = None;
        let parsed = lines.lines().map(|line| {
            let event = reader.read_line(line).unwrap();
            let journal = journal.get_or_insert_with(|| Journal::new(reader.execution_id()));
            journal.append(event).unwrap();
            (
                serde_json::from_str(line).unwrap(),
                format!("{:?}", journal.execution_state().unwrap()),
            )
        });
        Self(parsed.collect())
    }

    /// Reads an example journal of the repository.
    fn example(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/journals");
        Self::read(&std::fs::read_to_string(folder.join(name)).unwrap())
    }

    /// Reads the output of `journal show`, after `journal check` has accepted it.
    fn from_store(fixture: &WorkflowStoreFixture, execution: &str) -> Self {
        let shown = fixture.run(&["journal", "show", execution]);
        let checked = run_with_input(onward(&["journal", "check", "--quiet", "-"]), &shown.stdout);
        assert_eq!(checked.status.code(), Some(0), "{}", text(&checked.stderr));
        Self::read(text(&shown.stdout))
    }

    fn event_kinds(&self) -> Vec<&str> {
        self.0
            .iter()
            .map(|(event, _)| event["event"].as_str().unwrap())
            .collect()
    }

    fn project(&self) -> JournalProjection {
        let mut projection = JournalProjection {
            requests: Vec::new(),
            attempts: BTreeMap::new(),
            deliveries: Vec::new(),
            taken: Vec::new(),
        };
        let mut before = "";
        for (event, state) in &self.0 {
            projection.add_event(event, state, before);
            before = state;
        }
        projection.taken.sort_unstable();
        projection
    }
}

impl JournalProjection {
    fn add_event(&mut self, event: &Value, state: &str, before: &str) {
        let kind = event["event"].as_str().unwrap();
        let fields_of = |fields: &[&str]| {
            fields
                .iter()
                .map(|field| format!(" {}", event[field]))
                .collect::<String>()
        };
        let ended = || {
            if event["result"].get("ok").is_some() {
                "ok"
            } else {
                "error"
            }
        };
        let detail = match kind {
            "InvokeStarted" | "InvokeRetrying" | "InvokeCompleted" => {
                assert_eq!(state, before, "attempts do not change the state");
                let detail = match kind {
                    "InvokeStarted" => fields_of(&["attempt"]),
                    "InvokeRetrying" => {
                        fields_of(&["failed_attempt"])
                            + " "
                            + event["error"]["kind"].as_str().unwrap()
                    }
                    _ => fields_of(&["attempt"]) + " " + ended(),
                };
                let promise = event["promise_id"].to_string();
                return self
                    .attempts
                    .entry(promise)
                    .or_default()
                    .push(format!("{kind}{detail}"));
            }
            "SignalDelivered" => {
                assert_eq!(state, before, "a delivery does not change the state");
                return self.deliveries.push(format!(
                    "{kind}{}",
                    fields_of(&["signal_name", "payload", "delivery_id"])
                ));
            }
            "JoinSetAwaited" => {
                self.taken
                    .push(format!("{}{}", fields_of(&["promise_id"]), ended()));
                fields_of(&["join_set_id"])
            }
            // The specification defines the input of the first function.
            "InvokeScheduled" if event["function_name"] == "fetch_user" => {
                fields_of(&["promise_id", "kind", "function_name", "input"])
            }
            "InvokeScheduled" => fields_of(&["promise_id", "kind", "function_name"]),
            // The remaining promises depend on which one completed first.
            "ExecutionAwaiting" if event["kind"] == "any" => {
                format!(
                    "{} of {}",
                    fields_of(&["kind"]),
                    event["waiting_on"].as_array().unwrap().len()
                )
            }
            "ExecutionAwaiting" => fields_of(&["kind", "signal_name", "waiting_on"]),
            "RandomGenerated" => format!(
                "{} {}",
                fields_of(&["promise_id"]),
                event["value"].as_str().unwrap().len()
            ),
            "SignalReceived" => fields_of(&["promise_id", "signal_name", "payload", "delivery_id"]),
            "JoinSetCreated" => fields_of(&["join_set_id"]),
            "JoinSetSubmitted" => fields_of(&["join_set_id", "promise_id"]),
            _ => String::new(),
        };
        self.requests.push(format!("{kind}{detail} → {state}"));
    }
}

#[test]
fn a_guest_produces_the_full_example() {
    let worked = ParsedJournal::example("order.jsonl");
    for fixture in [
        WorkflowStoreFixture::sqlite(),
        WorkflowStoreFixture::postgres(),
    ] {
        let done = fixture.run_workflow("full_example", r#"{"id":42}"#);
        let recorded = ParsedJournal::from_store(&fixture, done["execution"].as_str().unwrap());
        assert_eq!(recorded.project(), worked.project());
        assert_eq!(
            recorded.event_kinds()[..13],
            worked.event_kinds()[..13],
            "the order up to here is fixed"
        );
    }
}

/// The signal is sent before a process runs the workflow, so it is recorded earlier than in the
/// file and consumed in the same way.
#[test]
fn an_early_signal_is_consumed_without_waiting() {
    let worked = ParsedJournal::example("signal-buffered.jsonl");
    for fixture in [
        WorkflowStoreFixture::sqlite(),
        WorkflowStoreFixture::postgres(),
    ] {
        let start = [
            "start",
            "buffered_signal",
            r#"{"order":7}"#,
            "--key",
            "approval-7",
        ];
        let started = fixture.run(&start);
        let execution = text(&started.stdout).trim();
        let sent = fixture.run(&[
            "signal",
            execution,
            "user_approval",
            APPROVED,
            "--key",
            "one",
        ]);
        assert_eq!(sent.status.code(), Some(0), "{}", text(&sent.stderr));
        let ended = fixture.run(&[&start[..], &["--wait"]].concat());
        assert_eq!(ended.status.code(), Some(0), "{}", text(&ended.stderr));
        let recorded = ParsedJournal::from_store(&fixture, execution);
        assert_eq!(recorded.project(), worked.project());
        assert_eq!(recorded.0.len(), worked.0.len());
    }
}

/// The signal is sent while the workflow waits for it, so the order of all events is fixed.
#[test]
fn a_workflow_waits_for_a_late_signal() {
    let worked = ParsedJournal::example("signal-blocking.jsonl");
    for fixture in [
        WorkflowStoreFixture::sqlite(),
        WorkflowStoreFixture::postgres(),
    ] {
        let start = [
            "start",
            "blocking_signal",
            r#"{"order":7}"#,
            "--key",
            "approval-7",
        ];
        let started = fixture.run(&start);
        let execution = text(&started.stdout).trim();
        let mut waiting = fixture.command(&[&start[..], &["--wait"]].concat());
        let waiting = waiting
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        while !fixture
            .events(execution)
            .last()
            .is_some_and(|event| event["kind"] == "signal")
        {}
        let sent = fixture.run(&[
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
        let recorded = ParsedJournal::from_store(&fixture, execution);
        assert_eq!(recorded.project(), worked.project());
        assert_eq!(recorded.event_kinds(), worked.event_kinds());
    }
}
