//! The operations of an execution, and its next event. Time is virtual: it advances to the time of
//! the next event.

use std::collections::BTreeMap;

use crate::Error;
use crate::function::FunctionKind;
use crate::host::{Invocation, LocalFunction, Outcome};
use crate::retry::RetryPolicy;
use crate::testing::protocol::HostRequest;
use crate::testing::simulation::ScriptedSignal;

/// Default timeout of a task in milliseconds.
const TASK_LIMIT_MS: u64 = 60_000;

pub(crate) struct SimulatedState {
    /// By number.
    pub(crate) operations: Vec<SimulatedOperation>,
    /// The operations that ended, in the order in which they ended.
    pub(crate) ended: Vec<u32>,
    pub(crate) sets: BTreeMap<u32, JoinSetMembers>,
    /// In order of arrival.
    pub(crate) mailbox: Vec<ScriptedSignal>,
    pub(crate) cancel: CancelState,
    /// The open wait of the workflow.
    pub(crate) open: Option<OpenWait>,
    /// The input of the successor.
    pub(crate) continued: Option<String>,
    pub(crate) is_over: bool,
}

pub(crate) enum SimulatedOperation {
    Invoke(Box<SimulatedInvocation>),
    Timer {
        fires_at: i64,
        fired: bool,
    },
    /// An operation that cannot be awaited.
    Other,
}

pub(crate) struct SimulatedInvocation {
    pub(crate) invocation: Invocation,
    pub(crate) local: LocalFunction,
    pub(crate) attempt: u32,
    pub(crate) phase: InvocationPhase,
}

pub(crate) enum InvocationPhase {
    /// The next attempt starts at this time.
    Waits(i64),
    /// The attempt ends at this time, with this outcome.
    Runs(i64, Outcome),
    /// The execution with this index performs it, at most until `limit`.
    Child {
        index: usize,
        limit: Option<i64>,
    },
    Over(Outcome),
}

#[derive(Default)]
pub(crate) struct JoinSetMembers {
    pub(crate) members: Vec<u32>,
    /// The members whose result was taken.
    pub(crate) taken: Vec<u32>,
}

/// An open wait.
pub(crate) struct OpenWait {
    pub(crate) request: HostRequest,
    /// The timer of its timeout.
    pub(crate) timer: Option<u32>,
}

/// State of cancellation, with its reason.
#[derive(Clone)]
pub(crate) enum CancelState {
    Never,
    At(i64),
    /// Requested; the next wait reports it.
    Requested(String),
    Reported(String),
}

/// An event of the simulation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum SimulationEvent {
    Attempt(u32),
    AttemptEnd(u32),
    /// The timeout of a child expires.
    Overdue(u32),
    Fire(u32),
    /// A signal arrives.
    Delivery,
    Cancel,
}

