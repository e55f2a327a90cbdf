//! Fixture for the tests of commands: a journal with a clock, and short constructors of commands.

use expect_test::Expect;
use onward_base::Timestamp;
use onward_journal::{
    AwaitKind, DeliveryGuarantee, ErrorKind, ExecutionError, ExecutionId, InvokeKind,
    InvokePerformer, Journal, JournalCommand, RetryPolicy,
};

use super::script::*;

/// A journal under test and its clock.
pub(crate) struct Dialogue {
    pub(crate) journal: Journal,
    pub(crate) now: Timestamp,
    pub(crate) transcript: String,
}

impl Dialogue {
    pub(crate) fn begin() -> Self {
        let mut journal = Journal::new(own());
        for event in record(&[started()]) {
            journal.append(event).unwrap();
        }
        Self {
            journal,
            now: Timestamp::EPOCH,
            transcript: String::new(),
        }
    }

    pub(crate) fn at(&mut self, ms: u64) -> &mut Self {
        self.now = Timestamp::EPOCH.plus_ms(ms);
        self
    }

    /// Writes down what the command records, or which rule refuses it.
    pub(crate) fn ask(&mut self, command: JournalCommand) -> &mut Self {
        match self.journal.handle_command(command, self.now) {
            Ok(events) => {
                let state = self.journal.execution_state().unwrap();
                let text: Vec<String> = events
                    .iter()
                    .map(|event| event.event.describe(own()).to_string())
                    .collect();
                self.transcript += &format!("{} → {state}\n", text.join(", "));
            }
            Err(violation) => {
                self.transcript += &format!("{}: {}\n", violation.rule, violation.message)
            }
        }
        self
    }

    pub(crate) fn assert_transcript(&self, expected: &Expect) {
        expected.assert_eq(&self.transcript);
    }
}

pub(crate) fn schedule(policy: Option<RetryPolicy>) -> JournalCommand {
    let (kind, function_name) = (InvokeKind::Function, name("task"));
    let (retry_policy, delivery) = (policy.map(Box::new), DeliveryGuarantee::AtLeastOnce);
    JournalCommand::ScheduleInvoke {
        kind,
        function_name,
        input: payload(0),
        retry_policy,
        delivery,
    }
}

pub(crate) fn start(number: u32) -> JournalCommand {
    JournalCommand::StartAttempt {
        promise: promise(number),
        performer: InvokePerformer::Owner,
    }
}

pub(crate) fn finish(number: u32, value: u32) -> JournalCommand {
    JournalCommand::CompleteAttempt {
        promise: promise(number),
        result: payload(value),
    }
}

pub(crate) fn fail_attempt(number: u32, kind: ErrorKind) -> JournalCommand {
    JournalCommand::FailAttempt {
        promise: promise(number),
        error: ExecutionError::new(kind, "no"),
        entropy: 0,
    }
}

pub(crate) fn give_up(number: u32) -> JournalCommand {
    JournalCommand::GiveUpInvoke {
        promise: promise(number),
        error: error("in doubt").into_permanent(),
    }
}

/// The next result of set 0, waited for until the timer of that number fires.
pub(crate) fn next(timeout: Option<u32>) -> JournalCommand {
    JournalCommand::TakeNextResult {
        set: set(0),
        timeout: timeout.map(promise),
    }
}

pub(crate) fn complete_with(continued_as: Option<ExecutionId>) -> JournalCommand {
    JournalCommand::Complete {
        result: payload(0),
        continued_as,
    }
}

pub(crate) fn wait(kind: AwaitKind, numbers: &[u32]) -> JournalCommand {
    JournalCommand::Await {
        waiting_on: numbers.iter().map(|number| promise(*number)).collect(),
        kind,
    }
}
