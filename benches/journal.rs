//! The journal's speed: appending, recovering, encoding and reading, and that none of it grows with the journal's length.
//! `cargo bench -p onward-benches --bench journal [-- --quick] [-- --gate 0.5]`

use std::hint::black_box;

use onward_benches::{Options, Report, median, median_of, median_ratio};
use onward_journal::jsonl::{Line, Reader};
use onward_journal::{
    AwaitKind, Command, ComponentDigest, Delivery, ExecutionId, Fold, InvokeKind, JoinSetId, Journal, JournalEvent,
    Name, Payload, PromiseId, Text, Timestamp, codec,
};

const LONG: usize = 100_000;
const SHORT: usize = 100;

fn main() -> anyhow::Result<()> {
    let options = Options::from_args()?;
    let mut report = Report::new("journal, one core, mixed workload", "events", options);
    let (commands, journal) = script(LONG);
    let events = journal.events().to_vec();
    let count = events.len();
    let id = journal.fold().execution();

    let copied = median(options, || events.clone());
    report.row("yardstick: copy the events, check nothing", count, copied, None);
    let appended = median(options, || append(id, &events));
    report.row("append and validate", count, appended, Some(1e6));
    let handled = median(options, || handle(id, &commands));
    report.row("commands: decide, validate, append", count, handled, Some(1e6));
    let recovered = median_of(options, || events.clone(), |events| Journal::recover(id, events));
    report.row("recover: validate a recorded journal", count, recovered, Some(2e6));

    let record = codec::encode(id, &events)?;
    let encoded = median(options, || codec::encode(id, &events));
    report.row("encode for storage", count, encoded, None);
    let decoded = median(options, || codec::decode(id, &record));
    report.row("decode from storage", count, decoded, None);
    let lines: Vec<String> = events.iter().map(|event| Line::new(event, id).to_string()).collect();
    let judged = median(options, || judge(&lines));
    report.row("journal check: read JSON Lines and validate", count, judged, None);

    let (_, short) = script(SHORT);
    let repeats = count / short.events().len();
    let many_short = || (0..repeats).for_each(|_| drop(black_box(append(id, short.events()))));
    let one_long = || drop(black_box(append(id, &events)));
    let fair = count as f64 / (repeats * short.events().len()) as f64;
    let ratio = median_ratio(options, many_short, one_long) / fair;
    report.ratio("cost per event, 100,000 against 100 events", ratio, 1.5);
    println!("storage: {:.1} bytes an event", record.len() as f64 / count as f64);
    report.finish()
}

/// A journal of about `length` events and the commands that made it: chains of tasks with, now and then, a join of
/// three, a timer, a signal, time and randomness.
fn script(length: usize) -> (Vec<Command>, Journal) {
    let component_digest = ComponentDigest::of(b"bench");
    let id = ExecutionId::derive(&component_digest, None, "bench");
    let input = payload("{\"order\":42,\"customer\":\"c-17\"}");
    let start = Command::Start { component_digest, input, parent: None, key: Some(Text::from("bench")) };
    let mut script = Script { commands: Vec::new(), journal: Journal::new(id) };
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
    commands: Vec<Command>,
    journal: Journal,
}

impl Script {
    fn say(&mut self, command: Command) -> PromiseId {
        let next = self.journal.fold().next_child();
        self.journal.handle(command.clone(), Timestamp::EPOCH).expect("the script is legal");
        self.commands.push(command);
        next
    }

    fn schedule(&mut self) -> PromiseId {
        let (kind, function_name) = (InvokeKind::Function, "charge_card".parse().expect("a name"));
        self.say(Command::Schedule {
            kind,
            function_name,
            input: payload("{\"amount\":1299}"),
            retry_policy: None,
            delivery: Delivery::AtLeastOnce,
        })
    }

    fn finish(&mut self, promise: &PromiseId) {
        self.say(Command::StartAttempt { promise: promise.clone(), performer: onward_journal::Performer::Owner });
        self.say(Command::CompleteAttempt { promise: promise.clone(), result: payload("{\"charge\":\"ch_1299\"}") });
    }

    fn task(&mut self) {
        let promise = self.schedule();
        self.say(Command::Await { waiting_on: vec![promise.clone()], kind: AwaitKind::Single });
        self.finish(&promise);
        self.say(Command::Resume);
    }

    fn join(&mut self) {
        let set = JoinSetId(self.say(Command::CreateJoinSet));
        let members = [self.schedule(), self.schedule(), self.schedule()];
        for promise in &members {
            self.say(Command::Submit { set: set.clone(), promise: promise.clone() });
        }
        for promise in members.iter().rev() {
            self.say(Command::Next { set: set.clone(), timeout: None });
            self.finish(promise);
            self.say(Command::Resume);
            self.say(Command::Next { set: set.clone(), timeout: None });
        }
    }

    fn timer(&mut self) {
        self.say(Command::ReadClock);
        self.say(Command::Random { value: [7; 16].into() });
        let promise = self.say(Command::Sleep { duration_ms: 0 });
        self.say(Command::Await { waiting_on: vec![promise.clone()], kind: AwaitKind::Single });
        self.say(Command::FireTimer { promise });
        self.say(Command::Resume);
    }

    fn signal(&mut self) {
        let signal_name: Name = "approval".parse().expect("a name");
        let promise = self.say(Command::AwaitSignal { signal_name: signal_name.clone(), timeout: None });
        self.say(Command::DeliverSignal { signal_name, payload: payload("{\"approved\":true}") });
        self.say(Command::ReceiveSignal { promise });
        self.say(Command::Resume);
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

fn handle(id: ExecutionId, commands: &[Command]) -> Journal {
    let mut journal = Journal::new(id);
    for command in commands {
        journal.handle(command.clone(), Timestamp::EPOCH).expect("legal");
    }
    journal
}

fn judge(lines: &[String]) -> Fold {
    let mut reader = Reader::new();
    let mut fold = Fold::new(reader.execution());
    for line in lines {
        let event = reader.read(line).expect("readable");
        fold.push(&event).expect("legal");
    }
    fold
}
