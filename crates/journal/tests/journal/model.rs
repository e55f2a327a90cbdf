//! Traffic between the model in `spec/` and the code, both ways, refusals and their reasons
//! included.
//!
//! Model to code: traces of the model, in which legal and illegal events are tried, are replayed
//! through the fold. A corpus of them is kept in `spec/traces`; `cargo xtask model` makes fresh
//! ones in the folder `ONWARD_TRAFFIC_DIR`, and with `UPDATE_EXPECT=1` they replace the corpus.
//!
//! Code to model: journals made here, with illegal events among them, are written into the same
//! folder as a Quint test, with the verdict of the code beside each event; `cargo xtask model` has
//! Quint check them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use onward_journal::{INVARIANTS, JournalState, PromiseState, Rule, RuleEnforcement};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::Value;

use super::model_record::{Record, Step};
use super::script::*;

const SPEC: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../spec");

/// The rules that the model leaves out: ids of other executions, and what may be retried.
const NOT_MODELLED: [Rule; 2] = [Rule::ID1, Rule::H13];

/// The steps of a trace that Quint wrote; the first state is the one before any event.
fn trace_from_itf(text: &str) -> Vec<Step> {
    let trace: Value = serde_json::from_str(text).unwrap();
    let steps = trace["states"]
        .as_array()
        .unwrap()
        .iter()
        .skip(1)
        .map(|state| Step {
            record: Record::from_itf(&state["last"]),
            answer: state["answer"].as_str().unwrap().to_owned(),
            status: state["status"].as_str().unwrap().to_owned(),
        });
    // A trace that reached its end may stutter: nothing was tried.
    steps.filter(|step| !step.record.tag.is_empty()).collect()
}

fn corpus() -> Vec<Vec<Step>> {
    let text = fs::read_to_string(format!("{SPEC}/traces/probe.txt")).unwrap();
    let read = |line: &str| {
        let (words, outcome) = line.split_once(" -> ").unwrap();
        let (status, answer) = outcome.split_once(' ').unwrap_or((outcome, ""));
        Step {
            record: Record::read(words),
            answer: answer.to_owned(),
            status: status.to_owned(),
        }
    };
    text.trim()
        .split("\n\n")
        .map(|trace| trace.lines().map(read).collect())
        .collect()
}

fn write_corpus(traces: &[Vec<Step>]) {
    let mut text = String::new();
    for trace in traces {
        for Step {
            record,
            answer,
            status,
        } in trace
        {
            let line = format!("{} -> {status} {answer}", record.write());
            writeln!(text, "{}", line.trim_end()).unwrap();
        }
        text.push('\n');
    }
    fs::create_dir_all(format!("{SPEC}/traces")).unwrap();
    fs::write(format!("{SPEC}/traces/probe.txt"), text).unwrap();
}

/// The folder for the exchanged files. Default: the scratch folder of cargo.
fn traffic_folder() -> PathBuf {
    PathBuf::from(
        std::env::var_os("ONWARD_TRAFFIC_DIR").unwrap_or(env!("CARGO_TARGET_TMPDIR").into()),
    )
}

/// The traces of a fresh model run, or nothing if there was none.
fn fresh() -> Vec<Vec<Step>> {
    let folder = traffic_folder().join("itf");
    if !folder.exists() {
        return Vec::new();
    }
    let mut paths: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| trace_from_itf(&fs::read_to_string(path).unwrap()))
        .collect()
}

/// Replays a trace through the fold and returns the rules that refused an event.
fn replay(trace: &[Step]) -> BTreeSet<String> {
    let mut fold = JournalState::new(own());
    let mut refusals = BTreeSet::new();
    for step in trace {
        let event = step.record.event();
        let answer = fold
            .push_event(&event)
            .err()
            .map_or("", |violation| violation.rule.id());
        assert_eq!(answer, step.answer, "{step:?} in {trace:#?}");
        if !answer.is_empty() {
            refusals.insert(answer.to_owned());
        }
        assert_eq!(
            fold.execution_state()
                .map_or("New".to_owned(), |state| state.to_string()),
            step.status,
            "{step:?}"
        );
    }
    refusals
}

#[test]
fn traces_of_the_model_replay_through_the_code() {
    let fresh = fresh();
    if !fresh.is_empty() && std::env::var_os("UPDATE_EXPECT").is_some() {
        write_corpus(&fresh);
    }
    let corpus = corpus();
    let refusals: BTreeSet<String> = corpus
        .iter()
        .chain(&fresh)
        .flat_map(|trace| replay(trace))
        .collect();
    let steps: usize = corpus.iter().chain(&fresh).map(Vec::len).sum();
    println!(
        "{} traces of the corpus and {} fresh ones, {steps} events",
        corpus.len(),
        fresh.len()
    );
    println!("refusals by {}: {refusals:?}", refusals.len());
    assert!(
        corpus.len() >= 100 && refusals.len() >= 30,
        "the corpus is too small"
    );
}

