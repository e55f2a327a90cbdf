//! What the fold remembers of each operation and each join set.

use std::collections::VecDeque;

use super::PayloadFingerprint;
use crate::{DeliveryGuarantee, RetryPolicy};
use onward_base::{BoundedName, Timestamp};

/// One operation, by what it is.
#[derive(Clone, Debug)]
pub enum PromiseState {
    /// A captured value: randomness or time. It was complete when it was recorded.
    Value,
    /// An invocation.
    Invoke(InvokeState),
    /// A timer.
    Timer {
        /// When it may fire.
        fire_at: Timestamp,
        /// Whether it did.
        fired: bool,
    },
    /// A wait for a signal.
    Signal {
        /// The name it waits for.
        name: BoundedName,
        /// Whether it came.
        received: bool,
    },
    /// A join set, by its index.
    JoinSet(u32),
}

impl PromiseState {
    /// Whether waiting for it is over.
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

/// An invocation.
#[derive(Clone, Debug)]
pub struct InvokeState {
    /// How far it is.
    pub phase: InvokePhase,
    /// The last attempt that was started; 0 if none was.
    pub attempt: u32,
    /// How it is retried; forgotten once it completed.
    pub policy: Option<Box<RetryPolicy>>,
    /// Whether it may be repeated when a crash leaves its end unknown.
    pub delivery: DeliveryGuarantee,
    /// The index of the join set it was submitted to.
    pub(crate) join_set_index: Option<u32>,
    /// Whether its result was taken from that set.
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

/// How far an invocation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InvokePhase {
    /// It is wanted; no attempt was started.
    Scheduled,
    /// An attempt is under way.
    Started,
    /// The last attempt failed; the next may start at this time.
    Retrying {
        /// The earliest start of the next attempt.
        retry_at: Timestamp,
    },
    /// It is over.
    Completed {
        /// The sequence number of its InvokeCompleted, where the result is.
        sequence: u64,
        /// What the result was, in short.
        result: PayloadFingerprint,
    },
}

/// A join set.
#[derive(Clone, Debug, Default)]
pub struct JoinSetState {
    /// How many operations were submitted.
    pub submitted: u32,
    /// How many results were taken.
    pub awaited: u32,
    /// Child numbers of all members.
    pub(super) members: Vec<u32>,
    /// Members that completed, in that order, those already taken perhaps still among them.
    pub(super) ready: VecDeque<u32>,
}
