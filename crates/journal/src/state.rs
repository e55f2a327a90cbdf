//! The lifecycle of an execution as one transition table: which action each phase allows, and the
//! phase it leads to.
//!
//! Two phases share the state that users see as Cancelling. Cleanup code may await like any other
//! code, and the state must stay Cancelling meanwhile, so cleanup with an open await is a phase of
//! its own.

use crate::Rule;

/// The phase of an execution's lifecycle, as the transition table distinguishes it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ExecutionPhase {
    /// No event has been recorded yet.
    New,
    /// The code of the execution runs.
    Running,
    /// The execution has an open await.
    Blocked,
    /// Cancellation was requested and cleanup runs.
    Cancelling,
    /// Cancellation was requested and cleanup has an open await.
    CleanupBlocked,
    /// The execution ended with a result.
    Completed,
    /// The execution ended with an error.
    Failed,
    /// The execution ended because its cancellation is final.
    Cancelled,
}

impl ExecutionPhase {
    /// All phases, in the order of the lifecycle.
    pub const ALL: [Self; 8] = [
        Self::New,
        Self::Running,
        Self::Blocked,
        Self::Cancelling,
        Self::CleanupBlocked,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// Returns whether the execution is over, so that no event can follow.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }

    /// Returns the state that users see; `None` before the first event.
    pub const fn execution_state(self) -> Option<ExecutionState> {
        match self {
            Self::New => None,
            Self::Running => Some(ExecutionState::Running),
            Self::Blocked => Some(ExecutionState::Blocked),
            Self::Cancelling | Self::CleanupBlocked => Some(ExecutionState::Cancelling),
            Self::Completed => Some(ExecutionState::Completed),
            Self::Failed => Some(ExecutionState::Failed),
            Self::Cancelled => Some(ExecutionState::Cancelled),
        }
    }
}

onward_base::text_enum! {
    /// The state of an execution as users see it.
    ExecutionState {
        /// The code of the execution runs.
        Running = "Running",
        /// The execution waits for a promise or a signal.
        Blocked = "Blocked",
        /// Cancellation was requested; cleanup runs or waits.
        Cancelling = "Cancelling",
        /// The execution ended with a result.
        Completed = "Completed",
        /// The execution ended with an error.
        Failed = "Failed",
        /// The execution ended because its cancellation is final.
        Cancelled = "Cancelled",
    }
}

/// The effect of an event on the phase of an execution.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum LifecycleAction {
    /// The execution starts.
    Start,
    /// The code begins an operation, which takes a position in the call tree.
    Allocate,
    /// The code submits to a join set or takes a result from one.
    UseJoinSet,
    /// The code blocks on an await.
    Await,
    /// An external event arrives: progress of an attempt, a timer or a signal.
    Arrive,
    /// The signal that the open await waits for is received.
    Receive,
    /// The open await is satisfied and the code resumes.
    Resume,
    /// The code would resume although the await is not satisfied.
    ResumeUnsatisfied,
    /// A caller requests cancellation.
    RequestCancel,
    /// The code returns a result.
    Complete,
    /// The code returns an error or traps.
    Fail,
    /// Cancellation becomes final and ends the execution.
    Cancel,
}

impl LifecycleAction {
    /// All actions, in the order of the rows of the transition table.
    pub const ALL: [Self; 12] = [
        Self::Start,
        Self::Allocate,
        Self::UseJoinSet,
        Self::Await,
        Self::Arrive,
        Self::Receive,
        Self::Resume,
        Self::ResumeUnsatisfied,
        Self::RequestCancel,
        Self::Complete,
        Self::Fail,
        Self::Cancel,
    ];
}

