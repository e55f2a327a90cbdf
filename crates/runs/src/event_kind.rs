//! The event types that mean something here. Any other is recorded like these and changes nothing.

use crate::RunEventType;

/// What an event's type says happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RunEventKind {
    /// Something happened to the run as a whole.
    Run(RunAction),
    /// Something happened to one step.
    Step(StepAction),
    /// An operator's signal was decided upon; what it leads to has an event of its own.
    Signal(SignalDecision),
    /// A type that is not known here.
    Unknown,
}

/// What happened to a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RunAction {
    /// It waits for capacity.
    Queued,
    /// It may start.
    Approved,
    /// It started.
    Started,
    /// Nothing new starts; steps that run finish.
    Paused,
    /// It goes on.
    Resumed,
    /// Somebody asked for its cancellation.
    CancelRequested,
    /// Its cancellation is final.
    Cancelled,
    /// It ended with an error.
    Failed,
    /// It ended well.
    Completed,
}

/// What happened to a step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum StepAction {
    /// An attempt started.
    Started,
    /// It ended well.
    Completed,
    /// The attempt failed.
    Failed,
    /// It will not run.
    Skipped,
}

/// What was decided about a signal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SignalDecision {
    /// It will be applied.
    Accepted,
    /// It was refused.
    Rejected,
}

macro_rules! known_event_kinds {
    ($($name:literal $kind:expr;)+) => {
        impl RunEventKind {
            /// The types that mean something, by name.
            pub const KNOWN: &[(&str, Self)] = &[$(($name, $kind)),+];

            /// What the type called `name` means.
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
    /// What this type means.
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
