//! Disks that fail: nothing is acknowledged after a failed sync, and a full disk is refused cleanly.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use onward_runs::{AppendResult, RunEventRecord, RunEventWrite};
use onward_testing::Events;
use tempfile::TempDir;

use crate::state::{Place, lines};
use crate::{onward, text};

/// The library to preload, compiled once.
fn disk() -> PathBuf {
    static BUILT: OnceLock<(TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = BUILT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let library = folder.path().join("disk.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/disk.c");
        let built =
            Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).arg("-ldl").status();
        assert!(built.unwrap().success(), "a C compiler is needed to build the failing disk");
        (folder, library)
    });
    path.clone()
}

/// What a process that met a failing disk said.
struct Told {
    acknowledged: Vec<AppendResult>,
    code: Option<i32>,
    words: String,
}

/// Appends event by event, each once the one before is acknowledged.
fn append_one_by_one(place: &Place, events: &[RunEventWrite], fault: (&str, usize)) -> Told {
    let mut command = onward(&["state", "append", "--store", &place.url, "-"]);
    command.env("LD_PRELOAD", disk()).env(fault.0, fault.1.to_string());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = Vec::new();
    for event in events {
        let sent = writeln!(stdin, "{}", event.to_json());
        let Some(answer) = answers.next().transpose().unwrap().filter(|_| sent.is_ok()) else { break };
        acknowledged.push(AppendResult::from_json(&answer).unwrap());
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    Told { acknowledged, code: output.status.code(), words: text(&output.stderr).to_owned() }
}

/// What was acknowledged is stored where it was said to be, and the store goes on working.
fn check(place: &Place, events: &[RunEventWrite], acknowledged: &[AppendResult]) {
    let output = place.state(&["events", &events[0].run_id]);
    let stored: Vec<RunEventRecord> =
        text(&output.stdout).lines().map(|line| RunEventRecord::from_json(line).unwrap()).collect();
    for answer in acknowledged {
        let found = stored.iter().find(|record| record.event.event_id == answer.event_id).unwrap();
        assert_eq!(found.run_seq, answer.run_seq);
    }
    let again = place.append(&[], &lines(events));
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    let verified = place.state(&["verify", "--json"]);
    let expected = format!("{{\"ok\":true,\"runs\":1,\"events\":{},\"findings\":0}}\n", events.len());
    assert_eq!(text(&verified.stdout), expected);
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_any_more() {
    let events = Events::new("sync").take(12);
    let (mut poisoned, mut untouched) = (0, 0);
    for nth in 1..=40 {
        let place = Place::sqlite();
        let told = append_one_by_one(&place, &events, ("FAIL_SYNC", nth));
        if told.code == Some(0) {
            assert_eq!(told.acknowledged.len(), events.len());
            untouched += 1;
        } else {
            assert_eq!(told.code, Some(2), "{}", told.words);
            assert!(told.acknowledged.len() < events.len() || !told.words.is_empty());
            poisoned += usize::from(told.words.contains("the store has stopped after a failed write"));
        }
        check(&place, &events, &told.acknowledged);
    }
    assert!(poisoned >= 10, "only {poisoned} runs met the fault while appending");
    assert!(untouched > 0, "the last of these syncs is never reached");
}

#[test]
fn a_full_disk_is_a_clean_refusal() {
    let events = Events::new("full").take(12);
    let mut refused = 0;
    for nth in 1..=60 {
        let place = Place::sqlite();
        let told = append_one_by_one(&place, &events, ("FULL_WRITE", nth));
        if told.code != Some(0) {
            assert_eq!(told.code, Some(2), "{}", told.words);
            let is_clear = told.words.contains("full") || told.words.contains("cannot open");
            assert!(is_clear && !told.words.contains("has stopped"), "{}", told.words);
            refused += 1;
        }
        check(&place, &events, &told.acknowledged);
    }
    assert!(refused < 60, "a disk that is full once is not full for ever");
}
