//! Disks that fail: nothing is acknowledged after a failed sync, and a full disk is refused
//! cleanly.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use onward_runs::{AppendResult, RunEventRecord, RunEventWrite};
use onward_testing::{DiskFault, RunEventGenerator};

use crate::state::{Place, lines};
use crate::{fed, onward, text};

/// What a process that met a failing disk said.
struct Told {
    acknowledged: Vec<AppendResult>,
    code: Option<i32>,
    words: String,
}

/// Appends event by event, each once the one before is acknowledged.
fn append_one_by_one(
    place: &Place,
    events: &[RunEventWrite],
    fault: DiskFault,
    nth: usize,
) -> Told {
    let mut command = onward(&["state", "append", "--store", &place.url, "-"]);
    fault.inject_at(nth, &mut command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = Vec::new();
    for event in events {
        let sent = writeln!(stdin, "{}", event.to_json());
        let Some(answer) = answers.next().transpose().unwrap().filter(|_| sent.is_ok()) else {
            break;
        };
        acknowledged.push(AppendResult::from_json(&answer).unwrap());
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    Told {
        acknowledged,
        code: output.status.code(),
        words: text(&output.stderr).to_owned(),
    }
}

/// What was acknowledged is stored where it was said to be, and the store goes on working.
fn check(place: &Place, events: &[RunEventWrite], acknowledged: &[AppendResult]) {
    let output = place.state(&["events", &events[0].run_id]);
    let stored: Vec<RunEventRecord> = text(&output.stdout)
        .lines()
        .map(|line| RunEventRecord::from_json(line).unwrap())
        .collect();
    for answer in acknowledged {
        let found = stored
            .iter()
            .find(|record| record.event.event_id == answer.event_id)
            .unwrap();
        assert_eq!(found.run_seq, answer.run_seq);
    }
    let again = place.append(&[], &lines(events));
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    let verified = place.state(&["verify", "--json"]);
    let expected = format!(
        "{{\"ok\":true,\"runs\":1,\"events\":{},\"findings\":0}}\n",
        events.len()
    );
    assert_eq!(text(&verified.stdout), expected);
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_any_more() {
    let events = RunEventGenerator::new("sync").next_events(12);
    let (mut poisoned, mut untouched) = (0, 0);
    for nth in 1..=40 {
        let place = Place::sqlite();
        let told = append_one_by_one(&place, &events, DiskFault::Sync, nth);
        if told.code == Some(0) {
            assert_eq!(told.acknowledged.len(), events.len());
            untouched += 1;
        } else {
            assert_eq!(told.code, Some(2), "{}", told.words);
            assert!(told.acknowledged.len() < events.len() || !told.words.is_empty());
            poisoned += usize::from(
                told.words
                    .contains("the store has stopped after a failed write"),
            );
        }
        check(&place, &events, &told.acknowledged);
    }
    assert!(
        poisoned >= 10,
        "only {poisoned} runs met the fault while appending"
    );
    assert!(untouched > 0, "the last of these syncs is never reached");
}

#[test]
fn a_full_disk_is_a_clean_refusal() {
    let events = RunEventGenerator::new("full").next_events(12);
    let mut refused = 0;
    for nth in 1..=60 {
        let place = Place::sqlite();
        let told = append_one_by_one(&place, &events, DiskFault::Full, nth);
        if told.code != Some(0) {
            assert_eq!(told.code, Some(2), "{}", told.words);
            let is_clear = told.words.contains("full") || told.words.contains("cannot open");
            assert!(
                is_clear && !told.words.contains("has stopped"),
                "{}",
                told.words
            );
            refused += 1;
        }
        check(&place, &events, &told.acknowledged);
    }
    assert!(
        refused < 60,
        "a disk that is full once is not full for ever"
    );
}

#[test]
fn a_read_that_fails_stores_nothing_of_what_is_refused() {
    let events = RunEventGenerator::new("read").next_events(900);
    let mut refused = 0;
    for nth in (1..=40).chain((50..400).step_by(25)) {
        let place = Place::sqlite();
        place.append(&[], &lines(&events[..800]));
        let mut command = onward(&["state", "append", "--store", &place.url, "-"]);
        DiskFault::Read.inject_at(nth, &mut command);
        let output = fed(command, lines(&events[800..]).as_bytes());
        let acknowledged: Vec<AppendResult> = text(&output.stdout)
            .lines()
            .map(|line| AppendResult::from_json(line).unwrap())
            .collect();
        refused += usize::from(output.status.code() != Some(0));
        let verified = place.state(&["verify"]);
        assert_eq!(
            verified.status.code(),
            Some(0),
            "read {nth}: {}",
            text(&verified.stdout)
        );
        check(&place, &events, &acknowledged);
    }
    assert!(refused > 0, "no read failed while it mattered");
}

/// From the first byte of a new file to the last of its closing: every write is torn and every sync
/// is missed once.
#[test]
fn whichever_write_a_new_store_dies_in_it_goes_on() {
    let events = RunEventGenerator::new("torn").next_events(3);
    let mut kills = 0;
    loop {
        let place = Place::sqlite();
        let told = append_one_by_one(&place, &events, DiskFault::Kill, kills + 1);
        if told.code == Some(0) {
            break;
        }
        assert_eq!(told.code, None, "{}", told.words);
        kills += 1;
        check_what_was_begun(&place, &events, &told.acknowledged);
    }
    assert!(kills > 40, "{kills} kills");
}

/// A process that died early may have left no store at all.
fn check_what_was_begun(place: &Place, events: &[RunEventWrite], acknowledged: &[AppendResult]) {
    let again = place.append(&[], &lines(events));
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    check(place, events, acknowledged);
}
