//! The checks behind the invariants, one file a family, and the list of rules each event is held to.

pub(crate) mod awaiting;
pub(crate) mod identity;
pub(crate) mod invoke;
pub(crate) mod join_set;
pub(crate) mod signal;
pub(crate) mod structure;
pub(crate) mod timer;

pub use awaiting::AWAITED_MAX;

use crate::EventKind::{self, *};
use crate::Rule::{self, *};

/// The content rules an event of this kind is held to, in the order in which a breach is reported.
///
/// S-1 comes before them all, then what the transition table says.
pub const fn rules_for_event(kind: EventKind) -> &'static [Rule] {
    match kind {
        ExecutionStarted | ExecutionCompleted | ExecutionFailed | CancelRequested
        | ExecutionCancelled | ExecutionResumed => &[],

        InvokeScheduled | RandomGenerated | TimeRecorded | TimerScheduled | JoinSetCreated => {
            &[ID1, ID2]
        }
        InvokeStarted => &[ID1, SE1, SE4, H5, H4],
        InvokeCompleted => &[ID1, SE2, SE4, H6],
        InvokeRetrying => &[ID1, SE4, SE3, H6, H13],

        TimerFired => &[ID1, CF1, H1],

        SignalDelivered => &[H10],
        SignalReceived => &[ID1, CF4, CF2, CF3, H11, ID2],
        ExecutionAwaiting => &[ID1, CF4, H7, H8, H9, ID2],

        JoinSetSubmitted => &[ID1, JS1, H12, H2, JS7, JS2],
        JoinSetAwaited => &[ID1, JS3, JS5, JS6, JS4, H3],
    }
}
