//! What the fold remembers of each operation and each join set.

use std::collections::VecDeque;

use super::Fingerprint;
use crate::{Delivery, Name, RetryPolicy, Timestamp};

/// One operation, by what it is.
#[derive(Clone, Debug)]
pub enum Promise {
    /// A captured value: randomness or time. It was complete when it was recorded.
    Value,
    /// An invocation.
    Invoke(Invoke),
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
        name: Name,
        /// Whether it came.
        received: bool,
    },
    /// A join set, by its index.
    JoinSet(u32),
}

impl Promise {
    /// Whether waiting for it is over.
    pub const fn is_complete(&self) -> bool {
        match self {
            Self::Value => true,
            Self::Invoke(invoke) => matches!(invoke.flight, Flight::Completed { .. }),
            Self::Timer { fired, .. } => *fired,
            Self::Signal { received, .. } => *received,
            Self::JoinSet(_) => false,
        }
    }
}

/// An invocation.
#[derive(Clone, Debug)]
pub struct Invoke {
    /// How far it is.
    pub flight: Flight,
    /// The last attempt that was started; 0 if none was.
    pub attempt: u32,
    /// How it is retried; forgotten once it completed.
    pub policy: Option<Box<RetryPolicy>>,
    /// Whether it may be repeated when a crash leaves its end unknown.
    pub delivery: Delivery,
    /// The index of the join set it was submitted to.
    pub(crate) owner: Option<u32>,
    /// Whether its result was taken from that set.
    pub(crate) consumed: bool,
}

impl Invoke {
    pub(super) const fn new(policy: Option<Box<RetryPolicy>>, delivery: Delivery) -> Self {
        Self { flight: Flight::Scheduled, attempt: 0, policy, delivery, owner: None, consumed: false }
    }
}

/// How far an invocation is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flight {
    /// It is wanted; no attempt was started.
    Scheduled,
    /// An attempt is under way.
    Started,
    /// The last attempt failed; the next may start at this time.
    Retrying {
        /// The earliest start of the next attempt.
        at: Timestamp,
    },
    /// It is over.
    Completed {
        /// The sequence number of its InvokeCompleted, where the result is.
        sequence: u64,
        /// What the result was, in short.
        result: Fingerprint,
    },
}

/// A join set.
#[derive(Clone, Debug, Default)]
pub struct JoinSet {
    /// How many operations were submitted.
    pub submitted: u32,
    /// How many results were taken.
    pub awaited: u32,
    /// Child numbers of all members.
    pub(super) members: Vec<u32>,
    /// Members that completed, in that order, those already taken perhaps still among them.
    pub(super) ready: VecDeque<u32>,
}
