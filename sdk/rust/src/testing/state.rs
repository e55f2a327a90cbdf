//! What an execution has under way, and what happens to it next. Time is virtual: it is whatever the next event says.

use std::collections::BTreeMap;

use crate::Error;
use crate::host::{Invocation, Local, Outcome};
use crate::retry::Retry;
use crate::testing::world::Signal;

pub(crate) struct State {
    /// Microseconds since 1970.
    pub(crate) now: i64,
    /// By number.
    pub(crate) operations: Vec<Operation>,
    /// The operations that are over, in the order in which they ended.
    pub(crate) ended: Vec<u32>,
    pub(crate) sets: BTreeMap<u32, Set>,
    /// In the order in which they come.
    pub(crate) mailbox: Vec<Signal>,
    pub(crate) cancel: Cancel,
    /// The input of the execution that takes this one's place.
    pub(crate) continued: Option<String>,
}

pub(crate) enum Operation {
    Invoke(Box<Invoke>),
    Timer {
        fires_at: i64,
        fired: bool,
    },
    /// Over as soon as it was asked for.
    Instant,
}

pub(crate) struct Invoke {
    pub(crate) invocation: Invocation,
    pub(crate) local: Local,
    pub(crate) attempt: u32,
    pub(crate) phase: Phase,
}

pub(crate) enum Phase {
    /// The next attempt starts then.
    Waits(i64),
    /// The attempt ends then, like this.
    Runs(i64, Outcome),
    Over(Outcome),
}

#[derive(Default)]
pub(crate) struct Set {
    pub(crate) members: Vec<u32>,
    pub(crate) taken: Vec<u32>,
    /// Whether a result was asked for.
    pub(crate) awaited: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancel {
    Never,
    At(i64),
    /// The next wait is told.
    Asked,
    Told,
}

/// What happens next.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Attempt(u32),
    AttemptEnd(u32),
    Fire(u32),
    /// A signal comes.
    Delivery,
    Cancel,
}

impl State {
    pub(crate) fn new(now: i64, mailbox: Vec<Signal>, cancel: Cancel) -> Self {
        Self { now, operations: Vec::new(), ended: Vec::new(), sets: BTreeMap::new(), mailbox, cancel, continued: None }
    }

    pub(crate) fn add(&mut self, operation: Operation) -> u32 {
        self.operations.push(operation);
        (self.operations.len() - 1) as u32
    }

    /// What the operation ended with, if it did.
    pub(crate) fn outcome(&self, promise: u32) -> Option<Outcome> {
        match self.operations.get(promise as usize)? {
            Operation::Invoke(invoke) => match &invoke.phase {
                Phase::Over(outcome) => Some(outcome.clone()),
                Phase::Waits(_) | Phase::Runs(..) => None,
            },
            Operation::Timer { fired, .. } => fired.then(|| Ok("null".to_owned())),
            Operation::Instant => Some(Err(Error::other("this operation cannot be waited for"))),
        }
    }

    pub(crate) fn invoke_mut(&mut self, promise: u32) -> Option<&mut Invoke> {
        match self.operations.get_mut(promise as usize)? {
            Operation::Invoke(invoke) => Some(invoke),
            Operation::Timer { .. } | Operation::Instant => None,
        }
    }

    /// The earliest event; of several at once, that of the operation that was asked for first.
    pub(crate) fn next_event(&self) -> Option<(i64, Event)> {
        let operations = (0..).zip(&self.operations).filter_map(|(number, operation)| operation.next_event(number));
        let later = self.mailbox.iter().filter(|signal| signal.at > self.now);
        let signals = later.map(|signal| (signal.at, Event::Delivery));
        let cancel = match self.cancel {
            Cancel::At(at) => Some((at, Event::Cancel)),
            Cancel::Never | Cancel::Asked | Cancel::Told => None,
        };
        // min_by_key keeps the first of equals.
        cancel.into_iter().chain(operations).chain(signals).min_by_key(|(at, _)| *at)
    }

    /// Ends the attempt: for good, or with another one to come.
    pub(crate) fn end_attempt(&mut self, promise: u32) {
        let now = self.now;
        let Some(invoke) = self.invoke_mut(promise) else { return };
        let Phase::Runs(_, outcome) = &invoke.phase else { return };
        let outcome = outcome.clone();
        match outcome {
            Err(error) if invoke.allows_retry(&error) => invoke.phase = Phase::Waits(now + invoke.wait_us()),
            outcome => self.end(promise, outcome),
        }
    }

    /// Ends an operation.
    pub(crate) fn end(&mut self, promise: u32, outcome: Outcome) {
        match self.operations.get_mut(promise as usize) {
            Some(Operation::Invoke(invoke)) => invoke.phase = Phase::Over(outcome),
            Some(Operation::Timer { fired, .. }) => *fired = true,
            Some(Operation::Instant) | None => return,
        }
        self.ended.push(promise);
    }
}

impl Operation {
    fn next_event(&self, number: u32) -> Option<(i64, Event)> {
        match self {
            Self::Invoke(invoke) => match invoke.phase {
                Phase::Waits(at) => Some((at, Event::Attempt(number))),
                Phase::Runs(at, _) => Some((at, Event::AttemptEnd(number))),
                Phase::Over(_) => None,
            },
            Self::Timer { fires_at, fired: false } => Some((*fires_at, Event::Fire(number))),
            Self::Timer { .. } | Self::Instant => None,
        }
    }
}

impl Invoke {
    /// What the engine does when a call says nothing: ten attempts of a task. A workflow that failed is not repeated.
    fn policy(&self) -> Retry {
        let child = self.local.is_some_and(|entry| entry.kind == crate::Kind::Workflow);
        let default = if child { Retry::never() } else { Retry::attempts(10) };
        self.invocation.retry.clone().unwrap_or(default)
    }

    fn allows_retry(&self, error: &Error) -> bool {
        let policy = self.policy();
        let more = policy.attempts_max == 0 || self.attempt < policy.attempts_max;
        error.retryable && more && !policy.final_kinds.contains(&error.kind)
    }

    /// The wait after this attempt, in microseconds. No jitter: tests are easier to read without.
    fn wait_us(&self) -> i64 {
        let policy = self.policy();
        let mut wait_ms = policy.first_wait_ms.min(policy.longest_wait_ms);
        for _ in 1..self.attempt {
            let longer = wait_ms.saturating_mul(policy.factor_permille.into()) / 1_000;
            if longer == wait_ms || wait_ms == policy.longest_wait_ms {
                break;
            }
            wait_ms = longer.min(policy.longest_wait_ms);
        }
        micros(wait_ms)
    }
}

pub(crate) fn micros(milliseconds: u64) -> i64 {
    i64::try_from(milliseconds).unwrap_or(i64::MAX / 1_000).saturating_mul(1_000)
}
