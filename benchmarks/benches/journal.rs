//! Benchmarks the journal: appending, recovering, encoding and reading. Also checks that the cost
//! per event does not grow with the length of the journal.
//!
//! `cargo bench -p onward-benchmarks --bench journal [-- --quick] [-- --gate 0.5]`

use std::hint::black_box;

use onward_base::{BoundedName, Payload, SharedText, Timestamp};
use onward_benchmarks::target_report::{
    TargetOptions, TargetReport, median_time, median_time_of, median_time_ratio,
};
use onward_journal::jsonl::{JournalLine, JournalLineReader};
use onward_journal::{
    AwaitKind, ComponentDigest, DeliveryGuarantee, ExecutionId, InvokeKind, JoinSetId, Journal,
    JournalCommand, JournalEvent, JournalState, PromiseId, codec,
};

const LONG: usize = 100_000;
const SHORT: usize = 100;

fn main() -> anyhow::Result<()> {
    let options = TargetOptions::from_args()?;
    let mut report = TargetReport::new("journal, one core, mixed workload", "events", options);
    let (commands, journal) = script(LONG);
    let events = journal.events().to_vec();
    let count = events.len();
    let id = journal.journal_state().execution_id();

    let copied = median_time(options, || events.clone());
    report.add_row("copy the events (baseline)", count, copied, None);
    let appended = median_time(options, || append(id, &events));
    report.add_row("append and validate", count, appended, Some(1e6));
    let handled = median_time(options, || handle(id, &commands));
    report.add_row(
        "commands: decide, validate, append",
        count,
        handled,
        Some(1e6),
    );
    let recovered = median_time_of(
        options,
        || events.clone(),
        |events| Journal::recover(id, events),
    );
    report.add_row(
        "recover: validate a recorded journal",
        count,
        recovered,
        Some(2e6),
    );

    let record = codec::encode_record(id, &events)?;
    let encoded = median_time(options, || codec::encode_record(id, &events));
    report.add_row("encode for storage", count, encoded, None);
    let decoded = median_time(options, || codec::decode_record(id, &record));
    report.add_row("decode from storage", count, decoded, None);
    let lines: Vec<String> = events
        .iter()
        .map(|event| JournalLine::new(event, id).to_string())
        .collect();
    let checked = median_time(options, || check(&lines));
    report.add_row(
        "journal check: read JSON Lines and validate",
        count,
        checked,
        None,
    );

    let (_, short) = script(SHORT);
    let repeats = count / short.events().len();
    let many_short = || (0..repeats).for_each(|_| drop(black_box(append(id, short.events()))));
    let one_long = || drop(black_box(append(id, &events)));
    let length_ratio = count as f64 / (repeats * short.events().len()) as f64;
    let ratio = median_time_ratio(options, many_short, one_long) / length_ratio;
    report.add_ratio("cost per event, 100,000 against 100 events", ratio, 1.5);
    println!(
        "storage: {:.1} bytes per event",
        record.len() as f64 / count as f64
    );
    report.finish()
}

/// A journal of about `length` events and the commands that produce it: sequences of tasks with an
/// occasional join of three tasks, a timer, a signal, clock reads and random numbers.
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
    script.handle(start);
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
    fn handle(&mut self, command: JournalCommand) -> PromiseId {
        let next = self.journal.journal_state().next_promise_id();
        self.journal
            .handle_command(command.clone(), Timestamp::EPOCH)
            .expect("the script is valid");
        self.commands.push(command);
        next
    }

    fn schedule(&mut self) -> PromiseId {
        let (kind, function_name) = (
            InvokeKind::Function,
            "charge_card".parse().expect("a valid name"),
        );
        self.handle(JournalCommand::ScheduleInvoke {
            kind,
            function_name,
            input: payload("{\"amount\":1299}"),
            retry_policy: None,
            delivery: DeliveryGuarantee::AtLeastOnce,
        })
    }

    fn finish(&mut self, promise: &PromiseId) {
        self.handle(JournalCommand::StartAttempt {
            promise: promise.clone(),
            performer: onward_journal::InvokePerformer::Owner,
        });
        self.handle(JournalCommand::CompleteAttempt {
            promise: promise.clone(),
            result: payload("{\"charge\":\"ch_1299\"}"),
        });
    }

    fn task(&mut self) {
        let promise = self.schedule();
        self.handle(JournalCommand::Await {
            waiting_on: vec![promise.clone()],
            kind: AwaitKind::Single,
        });
        self.finish(&promise);
        self.handle(JournalCommand::Resume);
    }

    fn join(&mut self) {
        let set = JoinSetId(self.handle(JournalCommand::CreateJoinSet));
        let members = [self.schedule(), self.schedule(), self.schedule()];
        for promise in &members {
            self.handle(JournalCommand::SubmitToJoinSet {
                set: set.clone(),
                promise: promise.clone(),
            });
        }
        for promise in members.iter().rev() {
            self.handle(JournalCommand::TakeNextResult {
                set: set.clone(),
                timeout: None,
            });
            self.finish(promise);
            self.handle(JournalCommand::Resume);
            self.handle(JournalCommand::TakeNextResult {
                set: set.clone(),
                timeout: None,
            });
        }
    }

    fn timer(&mut self) {
        self.handle(JournalCommand::ReadClock);
        self.handle(JournalCommand::GenerateRandom {
            value: [7; 16].into(),
        });
        let promise = self.handle(JournalCommand::ScheduleTimer { duration_ms: 0 });
        self.handle(JournalCommand::Await {
            waiting_on: vec![promise.clone()],
            kind: AwaitKind::Single,
        });
        self.handle(JournalCommand::FireTimer { promise });
        self.handle(JournalCommand::Resume);
    }

    fn signal(&mut self) {
        let signal_name: BoundedName = "approval".parse().expect("a valid name");
        let promise = self.handle(JournalCommand::AwaitSignal {
            signal_name: signal_name.clone(),
            timeout: None,
        });
        self.handle(JournalCommand::DeliverSignal {
            signal_name,
            payload: payload("{\"approved\":true}"),
        });
        self.handle(JournalCommand::ReceiveSignal { promise });
        self.handle(JournalCommand::Resume);
    }
}

fn payload(text: &str) -> Payload {
    Payload::parse(text).expect("valid JSON")
}

fn append(id: ExecutionId, events: &[JournalEvent]) -> Journal {
    let mut journal = Journal::new(id);
    for event in events {
        journal.append(event.clone()).expect("a valid event");
    }
    journal
}

fn handle(id: ExecutionId, commands: &[JournalCommand]) -> Journal {
    let mut journal = Journal::new(id);
    for command in commands {
        journal
            .handle_command(command.clone(), Timestamp::EPOCH)
            .expect("a valid event");
    }
    journal
}

fn check(lines: &[String]) -> JournalState {
    let mut reader = JournalLineReader::new();
    let mut state = JournalState::new(reader.execution_id());
    for line in lines {
        let event = reader.read_line(line).expect("a readable line");
        state.push_event(&event).expect("a valid event");
    }
    state
}
