//! The part of the journal state that describes each operation and each join set.

use std::collections::VecDeque;

use super::PayloadFingerprint;
use crate::{DeliveryGuarantee, RetryPolicy};
use onward_base::{BoundedName, Timestamp};

/// The state of one operation, by its type.
#[derive(Clone, Debug)]
pub enum PromiseState {
    /// A recorded value: random bytes or the time. It is complete from the start.
    Value,
    /// An invocation of a function or an HTTP request.
    Invoke(InvokeState),
    /// A timer that fires once.
    Timer {
        /// The earliest time at which the timer may fire.
        fire_at: Timestamp,
        /// Whether the timer has fired.
        fired: bool,
    },
    /// A wait for a signal, or a signal that was consumed without waiting.
    Signal {
        /// The name of the signal.
        name: BoundedName,
        /// Whether the signal was received.
        received: bool,
    },
    /// A join set, by its index among the join sets of the execution.
    JoinSet(u32),
}

impl PromiseState {
    /// Returns whether the operation is complete, so that an await for it is over. Never true for a
    /// join set.
    pub const fn is_complete(&self) -> bool {
        match self {
            Self::Value => true,
            Self::Invoke(invoke) => matches!(invoke.phase, InvokePhase::Completed { .. }),
            Self::Timer { fired, .. } => *fired,
            Self::Signal { received, .. } => *received,
            Self::JoinSet(_) => false,
        }
    }
}

/// The state of an invocation.
#[derive(Clone, Debug)]
pub struct InvokeState {
    /// The progress of the invocation.
    pub phase: InvokePhase,
    /// The last attempt that was started; 0 if none was.
    pub attempt: u32,
    /// The retry policy; `None` if none was given, or once the invocation completed.
    pub policy: Option<Box<RetryPolicy>>,
    /// Whether the invocation may be repeated when a crash leaves its outcome unknown.
    pub delivery: DeliveryGuarantee,
    /// The index of the join set that the invocation was submitted to.
    pub(crate) join_set_index: Option<u32>,
    /// Whether the guest took the result from that join set.
    pub(crate) is_result_taken: bool,
}

impl InvokeState {
    pub(super) const fn new(policy: Option<Box<RetryPolicy>>, delivery: DeliveryGuarantee) -> Self {
        Self {
            phase: InvokePhase::Scheduled,
            attempt: 0,
            policy,
            delivery,
            join_set_index: None,
            is_result_taken: false,
        }
    }
}

/// The progress of an invocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvokePhase {
    /// The invocation is scheduled; no attempt has started.
    Scheduled,
    /// An attempt is in flight.
    Started,
    /// The last attempt failed; the next one may start at `retry_at`.
    Retrying {
        /// The earliest start of the next attempt.
        retry_at: Timestamp,
    },
    /// The invocation is over, with a result or a final failure.
    Completed {
        /// The sequence number of its InvokeCompleted event, which contains the result.
        sequence: u64,
        /// The fingerprint of the result.
        result: PayloadFingerprint,
    },
}

/// The state of a join set.
#[derive(Clone, Debug, Default)]
pub struct JoinSetState {
    /// Number of operations that were submitted.
    pub submitted: u32,
    /// Number of results that were taken.
    pub awaited: u32,
    /// The child numbers of all members, in the order of submission.
    pub(super) members: Vec<u32>,
    /// The members that completed, in the order of completion. It may still contain members whose
    /// result was taken.
    pub(super) ready: VecDeque<u32>,
}