/// A random record: any event, any small numbers. Most are illegal where they stand.
fn any_record() -> impl Strategy<Value = Record> {
    let numbers = (0..7_i64, 0..7_i64, 1..4_i64, 0..2_i64, 1..3_i64);
    let waiting = prop::collection::vec(0..7_i64, 0..4);
    (
        0..20_usize,
        numbers,
        any::<bool>(),
        any::<bool>(),
        waiting,
        0..4_usize,
    )
        .prop_map(
            |(tag, (pid, set, attempt, value, delivery), ok, signal, waiting, kind)| {
                let fields = TAGS[tag];
                let has = |field: &str| fields.1.contains(field);
                let number = |field: &str, number: i64| if has(field) { number } else { -1 };
                let kind = if has("kind") {
                    ["single", "any", "all", "signal"][kind]
                } else {
                    ""
                };
                let named = has("signal") || kind == "signal";
                Record {
                    tag: fields.0.to_owned(),
                    seq: 0,
                    pid: number("pid", pid),
                    set: number("set", set),
                    attempt: number("attempt", attempt),
                    value: number("value", value),
                    ok: has("ok") && ok,
                    signal: if named {
                        ["a", "b"][usize::from(signal)].to_owned()
                    } else {
                        String::new()
                    },
                    delivery: number("delivery", delivery),
                    waiting: if has("waiting") { waiting } else { Vec::new() },
                    kind: kind.to_owned(),
                }
            },
        )
}

/// The events and the fields they have in the model.
const TAGS: [(&str, &str); 20] = [
    ("ExecutionStarted", ""),
    ("ExecutionCompleted", "value"),
    ("ExecutionFailed", "value"),
    ("CancelRequested", ""),
    ("ExecutionCancelled", ""),
    ("InvokeScheduled", "pid"),
    ("InvokeStarted", "pid attempt"),
    ("InvokeCompleted", "pid attempt value ok"),
    ("InvokeRetrying", "pid attempt"),
    ("RandomGenerated", "pid value"),
    ("TimeRecorded", "pid value"),
    ("TimerScheduled", "pid"),
    ("TimerFired", "pid"),
    ("SignalDelivered", "signal delivery value"),
    ("SignalReceived", "pid signal delivery value"),
    ("ExecutionAwaiting", "waiting kind"),
    ("ExecutionResumed", ""),
    ("JoinSetCreated", "set"),
    ("JoinSetSubmitted", "set pid"),
    ("JoinSetAwaited", "set pid value ok"),
];

/// Maps random numbers to existing ids, so that events break more than the first rule.
fn aim_at_existing(mut record: Record, fold: &JournalState) -> Record {
    let children = fold.promise_states().count() as i64;
    let within = |number: i64| {
        if number < 0 {
            number
        } else {
            number % (children + 1)
        }
    };
    let allocates = matches!(
        record.tag.as_str(),
        "InvokeScheduled" | "RandomGenerated" | "TimeRecorded" | "TimerScheduled"
    );
    let sets: Vec<i64> = (0..)
        .zip(fold.promise_states())
        .filter(|(_, (_, p))| matches!(p, PromiseState::JoinSet(_)))
        .map(|(n, _)| n)
        .collect();
    let attempt = fold
        .invoke_state(&promise(within(record.pid).max(0) as u32))
        .map_or(0, |invoke| i64::from(invoke.attempt));
    record.seq = fold.next_sequence() as i64;
    record.pid = if allocates && record.pid % 4 > 0 {
        children
    } else {
        within(record.pid)
    };
    record.set = match sets.len() {
        _ if record.tag == "JoinSetCreated" && record.set % 4 > 0 => children,
        0 => within(record.set),
        known if (0..6).contains(&record.set) => sets[record.set as usize % known],
        _ => within(record.set),
    };
    record.attempt = if record.attempt < 0 {
        -1
    } else {
        attempt + record.attempt - 1
    };
    record.waiting = record.waiting.into_iter().map(within).collect();
    let timers = (0..)
        .zip(fold.promise_states())
        .filter(|(_, (_, promise))| matches!(promise, PromiseState::Timer { .. }));
    let timers: Vec<i64> = timers.map(|(number, _)| number).collect();
    match (record.kind.as_str(), record.waiting.as_mut_slice()) {
        ("signal", [first]) if *first % 3 > 0 => *first = children,
        ("signal", [first, deadline]) if *first % 3 > 0 => {
            *first = children;
            *deadline = timers
                .get(*deadline as usize % timers.len().max(1))
                .copied()
                .unwrap_or(*deadline);
        }
        _ => {}
    }
    record
}

