//! The 20 events of a journal, in five categories. Each category exists for one correctness
//! property; together they make the replay of a journal equal to the execution that wrote it.

use std::fmt;
use std::sync::Arc;

use minicbor::{Decode, Encode};

use crate::codec::CodecContext;
use crate::{
    ComponentDigest, DeliveryGuarantee, ExecutionError, ExecutionId, InvokePerformer, JoinSetId,
    PromiseId, RetryPolicy,
};
use onward_base::{BoundedName, Payload, SharedText, Timestamp};

/// One entry of a journal: an event with its sequence number and the time of recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JournalEvent {
    /// The event's index in its journal: 0, 1, 2 …
    pub sequence: u64,
    /// When the event was recorded, for people; replay ignores it.
    pub timestamp: Timestamp,
    /// The recorded event with its fields.
    pub event: Event,
}

/// The outcome of an operation. A final failure is a result too: there is no separate event for it.
pub type InvokeResult = Result<Payload, ExecutionError>;

/// An event in the journal of an execution.
///
/// The numbers are the ids of the events and of their fields in storage ([`crate::codec`]); they
/// never change.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
#[cbor(context_bound = "CodecContext")]
#[expect(
    missing_docs,
    reason = "the fields are those of the variant's sentence; spec/journal.md has the table"
)]
pub enum Event {
    // Lifecycle: the start and the end of an execution are well-formed.
    /// The execution started. Always the first event: it records the component, the input, the
    /// parent and the idempotency key, if there are any.
    #[n(0)]
    ExecutionStarted {
        #[n(0)]
        component_digest: ComponentDigest,
        #[n(1)]
        input: Payload,
        #[n(2)]
        parent_id: Option<PromiseId>,
        #[n(3)]
        idempotency_key: Option<SharedText>,
    },
    /// The function returned. If `continued_as` is set, that execution continues this one.
    #[n(1)]
    ExecutionCompleted {
        #[n(0)]
        result: Payload,
        #[n(1)]
        continued_as: Option<ExecutionId>,
    },
    /// The function returned an error or trapped.
    #[n(2)]
    ExecutionFailed {
        #[n(0)]
        error: ExecutionError,
    },
    /// Cancellation was requested; cleanup begins.
    #[n(3)]
    CancelRequested {
        #[n(0)]
        reason: SharedText,
    },
    /// Cancellation is final and the execution is over.
    #[n(4)]
    ExecutionCancelled {
        #[n(0)]
        reason: SharedText,
    },

    // Side effects: intent, attempt in flight and result, so that a recorded result is never
    // produced twice.
    /// The guest scheduled an invocation; no attempt has started.
    #[n(5)]
    InvokeScheduled {
        #[n(0)]
        promise_id: PromiseId,
        #[n(1)]
        kind: InvokeKind,
        #[n(2)]
        function_name: BoundedName,
        #[n(3)]
        input: Payload,
        #[n(4)]
        retry_policy: Option<Box<RetryPolicy>>,
        #[n(5)]
        #[cbor(with = "crate::codec::delivery", has_nil)]
        delivery: DeliveryGuarantee,
    },
    /// An attempt is in flight; `performer` performs it.
    #[n(6)]
    InvokeStarted {
        #[n(0)]
        promise_id: PromiseId,
        #[n(1)]
        attempt: u32,
        #[n(2)]
        #[cbor(with = "crate::codec::performer", has_nil)]
        performer: InvokePerformer,
    },
    /// The invocation is over, with a result or a final failure.
    #[n(7)]
    InvokeCompleted {
        #[n(0)]
        promise_id: PromiseId,
        #[n(1)]
        result: InvokeResult,
        #[n(2)]
        attempt: u32,
    },
    /// The attempt failed and the next one may start at `retry_at`.
    #[n(8)]
    InvokeRetrying {
        #[n(0)]
        promise_id: PromiseId,
        #[n(1)]
        failed_attempt: u32,
        #[n(2)]
        error: ExecutionError,
        #[n(3)]
        retry_at: Timestamp,
    },

