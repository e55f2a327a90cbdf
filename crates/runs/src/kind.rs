//! The event types that mean something here. Any other is recorded like these and changes nothing.

use crate::EventType;

/// What an event's type says happened.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EventKind {
    /// Something happened to the run as a whole.
    Run(RunAct),
    /// Something happened to one step.
    Step(StepAct),
    /// An operator's signal was decided upon; what it leads to has an event of its own.
    Signal(Decision),
    /// A type that is not known here.
    Unknown,
}

/// What happened to a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RunAct {
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
pub enum StepAct {
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
pub enum Decision {
    /// It will be applied.
    Accepted,
    /// It was refused.
    Rejected,
}

macro_rules! kinds {
    ($($name:literal $kind:expr;)+) => {
        impl EventKind {
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

use EventKind::{Run, Signal, Step};

kinds! {
    "RunQueued"          Run(RunAct::Queued);
    "RunApproved"        Run(RunAct::Approved);
    "RunStarted"         Run(RunAct::Started);
    "RunPaused"          Run(RunAct::Paused);
    "RunResumed"         Run(RunAct::Resumed);
    "RunCancelRequested" Run(RunAct::CancelRequested);
    "RunCancelled"       Run(RunAct::Cancelled);
    "RunFailed"          Run(RunAct::Failed);
    "RunCompleted"       Run(RunAct::Completed);
    "StepStarted"        Step(StepAct::Started);
    "StepCompleted"      Step(StepAct::Completed);
    "StepFailed"         Step(StepAct::Failed);
    "StepSkipped"        Step(StepAct::Skipped);
    "SignalAccepted"     Signal(Decision::Accepted);
    "SignalRejected"     Signal(Decision::Rejected);
}

impl EventType {
    /// What this type means.
    pub fn kind(&self) -> EventKind {
        EventKind::of(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_is_known_by_its_exact_name() {
        for (name, kind) in EventKind::KNOWN {
            assert_eq!(name.parse::<EventType>().unwrap().kind(), *kind);
        }
        for name in ["runStarted", "StepStarted ", "RunContinued", "x"] {
            assert_eq!(name.parse::<EventType>().unwrap().kind(), EventKind::Unknown);
        }
    }
}