impl SimulatedState {
    pub(crate) fn new(mailbox: Vec<ScriptedSignal>, cancel: CancelState) -> Self {
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

    pub(crate) fn add_operation(&mut self, operation: SimulatedOperation) -> u32 {
        self.operations.push(operation);
        (self.operations.len() - 1) as u32
    }

    pub(crate) fn add_timer(&mut self, duration_ms: u64, now: i64) -> u32 {
        self.add_operation(SimulatedOperation::Timer {
            fires_at: now.saturating_add(to_micros(duration_ms)),
            fired: false,
        })
    }

    /// Outcome of the operation, if it ended.
    pub(crate) fn outcome_of(&self, promise: u32) -> Option<Outcome> {
        match self.operations.get(promise as usize)? {
            SimulatedOperation::Invoke(invoke) => match &invoke.phase {
                InvocationPhase::Over(outcome) => Some(outcome.clone()),
                InvocationPhase::Waits(_)
                | InvocationPhase::Runs(..)
                | InvocationPhase::Child { .. } => None,
            },
            SimulatedOperation::Timer { fired, .. } => fired.then(|| Ok("null".to_owned())),
            SimulatedOperation::Other => None,
        }
    }

    pub(crate) fn invoke_mut(&mut self, promise: u32) -> Option<&mut SimulatedInvocation> {
        match self.operations.get_mut(promise as usize)? {
            SimulatedOperation::Invoke(invoke) => Some(invoke),
            SimulatedOperation::Timer { .. } | SimulatedOperation::Other => None,
        }
    }

    /// The invocations, by number.
    pub(crate) fn invocations(&self) -> impl Iterator<Item = (u32, &SimulatedInvocation)> {
        (0..)
            .zip(&self.operations)
            .filter_map(|(number, operation)| match operation {
                SimulatedOperation::Invoke(invoke) => Some((number, &**invoke)),
                SimulatedOperation::Timer { .. } | SimulatedOperation::Other => None,
            })
    }

    /// Index of the oldest buffered signal of this name.
    pub(crate) fn buffered_signal(&self, name: &str, now: i64) -> Option<usize> {
        self.mailbox
            .iter()
            .position(|signal| signal.name == name && signal.at <= now)
    }

    /// The execution that performs the operation, if one does.
    pub(crate) fn performer_mut(&mut self, promise: u32) -> Option<&mut usize> {
        match &mut self.invoke_mut(promise)?.phase {
            InvocationPhase::Child { index, .. } => Some(index),
            InvocationPhase::Waits(_) | InvocationPhase::Runs(..) | InvocationPhase::Over(_) => {
                None
            }
        }
    }

    /// The earliest event; of several at the same time, that of the first operation. Timers fire
    /// before timeouts expire.
    pub(crate) fn next_event(&self, now: i64) -> Option<(i64, SimulationEvent)> {
        if self.is_over {
            return None;
        }
        let cancel = match self.cancel {
            CancelState::At(at) => Some((at, SimulationEvent::Cancel)),
            CancelState::Never | CancelState::Requested(_) | CancelState::Reported(_) => None,
        };
        let later = self.mailbox.iter().filter(|signal| signal.at > now);
        let signals = later.map(|signal| (signal.at, SimulationEvent::Delivery));
        let operations = (0..)
            .zip(&self.operations)
            .filter_map(|(number, operation)| operation.next_event(number));
        let overdue = self
            .invocations()
            .filter_map(|(number, invoke)| match invoke.phase {
                InvocationPhase::Child { limit, .. } => {
                    Some((limit?, SimulationEvent::Overdue(number)))
                }
                InvocationPhase::Waits(_)
                | InvocationPhase::Runs(..)
                | InvocationPhase::Over(_) => None,
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
                invoke.phase = InvocationPhase::Waits(now.saturating_add(invoke.backoff_us()));
            }
            outcome => self.record_end(promise, outcome),
        }
    }

    /// Ends an operation.
    pub(crate) fn record_end(&mut self, promise: u32, outcome: Outcome) {
        match self.operations.get_mut(promise as usize) {
            Some(SimulatedOperation::Invoke(invoke)) => {
                invoke.phase = InvocationPhase::Over(outcome)
            }
            Some(SimulatedOperation::Timer { fired, .. }) => *fired = true,
            Some(SimulatedOperation::Other) | None => return,
        }
        self.ended.push(promise);
    }
}

impl SimulatedOperation {
    fn next_event(&self, number: u32) -> Option<(i64, SimulationEvent)> {
        match self {
            Self::Invoke(invoke) => match invoke.phase {
                InvocationPhase::Waits(at) => Some((at, SimulationEvent::Attempt(number))),
                InvocationPhase::Runs(at, _) => Some((at, SimulationEvent::AttemptEnd(number))),
                InvocationPhase::Child { .. } | InvocationPhase::Over(_) => None,
            },
            Self::Timer {
                fires_at,
                fired: false,
            } => Some((*fires_at, SimulationEvent::Fire(number))),
            Self::Timer { .. } | Self::Other => None,
        }
    }
}

impl SimulatedInvocation {
    pub(crate) fn is_workflow(&self) -> bool {
        self.local
            .is_some_and(|entry| entry.kind == FunctionKind::Workflow)
    }

    /// Timeout of an attempt in microseconds. Default: none for a child.
    pub(crate) fn timeout_us(&self) -> Option<i64> {
        let usual = self
            .local
            .filter(|entry| entry.kind == FunctionKind::Task)
            .map(|_| TASK_LIMIT_MS);
        self.invocation.timeout_ms.or(usual).map(to_micros)
    }

    /// The retry policy; the default of the engine is the same for every kind of call.
    fn retry_policy(&self) -> RetryPolicy {
        self.invocation
            .retry
            .clone()
            .unwrap_or_else(|| RetryPolicy::max_attempts(RetryPolicy::DEFAULT_MAX_ATTEMPTS))
    }

    fn allows_retry(&self, error: &Error) -> bool {
        let policy = self.retry_policy();
        let more = policy.max_attempts == 0 || self.attempt < policy.max_attempts;
        error.retryable && more && !policy.non_retryable_kinds.contains(&error.kind)
    }

    /// Backoff after this attempt in microseconds, without jitter, so that tests are predictable.
    fn backoff_us(&self) -> i64 {
        let policy = self.retry_policy();
        let mut wait_ms = policy.initial_interval_ms;
        for _ in 1..self.attempt {
            let longer = wait_ms
                .saturating_mul(policy.factor_permille.into())
                .div_ceil(1_000);
            if wait_ms >= policy.max_interval_ms || longer == wait_ms {
                break;
            }
            wait_ms = longer;
        }
        to_micros(wait_ms.min(policy.max_interval_ms))
    }
}

pub(crate) fn to_micros(milliseconds: u64) -> i64 {
    i64::try_from(milliseconds)
        .unwrap_or(i64::MAX / 1_000)
        .saturating_mul(1_000)
}