/// The transition table: returns the phase that `act` leads to from `phase`. Fails with the rule
/// that forbids the action.
pub const fn phase_transition(
    phase: ExecutionPhase,
    act: LifecycleAction,
) -> Result<ExecutionPhase, Rule> {
    use ExecutionPhase as P;
    use LifecycleAction as A;
    match (phase, act) {
        (P::New, A::Start) => Ok(P::Running),
        (P::New, _) => Err(Rule::S2),

        (P::Completed | P::Failed | P::Cancelled, A::Complete | A::Fail | A::Cancel) => {
            Err(Rule::S3)
        }
        (P::Completed | P::Failed | P::Cancelled, _) => Err(Rule::S4),
        (_, A::Start) => Err(Rule::S2),

        (P::Running, A::Allocate | A::UseJoinSet) => Ok(P::Running),
        (P::Cancelling, A::Allocate | A::UseJoinSet) => Ok(P::Cancelling),
        (P::Blocked | P::CleanupBlocked, A::Allocate) => Err(Rule::G1),
        (P::Blocked | P::CleanupBlocked, A::UseJoinSet) => Err(Rule::G6),

        (P::Running, A::Await) => Ok(P::Blocked),
        (P::Cancelling, A::Await) => Ok(P::CleanupBlocked),
        (P::Blocked | P::CleanupBlocked, A::Await) => Err(Rule::G2),

        (P::Blocked, A::Resume) => Ok(P::Running),
        (P::CleanupBlocked, A::Resume) => Ok(P::Cancelling),
        (P::Running | P::Cancelling, A::Resume) | (_, A::ResumeUnsatisfied) => Err(Rule::G4),

        (_, A::Arrive | A::Receive) => Ok(phase),

        (P::Running | P::Blocked, A::RequestCancel) => Ok(P::Cancelling),
        (P::Cancelling | P::CleanupBlocked, A::RequestCancel) => Err(Rule::G5),

        (P::Running | P::Cancelling, A::Complete) => Ok(P::Completed),
        (P::Running | P::Cancelling, A::Fail) => Ok(P::Failed),
        (P::Blocked | P::CleanupBlocked, A::Complete | A::Fail) => Err(Rule::G3),

        // Allowed with an open await too: cleanup that never returns must not keep an execution
        // alive.
        (P::Cancelling | P::CleanupBlocked, A::Cancel) => Ok(P::Cancelled),
        (P::Running | P::Blocked, A::Cancel) => Err(Rule::S5),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    #[test]
    fn every_phase_and_action_has_its_row() {
        let mut table = String::new();
        for act in LifecycleAction::ALL {
            table += &format!("{:<18}", format!("{act:?}"));
            for phase in ExecutionPhase::ALL {
                let cell = match phase_transition(phase, act) {
                    Ok(next) => format!("{next:?}"),
                    Err(rule) => rule.id().to_owned(),
                };
                table += &format!(" {cell:<14}");
            }
            table = format!("{}\n", table.trim_end());
        }
        expect![[r#"
            Start              Running        S-2            S-2            S-2            S-2            S-4            S-4            S-4
            Allocate           S-2            Running        G-1            Cancelling     G-1            S-4            S-4            S-4
            UseJoinSet         S-2            Running        G-6            Cancelling     G-6            S-4            S-4            S-4
            Await              S-2            Blocked        G-2            CleanupBlocked G-2            S-4            S-4            S-4
            Arrive             S-2            Running        Blocked        Cancelling     CleanupBlocked S-4            S-4            S-4
            Receive            S-2            Running        Blocked        Cancelling     CleanupBlocked S-4            S-4            S-4
            Resume             S-2            G-4            Running        G-4            Cancelling     S-4            S-4            S-4
            ResumeUnsatisfied  S-2            G-4            G-4            G-4            G-4            S-4            S-4            S-4
            RequestCancel      S-2            Cancelling     Cancelling     G-5            G-5            S-4            S-4            S-4
            Complete           S-2            Completed      G-3            Completed      G-3            S-3            S-3            S-3
            Fail               S-2            Failed         G-3            Failed         G-3            S-3            S-3            S-3
            Cancel             S-2            S-5            S-5            Cancelled      Cancelled      S-3            S-3            S-3
        "#]].assert_eq(&table);
    }

    #[test]
    fn users_see_six_states() {
        let seen: Vec<String> = ExecutionPhase::ALL
            .iter()
            .filter_map(|phase| phase.execution_state())
            .map(|s| s.to_string())
            .collect();
        assert_eq!(
            seen,
            [
                "Running",
                "Blocked",
                "Cancelling",
                "Cancelling",
                "Completed",
                "Failed",
                "Cancelled"
            ]
        );
        assert!(
            ExecutionPhase::ALL
                .iter()
                .filter(|phase| phase.is_terminal())
                .count()
                == 3
        );
    }
}
