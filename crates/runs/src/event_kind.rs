//! The event types with a defined meaning. Events of any other type are recorded in the same way
//! and change no state.

use crate::RunEventType;

/// Meaning of an event's type.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RunEventKind {
    /// The event refers to the run as a whole.
    Run(RunAction),
    /// The event refers to one step.
    Step(StepAction),
    /// The event records a decision about an operator's signal; the effect of the signal is a
    /// separate event.
    Signal(SignalDecision),
    /// The type has no defined meaning in this version.
    Unknown,
}

/// Change of a run that an event records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RunAction {
    /// The run waits for capacity.
    Queued,
    /// The run may start.
    Approved,
    /// The run started.
    Started,
    /// The run starts no further steps; running steps finish.
    Paused,
    /// The run continues after a pause.
    Resumed,
    /// Cancellation of the run was requested.
    CancelRequested,
    /// The cancellation of the run is final.
    Cancelled,
    /// The run ended with an error.
    Failed,
    /// The run completed successfully.
    Completed,
}

/// Change of a step that an event records.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StepAction {
    /// An attempt of the step started.
    Started,
    /// The step completed successfully.
    Completed,
    /// The attempt failed.
    Failed,
    /// The step will not run.
    Skipped,
}

/// Decision about an operator's signal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SignalDecision {
    /// The signal will be applied.
    Accepted,
    /// The signal was rejected.
    Rejected,
}

macro_rules! known_event_kinds {
    ($($name:literal $kind:expr;)+) => {
        impl RunEventKind {
            /// All event types with a defined meaning, with their names.
            pub const KNOWN: &[(&str, Self)] = &[$(($name, $kind)),+];

            /// Returns the meaning of the type called `name`; [`Self::Unknown`] if it has none.
            pub fn of(name: &str) -> Self {
                match name {
                    $($name => $kind,)+
                    _ => Self::Unknown,
                }
            }
        }
    };
}

use RunEventKind::{Run, Signal, Step};

known_event_kinds! {
    "RunQueued"          Run(RunAction::Queued);
    "RunApproved"        Run(RunAction::Approved);
    "RunStarted"         Run(RunAction::Started);
    "RunPaused"          Run(RunAction::Paused);
    "RunResumed"         Run(RunAction::Resumed);
    "RunCancelRequested" Run(RunAction::CancelRequested);
    "RunCancelled"       Run(RunAction::Cancelled);
    "RunFailed"          Run(RunAction::Failed);
    "RunCompleted"       Run(RunAction::Completed);
    "StepStarted"        Step(StepAction::Started);
    "StepCompleted"      Step(StepAction::Completed);
    "StepFailed"         Step(StepAction::Failed);
    "StepSkipped"        Step(StepAction::Skipped);
    "SignalAccepted"     Signal(SignalDecision::Accepted);
    "SignalRejected"     Signal(SignalDecision::Rejected);
}

impl RunEventType {
    /// Returns the meaning of this event type.
    pub fn event_kind(&self) -> RunEventKind {
        RunEventKind::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_known_by_its_exact_name() {
        for (name, kind) in RunEventKind::KNOWN {
            assert_eq!(name.parse::<RunEventType>().unwrap().event_kind(), *kind);
        }
        for name in ["runStarted", "StepStarted ", "RunContinued", "x"] {
            assert_eq!(
                name.parse::<RunEventType>().unwrap().event_kind(),
                RunEventKind::Unknown
            );
        }
    }
}
