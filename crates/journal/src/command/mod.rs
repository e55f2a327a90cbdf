//! Commands: what the engine wants recorded. Each decides purely, from the journal and the time, which event that is.
//!
//! A command only builds the event; whether it may be appended is the fold's judgement, the same for commands and for
//! recorded journals. So a command for an unknown promise is refused by the same rule as a tampered event would be.

mod attempt;
mod join_set;
mod signal;
mod timer;

use std::sync::Arc;

use crate::{
    AwaitKind, ComponentDigest, DeliveryGuarantee, Event, EventKind, ExecutionError, ExecutionId,
    InvokeKind, InvokePerformer, JoinSetId, Journal, JournalState, PromiseId, RetryPolicy, Rule,
    RuleViolation,
};
use onward_base::{BoundedName, Payload, SharedText, Timestamp};

/// What the engine or the guest wants to happen.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(
    missing_docs,
    reason = "the fields are those of the event that the command's sentence leads to"
)]
pub enum JournalCommand {
    /// Start the execution.
    Start {
        component_digest: ComponentDigest,
        input: Payload,
        parent: Option<PromiseId>,
        key: Option<SharedText>,
    },
    /// Schedule an invocation as the next child.
    ScheduleInvoke {
        kind: InvokeKind,
        function_name: BoundedName,
        input: Payload,
        retry_policy: Option<Box<RetryPolicy>>,
        delivery: DeliveryGuarantee,
    },
    /// Start the next attempt of an invocation; `performer` performs it.
    StartAttempt {
        promise: PromiseId,
        performer: InvokePerformer,
    },
    /// The attempt in flight succeeded.
    CompleteAttempt { promise: PromiseId, result: Payload },
    /// The attempt in flight failed: retry or give up, as its policy says. `entropy` spreads the retries.
    FailAttempt {
        promise: PromiseId,
        error: ExecutionError,
        entropy: u32,
    },
    /// End an invocation with this failure, whether an attempt is in flight or the next one is waited for.
    GiveUpInvoke {
        promise: PromiseId,
        error: ExecutionError,
    },
    /// Record entropy as the next child.
    GenerateRandom { value: Arc<[u8]> },
    /// Record the time as the next child.
    ReadClock,
    /// Set a timer as the next child.
    ScheduleTimer { duration_ms: u64 },
    /// A timer's time has come.
    FireTimer { promise: PromiseId },
    /// A signal arrived.
    DeliverSignal {
        signal_name: BoundedName,
        payload: Payload,
    },
    /// Consume the oldest signal of that name, or block until there is one or the timer `timeout` has fired.
    AwaitSignal {
        signal_name: BoundedName,
        timeout: Option<PromiseId>,
    },
    /// Give the oldest delivered signal to the open await that waits for it as `promise`.
    ReceiveSignal { promise: PromiseId },
    /// Block until the promises satisfy `kind`. The await is recorded even if they do already: which of them were
    /// complete just then is what the guest saw, and replay must know.
    Await {
        waiting_on: Vec<PromiseId>,
        kind: AwaitKind,
    },
    /// Go on after a satisfied await.
    Resume,
    /// Make a join set as the next child.
    CreateJoinSet,
    /// Put an invocation into a join set.
    SubmitToJoinSet { set: JoinSetId, promise: PromiseId },
    /// Take the set's next result, in the order of completion, or block until there is one or the timer `timeout` has
    /// fired.
    TakeNextResult {
        set: JoinSetId,
        timeout: Option<PromiseId>,
    },
    /// Return, perhaps leaving the rest to another execution.
    Complete {
        result: Payload,
        continued_as: Option<ExecutionId>,
    },
    /// Return an error, or trap.
    Fail { error: ExecutionError },
    /// Ask for cancellation.
    RequestCancel { reason: SharedText },
    /// Make cancellation final.
    Cancel { reason: SharedText },
}

impl JournalCommand {
    /// The event to record.
    pub(crate) fn decide_event(
        self,
        journal: &Journal,
        now: Timestamp,
    ) -> Result<Event, RuleViolation> {
        let fold = journal.journal_state();
        let next = || fold.next_promise_id();
        Ok(match self {
            Self::Start {
                component_digest,
                input,
                parent,
                key,
            } => Event::ExecutionStarted {
                component_digest,
                input,
                parent_id: parent,
                idempotency_key: key,
            },
            Self::ScheduleInvoke {
                kind,
                function_name,
                input,
                retry_policy,
                delivery,
            } => Event::InvokeScheduled {
                promise_id: next(),
                kind,
                function_name,
                input,
                retry_policy,
                delivery,
            },
            Self::StartAttempt { promise, performer } => {
                attempt::start_attempt(fold, promise, performer, now)?
            }
            Self::CompleteAttempt { promise, result } => {
                attempt::complete_attempt(fold, promise, result)
            }
            Self::FailAttempt {
                promise,
                error,
                entropy,
            } => attempt::InvokeAttemptFailure {
                error,
                now,
                entropy,
            }
            .into_event(fold, promise),
            Self::GiveUpInvoke { promise, error } => attempt::give_up_invoke(fold, promise, error),
            Self::GenerateRandom { value } => Event::RandomGenerated {
                promise_id: next(),
                value,
            },
            Self::ReadClock => Event::TimeRecorded {
                promise_id: next(),
                time: now,
            },
            Self::ScheduleTimer { duration_ms } => timer::schedule_timer(fold, duration_ms, now),
            Self::FireTimer { promise } => timer::fire_timer(fold, promise, now)?,
            Self::DeliverSignal {
                signal_name,
                payload,
            } => signal::deliver_signal(fold, signal_name, payload),
            Self::AwaitSignal {
                signal_name,
                timeout,
            } => signal::await_signal(journal, signal_name, timeout),
            Self::ReceiveSignal { promise } => signal::receive_signal(journal, promise)?,
            Self::Await { waiting_on, kind } => Event::ExecutionAwaiting { waiting_on, kind },
            Self::Resume => Event::ExecutionResumed,
            Self::CreateJoinSet => Event::JoinSetCreated {
                join_set_id: JoinSetId(next()),
            },
            Self::SubmitToJoinSet { set, promise } => Event::JoinSetSubmitted {
                join_set_id: set,
                promise_id: promise,
            },
            Self::TakeNextResult { set, timeout } => {
                join_set::take_next_result(journal, set, timeout)?
            }
            Self::Complete {
                result,
                continued_as,
            } => Event::ExecutionCompleted {
                result,
                continued_as,
            },
            Self::Fail { error } => Event::ExecutionFailed { error },
            Self::RequestCancel { reason } => Event::CancelRequested { reason },
            Self::Cancel { reason } => Event::ExecutionCancelled { reason },
        })
    }
}

/// The violation of a command that cannot even be turned into an event.
fn command_violation(
    fold: &JournalState,
    rule: Rule,
    event: EventKind,
    message: String,
) -> RuleViolation {
    RuleViolation {
        rule,
        sequence: fold.next_sequence(),
        event,
        message,
    }
}