    // Nondeterminism: values that cannot be computed again are recorded.
    /// The guest drew random bytes.
    #[n(9)]
    RandomGenerated {
        #[n(0)]
        promise_id: PromiseId,
        #[n(1)]
        #[cbor(with = "crate::codec::shared_bytes")]
        value: Arc<[u8]>,
    },
    /// The guest read the clock.
    #[n(10)]
    TimeRecorded {
        #[n(0)]
        promise_id: PromiseId,
        #[n(1)]
        time: Timestamp,
    },

    // Control flow: what the execution waited for, and when it resumed.
    /// The guest scheduled a timer that fires at `fire_at`.
    #[n(11)]
    TimerScheduled {
        #[n(0)]
        promise_id: PromiseId,
        #[n(1)]
        duration_ms: u64,
        #[n(2)]
        fire_at: Timestamp,
    },
    /// The timer fired, which completes its promise.
    #[n(12)]
    TimerFired {
        #[n(0)]
        promise_id: PromiseId,
    },
    /// A signal arrived and is buffered until the execution consumes it.
    #[n(13)]
    SignalDelivered {
        #[n(0)]
        signal_name: BoundedName,
        #[n(1)]
        payload: Payload,
        #[n(2)]
        delivery_id: u64,
    },
    /// The execution consumed the oldest buffered signal of that name.
    #[n(14)]
    SignalReceived {
        #[n(0)]
        promise_id: PromiseId,
        #[n(1)]
        signal_name: BoundedName,
        #[n(2)]
        payload: Payload,
        #[n(3)]
        delivery_id: u64,
    },
    /// The execution blocks until the promises satisfy `kind`.
    #[n(15)]
    ExecutionAwaiting {
        #[n(0)]
        #[cbor(with = "crate::codec::awaited")]
        waiting_on: Vec<PromiseId>,
        #[n(1)]
        kind: AwaitKind,
    },
    /// The open await is satisfied and the execution resumes.
    #[n(16)]
    ExecutionResumed,

    // Concurrency: the order in which concurrent results were taken.
    /// The guest created a join set.
    #[n(17)]
    JoinSetCreated {
        #[n(0)]
        join_set_id: JoinSetId,
    },
    /// The guest submitted an invocation to the join set.
    #[n(18)]
    JoinSetSubmitted {
        #[n(0)]
        join_set_id: JoinSetId,
        #[n(1)]
        promise_id: PromiseId,
    },
    /// The guest took the next result of the join set.
    #[n(19)]
    JoinSetAwaited {
        #[n(0)]
        join_set_id: JoinSetId,
        #[n(1)]
        promise_id: PromiseId,
        #[n(2)]
        result: InvokeResult,
    },
}

/// The target of an invocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Encode, Decode)]
#[cbor(index_only)]
pub enum InvokeKind {
    /// A function: a task or a child workflow.
    #[n(0)]
    Function,
    /// An HTTP request; its `function_name` is `METHOD URL`.
    #[n(1)]
    Http,
}

impl InvokeKind {
    /// Returns the name of the kind in a JSON journal.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Function => "function",
            Self::Http => "http",
        }
    }
}

/// The condition that satisfies an await.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Encode, Decode)]
pub enum AwaitKind {
    /// The only promise of the await completes.
    #[n(0)]
    Single,
    /// At least one of the promises completes.
    #[n(1)]
    Any,
    /// All of the promises complete.
    #[n(2)]
    All,
    /// A signal of this name is received; the await itself allocates the promise. If the await also
    /// names a timer, the timer firing satisfies it as well.
    #[n(3)]
    Signal(#[n(0)] BoundedName),
}

impl AwaitKind {
    /// Returns the name of the kind in a JSON journal.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Any => "any",
            Self::All => "all",
            Self::Signal(_) => "signal",
        }
    }
}

/// The five categories of events; each guarantees one correctness property.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EventCategory {
    /// An execution starts and ends in a well-formed way.
    Lifecycle,
    /// Replay does not repeat external operations.
    SideEffects,
    /// Time and randomness are the same on replay.
    Nondeterminism,
    /// Replay takes the same path through the code.
    ControlFlow,
    /// Replay takes concurrent results in the same order.
    Concurrency,
}

