//! Commands: requests of the engine to record something. Each command determines its event as a
//! pure function of the journal and the time.
//!
//! A command only builds the event; the journal state decides whether it may be appended, with the
//! same rules for commands and for recorded journals. So the rule that refuses a command for an
//! unknown promise also refuses a tampered event.

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

/// An action of the engine or the guest that is to be recorded in the journal.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(
    missing_docs,
    reason = "the fields are those of the event that the command's sentence leads to"
)]
pub enum JournalCommand {
    /// Start the execution; the first command of every journal.
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
    /// Complete the invocation with the result of the attempt in flight.
    CompleteAttempt { promise: PromiseId, result: Payload },
    /// Record that the attempt in flight failed: its retry policy decides between a retry and a
    /// final failure. `entropy` determines the jitter of the retry.
    FailAttempt {
        promise: PromiseId,
        error: ExecutionError,
        entropy: u32,
    },
    /// End an invocation with this failure, whether an attempt is in flight or the next one has not
    /// started yet.
    GiveUpInvoke {
        promise: PromiseId,
        error: ExecutionError,
    },
    /// Record random bytes as the next child.
    GenerateRandom { value: Arc<[u8]> },
    /// Record the current time as the next child.
    ReadClock,
    /// Schedule a timer as the next child.
    ScheduleTimer { duration_ms: u64 },
    /// Fire a timer; refused before its `fire_at`.
    FireTimer { promise: PromiseId },
    /// Buffer a signal that arrived.
    DeliverSignal {
        signal_name: BoundedName,
        payload: Payload,
    },
    /// Consume the oldest signal of that name, or block until one is delivered or the timer
    /// `timeout` fires.
    AwaitSignal {
        signal_name: BoundedName,
        timeout: Option<PromiseId>,
    },
    /// Give the oldest delivered signal to the open await that waits for it as `promise`.
    ReceiveSignal { promise: PromiseId },
    /// Block until the promises satisfy `kind`. The await is recorded even if they already do:
    /// replay must know which of them were complete at that moment, because the guest saw that.
    Await {
        waiting_on: Vec<PromiseId>,
        kind: AwaitKind,
    },
    /// Resume the execution after a satisfied await.
    Resume,
    /// Create a join set as the next child.
    CreateJoinSet,
    /// Submit an invocation to a join set.
    SubmitToJoinSet { set: JoinSetId, promise: PromiseId },
    /// Take the next result of the join set, in the order of completion, or block until one
    /// completes or the timer `timeout` fires.
    TakeNextResult {
        set: JoinSetId,
        timeout: Option<PromiseId>,
    },
    /// Complete the execution with a result; `continued_as` names the execution that continues it,
    /// if there is one.
    Complete {
        result: Payload,
        continued_as: Option<ExecutionId>,
    },
    /// Fail the execution: its code returned an error or trapped.
    Fail { error: ExecutionError },
    /// Request cancellation; cleanup begins.
    RequestCancel { reason: SharedText },
    /// Make cancellation final, which ends the execution.
    Cancel { reason: SharedText },
}

impl JournalCommand {
    /// Returns the event that the command records. Fails if the command cannot be turned into an
    /// event.
    #[expect(clippy::too_many_lines, reason = "one table: a row for each command")]
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

/// Creates the violation for a command that cannot be turned into an event.
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
