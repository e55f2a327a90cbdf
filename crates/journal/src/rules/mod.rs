//! The checks that enforce the invariants, one file for each family, and the list of rules that
//! apply to each event.

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

/// Returns the content rules that apply to an event of this kind, in the order in which violations
/// are reported.
///
/// S-1 is checked before all of them, then the transition table.
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