/// Whether the event would end the script early.
fn is_end(record: &Record) -> bool {
    matches!(
        record.tag.as_str(),
        "ExecutionCompleted" | "ExecutionFailed" | "CancelRequested" | "ExecutionCancelled"
    )
}

/// A script of events with the code's verdicts. Random events are tried; those that are legal move
/// the journal on, and of the refused ones each rule is kept once. Terminal events are postponed.
fn script(runner: &mut TestRunner) -> Vec<Step> {
    let mut fold = JournalState::new(own());
    let mut steps: Vec<Step> = Vec::new();
    for _ in 0..2_500 {
        let record = match fold.next_sequence() {
            0 if !steps.is_empty() => Record::read("ExecutionStarted seq=0 ok=false waiting="),
            _ => aim_at_existing(any_record().new_tree(runner).unwrap().current(), &fold),
        };
        let event = record.event();
        let answer = fold
            .check_event(&event)
            .err()
            .map_or("", |violation| violation.rule.id());
        let is_early = is_end(&record) && fold.next_sequence() < 24;
        if answer.is_empty() && !is_early {
            fold.push_event(&event).unwrap();
        } else if answer.is_empty() || steps.iter().any(|step| step.answer == answer) {
            continue;
        }
        let status = fold
            .execution_state()
            .map_or("New".to_owned(), |state| state.to_string());
        steps.push(Step {
            record,
            answer: answer.to_owned(),
            status,
        });
    }
    steps
}

#[test]
fn scripts_of_the_code_are_written_for_the_model_to_check() {
    let config = Config {
        failure_persistence: None,
        ..Config::default()
    };
    let seed: u64 = std::env::var("ONWARD_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(1);
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[seed.to_le_bytes(); 4].concat());
    let mut runner = TestRunner::new_with_rng(config, rng);
    let scripts: Vec<Vec<Step>> = (0..40).map(|_| script(&mut runner)).collect();

    let spec = path_to_spec();
    let mut quint = format!("module traffic {{\n  import events.* from \"{spec}/events\"\n");
    writeln!(quint, "  import guard.* from \"{spec}/guard\"\n{JUDGE}").unwrap();
    for (index, steps) in scripts.iter().enumerate() {
        writeln!(quint, "  run script{index}Test = assert(disagreements([").unwrap();
        for Step {
            record,
            answer,
            status,
        } in steps
        {
            writeln!(
                quint,
                "    {{ e: {}, answer: \"{answer}\", status: \"{status}\" }},",
                record.quint()
            )
            .unwrap();
        }
        writeln!(quint, "  ]) == [])").unwrap();
    }
    quint += "}\n";
    fs::write(traffic_folder().join("traffic.qnt"), quint).unwrap();

    let answers: BTreeSet<&str> = scripts
        .iter()
        .flatten()
        .map(|step| step.answer.as_str())
        .collect();
    let modelled = |invariant: &&onward_journal::Invariant| {
        !matches!(invariant.enforced, RuleEnforcement::Command)
            && !NOT_MODELLED.contains(&invariant.rule)
    };
    let reached = INVARIANTS
        .iter()
        .filter(modelled)
        .filter(|invariant| answers.contains(invariant.id))
        .count();
    let steps: usize = scripts.iter().map(Vec::len).sum();
    println!("{steps} events, {reached} rules refuse something: {answers:?}");
    assert!(
        reached >= 25 && answers.contains(""),
        "the scripts reach too few rules"
    );
}

/// The way from the folder to the model: Quint imports by relative paths only.
fn path_to_spec() -> String {
    let scratch = fs::canonicalize(traffic_folder()).unwrap();
    let up = "../".repeat(scratch.components().count() - 1);
    let spec = fs::canonicalize(SPEC).unwrap();
    format!("{up}{}", spec.strip_prefix("/").unwrap().display())
}

/// Folds a script with the model's own `verdict` and `apply` and lists the steps it sees
/// differently.
const JUDGE: &str = r#"
  type Step = { e: Event, answer: str, status: str }
  type Judged = { s: State, wrong: List[Step] }

  pure def judge(j: Judged, step: Step): Judged = {
    val answer = verdict(j.s, step.e)
    val after = if (answer == "") apply(j.s, step.e) else j.s
    val agrees = answer == step.answer and shown(after) == step.status
    { s: after, wrong: if (agrees) j.wrong else j.wrong.append(step) }
  }

  pure def disagreements(steps: List[Step]): List[Step] = steps.foldl({ s: empty, wrong: [] }, judge).wrong
"#;
