//! The journal's speed: appending, recovering, encoding and reading, and that none of it grows with
//! the journal's length. `cargo bench -p onward-benches --bench journal [-- --quick] [-- --gate
//! 0.5]`

use std::hint::black_box;

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_benches::{Options, Report, median, median_of, median_ratio};
use onward_journal::jsonl::{JournalLine, JournalLineReader};
use onward_journal::{
    AwaitKind, ComponentDigest, DeliveryGuarantee, ExecutionId, InvokeKind, JoinSetId, Journal,
    JournalCommand, JournalEvent, JournalState, PromiseId, codec,
};

const LONG: usize = 100_000;
const SHORT: usize = 100;

fn main() -> anyhow::Result<()> {
    let options = Options::from_args()?;
    let mut report = Report::new("journal, one core, mixed workload", "events", options);
    let (commands, journal) = script(LONG);
    let events = journal.events().to_vec();
    let count = events.len();
    let id = journal.journal_state().execution_id();

    let copied = median(options, || events.clone());
    report.row(
        "yardstick: copy the events, check nothing",
        count,
        copied,
        None,
    );
    let appended = median(options, || append(id, &events));
    report.row("append and validate", count, appended, Some(1e6));
    let handled = median(options, || handle(id, &commands));
    report.row(
        "commands: decide, validate, append",
        count,
        handled,
        Some(1e6),
    );
    let recovered = median_of(
        options,
        || events.clone(),
        |events| Journal::recover(id, events),
    );
    report.row(
        "recover: validate a recorded journal",
        count,
        recovered,
        Some(2e6),
    );

    let record = codec::encode_record(id, &events)?;
    let encoded = median(options, || codec::encode_record(id, &events));
    report.row("encode for storage", count, encoded, None);
    let decoded = median(options, || codec::decode_record(id, &record));
    report.row("decode from storage", count, decoded, None);
    let lines: Vec<String> = events
        .iter()
        .map(|event| JournalLine::new(event, id).to_string())
        .collect();
    let judged = median(options, || judge(&lines));
    report.row(
        "journal check: read JSON Lines and validate",
        count,
        judged,
        None,
    );

    let (_, short) = script(SHORT);
    let repeats = count / short.events().len();
    let many_short = || (0..repeats).for_each(|_| drop(black_box(append(id, short.events()))));
    let one_long = || drop(black_box(append(id, &events)));
    let fair = count as f64 / (repeats * short.events().len()) as f64;
    let ratio = median_ratio(options, many_short, one_long) / fair;
    report.ratio("cost per event, 100,000 against 100 events", ratio, 1.5);
    println!(
        "storage: {:.1} bytes an event",
        record.len() as f64 / count as f64
    );
    report.finish()
}

/// A journal of about `length` events and the commands that made it: chains of tasks with, now and
/// then, a join of three, a timer, a signal, time and randomness.
fn script(length: usize) -> (Vec<JournalCommand>, Journal) {
    let component_digest = ComponentDigest::from_component(b"bench");
    let id = ExecutionId::derive(&component_digest, None, "bench");
    let input = payload("{\"order\":42,\"customer\":\"c-17\"}");
    let start = JournalCommand::Start {
        component_digest,
        input,
        parent: None,
        key: Some(SharedText::from("bench")),
    };
    let mut script = Script {
        commands: Vec::new(),
        journal: Journal::new(id),
    };
    script.say(start);
    for step in 0.. {
        if script.journal.events().len() >= length {
            break;
        }
        match step % 8 {
            3 => script.join(),
            5 => script.timer(),
            7 => script.signal(),
            _ => script.task(),
        }
    }
    (script.commands, script.journal)
}

struct Script {
    commands: Vec<JournalCommand>,
    journal: Journal,
}

impl Script {
    fn say(&mut self, command: JournalCommand) -> PromiseId {
        let next = self.journal.journal_state().next_promise_id();
        self.journal
            .handle_command(command.clone(), Timestamp::EPOCH)
            .expect("the script is legal");
        self.commands.push(command);
        next
    }

    fn schedule(&mut self) -> PromiseId {
        let (kind, function_name) = (InvokeKind::Function, "charge_card".parse().expect("a name"));
        self.say(JournalCommand::ScheduleInvoke {
            kind,
            function_name,
            input: payload("{\"amount\":1299}"),
            retry_policy: None,
            delivery: DeliveryGuarantee::AtLeastOnce,
        })
    }

    fn finish(&mut self, promise: &PromiseId) {
        self.say(JournalCommand::StartAttempt {
            promise: promise.clone(),
            performer: onward_journal::InvokePerformer::Owner,
        });
        self.say(JournalCommand::CompleteAttempt {
            promise: promise.clone(),
            result: payload("{\"charge\":\"ch_1299\"}"),
        });
    }

    fn task(&mut self) {
        let promise = self.schedule();
        self.say(JournalCommand::Await {
            waiting_on: vec![promise.clone()],
            kind: AwaitKind::Single,
        });
        self.finish(&promise);
        self.say(JournalCommand::Resume);
    }

    fn join(&mut self) {
        let set = JoinSetId(self.say(JournalCommand::CreateJoinSet));
        let members = [self.schedule(), self.schedule(), self.schedule()];
        for promise in &members {
            self.say(JournalCommand::SubmitToJoinSet {
                set: set.clone(),
                promise: promise.clone(),
            });
        }
        for promise in members.iter().rev() {
            self.say(JournalCommand::TakeNextResult {
                set: set.clone(),
                timeout: None,
            });
            self.finish(promise);
            self.say(JournalCommand::Resume);
            self.say(JournalCommand::TakeNextResult {
                set: set.clone(),
                timeout: None,
            });
        }
    }

    fn timer(&mut self) {
        self.say(JournalCommand::ReadClock);
        self.say(JournalCommand::GenerateRandom {
            value: [7; 16].into(),
        });
        let promise = self.say(JournalCommand::ScheduleTimer { duration_ms: 0 });
        self.say(JournalCommand::Await {
            waiting_on: vec![promise.clone()],
            kind: AwaitKind::Single,
        });
        self.say(JournalCommand::FireTimer { promise });
        self.say(JournalCommand::Resume);
    }

    fn signal(&mut self) {
        let signal_name: BoundedName = "approval".parse().expect("a name");
        let promise = self.say(JournalCommand::AwaitSignal {
            signal_name: signal_name.clone(),
            timeout: None,
        });
        self.say(JournalCommand::DeliverSignal {
            signal_name,
            payload: payload("{\"approved\":true}"),
        });
        self.say(JournalCommand::ReceiveSignal { promise });
        self.say(JournalCommand::Resume);
    }
}

fn payload(text: &str) -> Payload {
    Payload::parse(text).expect("JSON")
}

fn append(id: ExecutionId, events: &[JournalEvent]) -> Journal {
    let mut journal = Journal::new(id);
    for event in events {
        journal.append(event.clone()).expect("legal");
    }
    journal
}

fn handle(id: ExecutionId, commands: &[JournalCommand]) -> Journal {
    let mut journal = Journal::new(id);
    for command in commands {
        journal
            .handle_command(command.clone(), Timestamp::EPOCH)
            .expect("legal");
    }
    journal
}

fn judge(lines: &[String]) -> JournalState {
    let mut reader = JournalLineReader::new();
    let mut fold = JournalState::new(reader.execution_id());
    for line in lines {
        let event = reader.read_line(line).expect("readable");
        fold.push_event(&event).expect("legal");
    }
    fold
}
