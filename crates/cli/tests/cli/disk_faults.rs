//! Disk faults: nothing is acknowledged after a failed sync, and a full disk is a clean error.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::Stdio;

use onward_runs::{AppendResult, RunEventRecord, RunEventWrite};
use onward_testing::{DiskFault, RunEventGenerator};

use crate::state_commands::{RunStoreFixture, lines};
use crate::{onward, run_with_input, text};

/// Output of a process with a disk fault.
struct FaultOutput {
    acknowledged: Vec<AppendResult>,
    code: Option<i32>,
    stderr: String,
}

/// Appends events one by one, each after the previous one is acknowledged.
fn append_one_by_one(
    fixture: &RunStoreFixture,
    events: &[RunEventWrite],
    fault: DiskFault,
    nth: usize,
) -> FaultOutput {
    let mut command = onward(&["state", "append", "--store", &fixture.url, "-"]);
    fault.inject_at(nth, &mut command);
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut results = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut acknowledged = Vec::new();
    for event in events {
        let sent = writeln!(stdin, "{}", event.to_json());
        let Some(result) = results.next().transpose().unwrap().filter(|_| sent.is_ok()) else {
            break;
        };
        acknowledged.push(AppendResult::from_json(&result).unwrap());
    }
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    FaultOutput {
        acknowledged,
        code: output.status.code(),
        stderr: text(&output.stderr).to_owned(),
    }
}

/// Asserts that acknowledged events are stored with their sequence, and that the store still works.
fn assert_acknowledged_events_stored(
    fixture: &RunStoreFixture,
    events: &[RunEventWrite],
    acknowledged: &[AppendResult],
) {
    let output = fixture.state(&["events", &events[0].run_id]);
    let stored: Vec<RunEventRecord> = text(&output.stdout)
        .lines()
        .map(|line| RunEventRecord::from_json(line).unwrap())
        .collect();
    for result in acknowledged {
        let found = stored
            .iter()
            .find(|record| record.event.event_id == result.event_id)
            .unwrap();
        assert_eq!(found.run_seq, result.run_seq);
    }
    let again = fixture.append(&[], &lines(events));
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    let verified = fixture.state(&["verify", "--json"]);
    let expected = format!(
        "{{\"ok\":true,\"runs\":1,\"events\":{},\"findings\":0}}\n",
        events.len()
    );
    assert_eq!(text(&verified.stdout), expected);
}

#[test]
fn nothing_is_acknowledged_after_a_failed_sync() {
    let events = RunEventGenerator::new("sync").next_events(12);
    let (mut poisoned, mut untouched) = (0, 0);
    for nth in 1..=40 {
        let fixture = RunStoreFixture::sqlite();
        let output = append_one_by_one(&fixture, &events, DiskFault::Sync, nth);
        if output.code == Some(0) {
            assert_eq!(output.acknowledged.len(), events.len());
            untouched += 1;
        } else {
            assert_eq!(output.code, Some(2), "{}", output.stderr);
            assert!(output.acknowledged.len() < events.len() || !output.stderr.is_empty());
            poisoned += usize::from(
                output
                    .stderr
                    .contains("the store has stopped after a failed write"),
            );
        }
        assert_acknowledged_events_stored(&fixture, &events, &output.acknowledged);
    }
    assert!(
        poisoned >= 10,
        "only {poisoned} runs met the fault while appending"
    );
    assert!(untouched > 0, "the last of these syncs is not reached");
}

#[test]
fn a_full_disk_is_a_clean_error() {
    let events = RunEventGenerator::new("full").next_events(12);
    let mut refused = 0;
    for nth in 1..=60 {
        let fixture = RunStoreFixture::sqlite();
        let output = append_one_by_one(&fixture, &events, DiskFault::Full, nth);
        if output.code != Some(0) {
            assert_eq!(output.code, Some(2), "{}", output.stderr);
            let is_clear = output.stderr.contains("full") || output.stderr.contains("cannot open");
            assert!(
                is_clear && !output.stderr.contains("has stopped"),
                "{}",
                output.stderr
            );
            refused += 1;
        }
        assert_acknowledged_events_stored(&fixture, &events, &output.acknowledged);
    }
    assert!(refused < 60, "some runs do not reach the fault");
}

#[test]
fn a_failed_read_stores_no_refused_event() {
    let events = RunEventGenerator::new("read").next_events(900);
    let mut refused = 0;
    for nth in (1..=40).chain((50..400).step_by(25)) {
        let fixture = RunStoreFixture::sqlite();
        fixture.append(&[], &lines(&events[..800]));
        let mut command = onward(&["state", "append", "--store", &fixture.url, "-"]);
        DiskFault::Read.inject_at(nth, &mut command);
        let output = run_with_input(command, lines(&events[800..]).as_bytes());
        let acknowledged: Vec<AppendResult> = text(&output.stdout)
            .lines()
            .map(|line| AppendResult::from_json(line).unwrap())
            .collect();
        refused += usize::from(output.status.code() != Some(0));
        let verified = fixture.state(&["verify"]);
        assert_eq!(
            verified.status.code(),
            Some(0),
            "read {nth}: {}",
            text(&verified.stdout)
        );
        assert_acknowledged_events_stored(&fixture, &events, &acknowledged);
    }
    assert!(refused > 0, "no read failed during an append");
}

/// Kills the process at every write and sync in turn, from the creation of the store to its
/// closing.
#[test]
fn a_new_store_recovers_from_a_kill_at_any_write() {
    let events = RunEventGenerator::new("torn").next_events(3);
    let mut kills = 0;
    loop {
        let fixture = RunStoreFixture::sqlite();
        let output = append_one_by_one(&fixture, &events, DiskFault::Kill, kills + 1);
        if output.code == Some(0) {
            break;
        }
        assert_eq!(output.code, None, "{}", output.stderr);
        kills += 1;
        assert_store_recovers(&fixture, &events, &output.acknowledged);
    }
    assert!(kills > 40, "{kills} kills");
}

/// Appends all events again, because an early kill may have left no store, and checks them.
fn assert_store_recovers(
    fixture: &RunStoreFixture,
    events: &[RunEventWrite],
    acknowledged: &[AppendResult],
) {
    let again = fixture.append(&[], &lines(events));
    assert_eq!(again.status.code(), Some(0), "{}", text(&again.stderr));
    assert_acknowledged_events_stored(fixture, events, acknowledged);
}
