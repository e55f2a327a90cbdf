//! The operations of an execution, and its next event. Time is virtual: it advances to the time of
//! the next event.

use std::collections::BTreeMap;

use crate::Error;
use crate::function::Kind;
use crate::host::{Invocation, Local, Outcome};
use crate::retry::Retry;
use crate::testing::protocol::Ask;
use crate::testing::world::Signal;

/// Default timeout of a task in milliseconds.
const TASK_LIMIT_MS: u64 = 60_000;

pub(crate) struct State {
    /// By number.
    pub(crate) operations: Vec<Operation>,
    /// The operations that ended, in the order in which they ended.
    pub(crate) ended: Vec<u32>,
    pub(crate) sets: BTreeMap<u32, Set>,
    /// In order of arrival.
    pub(crate) mailbox: Vec<Signal>,
    pub(crate) cancel: Cancel,
    /// The open wait of the workflow.
    pub(crate) open: Option<Open>,
    /// The input of the successor.
    pub(crate) continued: Option<String>,
    pub(crate) is_over: bool,
}

pub(crate) enum Operation {
    Invoke(Box<Invoke>),
    Timer {
        fires_at: i64,
        fired: bool,
    },
    /// An operation that cannot be awaited.
    Other,
}

pub(crate) struct Invoke {
    pub(crate) invocation: Invocation,
    pub(crate) local: Local,
    pub(crate) attempt: u32,
    pub(crate) phase: Phase,
}

pub(crate) enum Phase {
    /// The next attempt starts at this time.
    Waits(i64),
    /// The attempt ends at this time, with this outcome.
    Runs(i64, Outcome),
    /// The execution with this index performs it, at most until `limit`.
    Child {
        place: usize,
        limit: Option<i64>,
    },
    Over(Outcome),
}

#[derive(Default)]
pub(crate) struct Set {
    pub(crate) members: Vec<u32>,
    /// The members whose result was taken.
    pub(crate) taken: Vec<u32>,
}

/// An open wait.
pub(crate) struct Open {
    pub(crate) ask: Ask,
    /// The timer of its timeout.
    pub(crate) timer: Option<u32>,
}

/// State of cancellation, with its reason.
#[derive(Clone)]
pub(crate) enum Cancel {
    Never,
    At(i64),
    /// Requested; the next wait reports it.
    Requested(String),
    Reported(String),
}

/// An event of the simulation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Event {
    Attempt(u32),
    AttemptEnd(u32),
    /// The timeout of a child expires.
    Overdue(u32),
    Fire(u32),
    /// A signal arrives.
    Delivery,
    Cancel,
}

impl State {
    pub(crate) fn new(mailbox: Vec<Signal>, cancel: Cancel) -> Self {
        Self {
            operations: Vec::new(),
            ended: Vec::new(),
            sets: BTreeMap::new(),
            mailbox,
            cancel,
            open: None,
            continued: None,
            is_over: false,
        }
    }

    pub(crate) fn add(&mut self, operation: Operation) -> u32 {
        self.operations.push(operation);
        (self.operations.len() - 1) as u32
    }

    pub(crate) fn add_timer(&mut self, duration_ms: u64, now: i64) -> u32 {
        self.add(Operation::Timer {
            fires_at: now.saturating_add(micros(duration_ms)),
            fired: false,
        })
    }

    /// Outcome of the operation, if it ended.
    pub(crate) fn outcome(&self, promise: u32) -> Option<Outcome> {
        match self.operations.get(promise as usize)? {
            Operation::Invoke(invoke) => match &invoke.phase {
                Phase::Over(outcome) => Some(outcome.clone()),
                Phase::Waits(_) | Phase::Runs(..) | Phase::Child { .. } => None,
            },
            Operation::Timer { fired, .. } => fired.then(|| Ok("null".to_owned())),
            Operation::Other => None,
        }
    }

    pub(crate) fn invoke_mut(&mut self, promise: u32) -> Option<&mut Invoke> {
        match self.operations.get_mut(promise as usize)? {
            Operation::Invoke(invoke) => Some(invoke),
            Operation::Timer { .. } | Operation::Other => None,
        }
    }

    /// The invocations, by number.
    pub(crate) fn invokes(&self) -> impl Iterator<Item = (u32, &Invoke)> {
        (0..)
            .zip(&self.operations)
            .filter_map(|(number, operation)| match operation {
                Operation::Invoke(invoke) => Some((number, &**invoke)),
                Operation::Timer { .. } | Operation::Other => None,
            })
    }

