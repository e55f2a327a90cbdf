//! Repeated SIGKILL of an appending process: each acknowledged event is stored once, with its
//! acknowledged sequence.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Stdio};
use std::thread;

use onward_runs::{AppendResult, RunEventId, RunEventRecord, RunEventWrite, RunSeq};
use onward_testing::RunEventGenerator;

use crate::state_commands::{RunStoreFixture, lines};
use crate::{onward, text};

/// Number of kills of a test: `default`, multiplied by `ONWARD_KILLS`.
pub(crate) fn kills(default: usize) -> usize {
    let times: usize = std::env::var("ONWARD_KILLS")
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(1);
    default * times
}

#[test]
fn sqlite_keeps_every_acknowledged_event_through_kills() {
    append_through_kills(&RunStoreFixture::sqlite(), kills(200));
}

#[test]
fn postgres_keeps_every_acknowledged_event_through_kills() {
    append_through_kills(&RunStoreFixture::postgres(), kills(50));
}

/// Largest number of results that are read before a kill.
const MAX_RESULTS: usize = 120;

/// Events that each round offers: more than those results and what fits into the pipe to the test,
/// so that each kill interrupts the appends, however long the test is not scheduled.
const OFFERED_EVENTS: usize = 1_000;

/// Events that were sent, and those that were acknowledged.
struct AppendLedger {
    events: RunEventGenerator,
    unanswered: Vec<RunEventWrite>,
    acknowledged: BTreeMap<RunEventId, RunSeq>,
    sent: Vec<RunEventWrite>,
}

fn append_through_kills(fixture: &RunStoreFixture, kills: usize) {
    let mut ledger = AppendLedger {
        events: RunEventGenerator::new("killed"),
        unanswered: Vec::new(),
        acknowledged: BTreeMap::new(),
        sent: Vec::new(),
    };
    for round in 0..kills {
        // 1 to 120 results, the same in every run of the test.
        let results = 1 + (round * 7919) % MAX_RESULTS;
        ledger.append_and_kill(fixture, results);
        assert!(
            !ledger.unanswered.is_empty(),
            "the kill interrupted the appends"
        );
    }
    ledger.assert_acknowledged_events_stored(fixture);
}

impl AppendLedger {
    /// Sends unacknowledged and new events, kills the process after this many results, and records
    /// all results.
    fn append_and_kill(&mut self, fixture: &RunStoreFixture, results: usize) {
        let fresh = self
            .events
            .next_events(OFFERED_EVENTS - self.unanswered.len());
        self.sent.extend(fresh.iter().cloned());
        self.unanswered.extend(fresh);
        let mut child = spawn(fixture);
        let mut stdin = child.stdin.take().unwrap();
        let input = lines(&self.unanswered);
        let writer = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let stdout = child.stdout.take().unwrap();
        // A small buffer, so that what is not read yet is still in the pipe.
        let mut printed = BufReader::with_capacity(256, stdout)
            .lines()
            .map_while(Result::ok);
        let mut lines: Vec<String> = printed.by_ref().take(results).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        writer.join().unwrap();
        lines.extend(printed);
        let mut errors = String::new();
        let mut stderr = child.stderr.take().unwrap();
        stderr.read_to_string(&mut errors).unwrap();
        assert!(
            lines.len() >= results,
            "the process ended before the kill: {errors}"
        );
        self.record_results(&lines);
    }

    /// Records acknowledged events. The last line of a killed process may be incomplete.
    fn record_results(&mut self, lines: &[String]) {
        let read: Vec<_> = lines
            .iter()
            .map(|line| AppendResult::from_json(line))
            .collect();
        assert!(
            read.iter().rev().skip(1).all(Result::is_ok),
            "only the last line may be incomplete"
        );
        let complete: Vec<AppendResult> = read.into_iter().filter_map(Result::ok).collect();
        for (result, event) in complete.iter().zip(&self.unanswered) {
            assert_eq!(
                result.event_id, event.event_id,
                "results are in the order of the lines"
            );
            self.acknowledged.insert(result.event_id, result.run_seq);
        }
        self.unanswered.drain(..complete.len());
    }

    fn assert_acknowledged_events_stored(&self, fixture: &RunStoreFixture) {
        let verified = fixture.state(&["verify"]);
        assert_eq!(
            verified.status.code(),
            Some(0),
            "{}{}",
            text(&verified.stdout),
            text(&verified.stderr)
        );
        let mut stored: BTreeMap<RunEventId, RunSeq> = BTreeMap::new();
        let mut runs: Vec<&str> = self.sent.iter().map(|event| &*event.run_id).collect();
        runs.dedup();
        for run in runs {
            let output = fixture.state(&["events", run, "--limit", "10000"]);
            for (line, expected) in text(&output.stdout).lines().zip(1_u64..) {
                let record = RunEventRecord::from_json(line).unwrap();
                assert_eq!(
                    record.run_seq.as_u64(),
                    expected,
                    "sequences are contiguous"
                );
                assert_eq!(
                    stored.insert(record.event.event_id, record.run_seq),
                    None,
                    "no event is stored twice"
                );
            }
        }
        for (event_id, run_seq) in &self.acknowledged {
            assert_eq!(
                stored.get(event_id),
                Some(run_seq),
                "acknowledged event {event_id}"
            );
        }
    }
}

fn spawn(fixture: &RunStoreFixture) -> Child {
    let mut command = onward(&["state", "append", "--store", &fixture.url, "-"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn two_processes_append_to_the_same_runs_in_postgres() {
    append_from_two_processes(&RunStoreFixture::postgres());
}

#[test]
fn two_processes_append_to_the_same_runs_in_sqlite() {
    append_from_two_processes(&RunStoreFixture::sqlite());
}

/// Two processes append concurrently; each also sends events that the other sends.
fn append_from_two_processes(fixture: &RunStoreFixture) {
    let events = RunEventGenerator::new("shared").next_events(3_000);
    let first: Vec<RunEventWrite> = events
        .iter()
        .step_by(2)
        .chain(events.iter().take(1_000))
        .cloned()
        .collect();
    let second: Vec<RunEventWrite> = events
        .iter()
        .skip(1)
        .step_by(2)
        .chain(events.iter().take(1_000))
        .cloned()
        .collect();
    thread::scope(|scope| {
        for events in [&first, &second] {
            scope.spawn(move || {
                // Small portions, so that the processes alternate.
                for portion in events.chunks(100) {
                    let output = fixture.append(&[], &lines(portion));
                    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
                }
            });
        }
    });
    let verified = fixture.state(&["verify", "--json"]);
    assert_eq!(
        text(&verified.stdout),
        "{\"ok\":true,\"runs\":3,\"events\":3000,\"findings\":0}\n"
    );
}