macro_rules! event_kinds {
    ($($kind:ident $category:ident,)*) => {
        /// The kind of an event: one of the 20, without its fields.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum EventKind { $(
            #[doc = concat!("[`Event::", stringify!($kind), "`]")]
            $kind,
        )* }

        impl EventKind {
            /// All kinds, in the order of their categories.
            pub const ALL: [Self; 20] = [$(Self::$kind,)*];

            /// Returns the event's name in a JSON journal.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$kind => stringify!($kind),)* }
            }

            /// Returns the category that the event belongs to.
            pub const fn category(self) -> EventCategory {
                match self { $(Self::$kind => EventCategory::$category,)* }
            }

            /// Returns the kind with this name; `None` if there is none.
            pub fn from_name(name: &str) -> Option<Self> {
                match name { $(stringify!($kind) => Some(Self::$kind),)* _ => None }
            }
        }

        impl Event {
            /// Returns the kind of the event, without its fields.
            pub const fn kind(&self) -> EventKind {
                match self { $(Self::$kind { .. } => EventKind::$kind,)* }
            }
        }
    };
}

event_kinds! {
    ExecutionStarted Lifecycle,
    ExecutionCompleted Lifecycle,
    ExecutionFailed Lifecycle,
    CancelRequested Lifecycle,
    ExecutionCancelled Lifecycle,
    InvokeScheduled SideEffects,
    InvokeStarted SideEffects,
    InvokeCompleted SideEffects,
    InvokeRetrying SideEffects,
    RandomGenerated Nondeterminism,
    TimeRecorded Nondeterminism,
    TimerScheduled ControlFlow,
    TimerFired ControlFlow,
    SignalDelivered ControlFlow,
    SignalReceived ControlFlow,
    ExecutionAwaiting ControlFlow,
    ExecutionResumed ControlFlow,
    JoinSetCreated Concurrency,
    JoinSetSubmitted Concurrency,
    JoinSetAwaited Concurrency,
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Event {
    /// Returns the execution that continues the one that this event completes; `None` for any other
    /// event.
    pub const fn continued_as(&self) -> Option<ExecutionId> {
        match self {
            Self::ExecutionCompleted { continued_as, .. } => *continued_as,
            _ => None,
        }
    }

    /// Returns the ids that must belong to the journal's own execution: all that the event names,
    /// except the id of the parent.
    pub fn promise_ids(&self) -> impl Iterator<Item = &PromiseId> {
        let (set, one, many): (_, _, &[PromiseId]) = match self {
            Self::InvokeScheduled { promise_id, .. }
            | Self::InvokeStarted { promise_id, .. }
            | Self::InvokeCompleted { promise_id, .. }
            | Self::InvokeRetrying { promise_id, .. }
            | Self::RandomGenerated { promise_id, .. }
            | Self::TimeRecorded { promise_id, .. }
            | Self::TimerScheduled { promise_id, .. }
            | Self::TimerFired { promise_id }
            | Self::SignalReceived { promise_id, .. } => (None, Some(promise_id), &[]),
            Self::ExecutionAwaiting { waiting_on, .. } => (None, None, waiting_on),
            Self::JoinSetCreated { join_set_id } => (Some(&join_set_id.0), None, &[]),
            Self::JoinSetSubmitted {
                join_set_id,
                promise_id,
            }
            | Self::JoinSetAwaited {
                join_set_id,
                promise_id,
                ..
            } => (Some(&join_set_id.0), Some(promise_id), &[]),
            _ => (None, None, &[]),
        };
        set.into_iter().chain(one).chain(many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_an_event_parses_to_its_kind() {
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(EventKind::from_name("InvokeFailed"), None);
    }

    #[test]
    fn the_categories_have_5_4_2_6_and_3_events() {
        let count = |category| {
            EventKind::ALL
                .into_iter()
                .filter(|kind| kind.category() == category)
                .count()
        };
        assert_eq!(
            [
                count(EventCategory::Lifecycle),
                count(EventCategory::SideEffects),
                count(EventCategory::Nondeterminism),
                count(EventCategory::ControlFlow),
                count(EventCategory::Concurrency)
            ],
            [5, 4, 2, 6, 3]
        );
    }
}