    /// Index of the oldest buffered signal of this name.
    pub(crate) fn signal(&self, name: &str, now: i64) -> Option<usize> {
        self.mailbox
            .iter()
            .position(|signal| signal.name == name && signal.at <= now)
    }

    /// The execution that performs the operation, if one does.
    pub(crate) fn performer_mut(&mut self, promise: u32) -> Option<&mut usize> {
        match &mut self.invoke_mut(promise)?.phase {
            Phase::Child { place, .. } => Some(place),
            Phase::Waits(_) | Phase::Runs(..) | Phase::Over(_) => None,
        }
    }

    /// The earliest event; of several at the same time, that of the first operation. Timers fire
    /// before timeouts expire.
    pub(crate) fn next_event(&self, now: i64) -> Option<(i64, Event)> {
        if self.is_over {
            return None;
        }
        let cancel = match self.cancel {
            Cancel::At(at) => Some((at, Event::Cancel)),
            Cancel::Never | Cancel::Requested(_) | Cancel::Reported(_) => None,
        };
        let later = self.mailbox.iter().filter(|signal| signal.at > now);
        let signals = later.map(|signal| (signal.at, Event::Delivery));
        let operations = (0..)
            .zip(&self.operations)
            .filter_map(|(number, operation)| operation.next_event(number));
        let overdue = self
            .invokes()
            .filter_map(|(number, invoke)| match invoke.phase {
                Phase::Child { limit, .. } => Some((limit?, Event::Overdue(number))),
                Phase::Waits(_) | Phase::Runs(..) | Phase::Over(_) => None,
            });
        // min_by_key keeps the first of equals.
        cancel
            .into_iter()
            .chain(signals)
            .chain(operations)
            .chain(overdue)
            .min_by_key(|(at, _)| *at)
    }

    /// Ends an attempt; retries it if the policy allows.
    pub(crate) fn end_attempt(&mut self, promise: u32, outcome: Outcome, now: i64) {
        let Some(invoke) = self.invoke_mut(promise) else {
            return;
        };
        match outcome {
            Err(error) if invoke.allows_retry(&error) => {
                invoke.phase = Phase::Waits(now.saturating_add(invoke.wait_us()));
            }
            outcome => self.end(promise, outcome),
        }
    }

    /// Ends an operation.
    pub(crate) fn end(&mut self, promise: u32, outcome: Outcome) {
        match self.operations.get_mut(promise as usize) {
            Some(Operation::Invoke(invoke)) => invoke.phase = Phase::Over(outcome),
            Some(Operation::Timer { fired, .. }) => *fired = true,
            Some(Operation::Other) | None => return,
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
                Phase::Child { .. } | Phase::Over(_) => None,
            },
            Self::Timer {
                fires_at,
                fired: false,
            } => Some((*fires_at, Event::Fire(number))),
            Self::Timer { .. } | Self::Other => None,
        }
    }
}

impl Invoke {
    pub(crate) fn is_workflow(&self) -> bool {
        self.local.is_some_and(|entry| entry.kind == Kind::Workflow)
    }

    /// Timeout of an attempt in microseconds. Default: none for a child.
    pub(crate) fn limit_us(&self) -> Option<i64> {
        let usual = self
            .local
            .filter(|entry| entry.kind == Kind::Task)
            .map(|_| TASK_LIMIT_MS);
        self.invocation.timeout_ms.or(usual).map(micros)
    }

    /// The retry policy; the default of the engine is the same for every kind of call.
    fn policy(&self) -> Retry {
        self.invocation
            .retry
            .clone()
            .unwrap_or_else(|| Retry::attempts(Retry::DEFAULT_ATTEMPTS))
    }

    fn allows_retry(&self, error: &Error) -> bool {
        let policy = self.policy();
        let more = policy.attempts_max == 0 || self.attempt < policy.attempts_max;
        error.retryable && more && !policy.final_kinds.contains(&error.kind)
    }

    /// Backoff after this attempt in microseconds, without jitter, so that tests are predictable.
    fn wait_us(&self) -> i64 {
        let policy = self.policy();
        let mut wait_ms = policy.first_wait_ms;
        for _ in 1..self.attempt {
            let longer = wait_ms
                .saturating_mul(policy.factor_permille.into())
                .div_ceil(1_000);
            if wait_ms >= policy.longest_wait_ms || longer == wait_ms {
                break;
            }
            wait_ms = longer;
        }
        micros(wait_ms.min(policy.longest_wait_ms))
    }
}

pub(crate) fn micros(milliseconds: u64) -> i64 {
    i64::try_from(milliseconds)
        .unwrap_or(i64::MAX / 1_000)
        .saturating_mul(1_000)
}
