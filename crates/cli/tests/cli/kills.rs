//! kill -9 while appending, again and again: what was acknowledged is there, once, where it was
//! said to be.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::sync::mpsc;
use std::thread;

use onward_runs::{AppendResult, RunEventId, RunEventRecord, RunEventWrite, RunSeq};
use onward_testing::RunEventGenerator;

use crate::state::{Place, lines};
use crate::{onward, text};

/// Kills a test makes unless told otherwise; `ONWARD_KILLS` multiplies them.
pub(crate) fn kills(usual: usize) -> usize {
    let times: usize = std::env::var("ONWARD_KILLS")
        .ok()
        .and_then(|times| times.parse().ok())
        .unwrap_or(1);
    usual * times
}

#[test]
fn sqlite_keeps_every_acknowledged_event_through_kills() {
    survive(&Place::sqlite(), kills(200));
}

#[test]
fn postgres_keeps_every_acknowledged_event_through_kills() {
    survive(&Place::postgres(), kills(50));
}

/// What the test knows: what it sent, and what it was told is durable.
struct Ledger {
    events: RunEventGenerator,
    unanswered: Vec<RunEventWrite>,
    acknowledged: BTreeMap<RunEventId, RunSeq>,
    sent: Vec<RunEventWrite>,
}

fn survive(place: &Place, kills: usize) {
    let mut ledger = Ledger {
        events: RunEventGenerator::new("killed"),
        unanswered: Vec::new(),
        acknowledged: BTreeMap::new(),
        sent: Vec::new(),
    };
    let mut lost_answers = 0;
    for round in 0..kills {
        // 1 to 120 answers, in an order that is the same in every run of the test.
        let answers = 1 + (round * 7919) % 120;
        ledger.round(place, answers);
        lost_answers += ledger.unanswered.len();
    }
    assert!(
        ledger.acknowledged.len() > kills,
        "every round made progress"
    );
    assert!(
        lost_answers > kills,
        "the kills came while events were under way"
    );
    ledger.check(place);
}

impl Ledger {
    /// Sends what is open and more, kills the process after so many answers, and takes down what it
    /// still had said.
    fn round(&mut self, place: &Place, answers: usize) {
        let fresh = self.events.next_events(150);
        self.sent.extend(fresh.iter().cloned());
        self.unanswered.extend(fresh);
        let mut child = spawn(place);
        let mut stdin = child.stdin.take().unwrap();
        let input = lines(&self.unanswered);
        let writer = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
        let (sender, told) = mpsc::channel();
        let stdout = child.stdout.take().unwrap();
        let reader = thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                drop(sender.send(line));
            }
        });
        let mut heard: Vec<String> = told.iter().take(answers).collect();
        child.kill().unwrap();
        child.wait().unwrap();
        writer.join().unwrap();
        reader.join().unwrap();
        heard.extend(told.try_iter());
        self.take_down(&heard);
    }

    /// A killed process may have written half a line; whole ones are promises.
    fn take_down(&mut self, heard: &[String]) {
        let read: Vec<_> = heard
            .iter()
            .map(|line| AppendResult::from_json(line))
            .collect();
        assert!(
            read.iter().rev().skip(1).all(Result::is_ok),
            "only the last line can be half a line"
        );
        let whole: Vec<AppendResult> = read.into_iter().filter_map(Result::ok).collect();
        for (answer, event) in whole.iter().zip(&self.unanswered) {
            assert_eq!(
                answer.event_id, event.event_id,
                "answers come in the order of the lines"
            );
            self.acknowledged.insert(answer.event_id, answer.run_seq);
        }
        self.unanswered.drain(..whole.len());
    }

    fn check(&self, place: &Place) {
        let verified = place.state(&["verify"]);
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
            let output = place.state(&["events", run, "--limit", "10000"]);
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
                    "nothing is there twice"
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

fn spawn(place: &Place) -> Child {
    let mut command = onward(&["state", "append", "--store", &place.url, "-"]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn two_processes_append_to_the_same_runs_in_postgres() {
    two_processes(&Place::postgres());
}

#[test]
fn two_processes_append_to_the_same_runs_in_sqlite() {
    two_processes(&Place::sqlite());
}

/// Half of what each process sends is sent by the other as well.
fn two_processes(place: &Place) {
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
                // In small pieces, so that the two really alternate.
                for piece in events.chunks(100) {
                    let output = place.append(&[], &lines(piece));
                    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
                }
            });
        }
    });
    let verified = place.state(&["verify", "--json"]);
    assert_eq!(
        text(&verified.stdout),
        "{\"ok\":true,\"runs\":3,\"events\":3000,\"findings\":0}\n"
    );
}
