//! The life of a run and of a step as two tables: what may happen where, and where it leads.
//!
//! Producers are refused by these tables, and the reducer ignores by them what got into a log nevertheless. There is one
//! judge.

use crate::{Attempt, RunAct, RunStatus, StepAct, StepStatus};

/// What decides what may happen to a run.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Standing {
    /// Its status.
    pub status: RunStatus,
    /// Whether cancellation was requested.
    pub cancelling: bool,
    /// Whether a step is running.
    pub busy: bool,
}

/// Where `act` leads a run; `None` if it is illegal.
pub const fn run_transition(standing: Standing, act: RunAct) -> Option<RunStatus> {
    use RunAct as A;
    use RunStatus as S;
    let Standing { status, cancelling, busy } = standing;
    match (status, act) {
        (S::Completed | S::Failed | S::Cancelled, _) => None,

        (S::Pending | S::Approved, A::Queued) => Some(status),
        (S::Pending, A::Approved) => Some(S::Approved),
        (S::Pending | S::Approved, A::Started) => Some(S::Running),

        // A run that is being cancelled is neither held up nor set going again.
        (S::Running, A::Paused) if !cancelling => Some(S::Paused),
        (S::Paused, A::Resumed) if !cancelling => Some(S::Running),
        (_, A::CancelRequested) if !cancelling => Some(status),

        (S::Running, A::Completed) if !busy => Some(S::Completed),
        (_, A::Failed) => Some(S::Failed),
        (_, A::Cancelled) => Some(S::Cancelled),

        (_, A::Queued | A::Approved | A::Started | A::Paused | A::Resumed | A::CancelRequested | A::Completed) => None,
    }
}

/// Whether `act` may happen to a step while the run has this status. A paused run lets its steps finish.
pub const fn run_allows(status: RunStatus, act: StepAct) -> bool {
    match (status, act) {
        (RunStatus::Running, _) => true,
        (RunStatus::Paused, StepAct::Completed | StepAct::Failed | StepAct::Skipped) => true,
        (RunStatus::Paused, StepAct::Started) => false,
        (RunStatus::Pending | RunStatus::Approved, _) => false,
        (RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled, _) => false,
    }
}

/// How the attempts that an event names relate to those of its step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Try {
    /// The same attempt of both kinds, or an earlier one of the platform's.
    Same,
    /// The same logical attempt, tried again by the platform.
    Again,
    /// The next logical attempt.
    Next,
    /// An attempt that jumps ahead or goes back.
    Stray,
}

impl Try {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Same, Self::Again, Self::Next, Self::Stray];

    /// How an event's logical and engine attempt relate to the last ones of its step. Before the first event of a step its
    /// last attempt is none, and 1 is the next.
    pub fn relate(last: Option<(Attempt, Attempt)>, (logical, engine): (Attempt, Attempt)) -> Self {
        match last {
            None if logical == Attempt::FIRST => Self::Next,
            None => Self::Stray,
            Some((last, last_engine)) if logical == last && engine <= last_engine => Self::Same,
            Some((last, _)) if logical == last => Self::Again,
            Some((last, _)) if last.next() == Some(logical) => Self::Next,
            Some(_) => Self::Stray,
        }
    }
}

/// Where `act` of this attempt leads a step; `None` if it is illegal.
pub const fn step_transition(status: StepStatus, act: StepAct, attempt: Try) -> Option<StepStatus> {
    use StepAct as A;
    use StepStatus as S;
    match (status, act, attempt) {
        (S::Pending, A::Started, Try::Next) => Some(S::Running),
        (S::Pending, A::Completed, Try::Next) => Some(S::Success),
        (S::Pending, A::Failed, Try::Next) => Some(S::Failed),
        (S::Pending, A::Skipped, Try::Next) => Some(S::Skipped),

        (S::Running, A::Started, Try::Again) => Some(S::Running),
        (S::Running, A::Completed, Try::Same | Try::Again) => Some(S::Success),
        (S::Running, A::Failed, Try::Same | Try::Again) => Some(S::Failed),
        (S::Running, A::Skipped, Try::Same | Try::Again) => Some(S::Skipped),

        (S::Failed, A::Started, Try::Next) => Some(S::Running),
        (S::Failed, A::Skipped, Try::Same | Try::Again) => Some(S::Skipped),

        (S::Pending | S::Running | S::Failed | S::Success | S::Skipped, _, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::EventKind;

    fn cell(next: Option<impl ToString>) -> String {
        next.map_or_else(|| "-".to_owned(), |next| next.to_string())
    }

    fn row(title: &str, cells: impl Iterator<Item = String>) -> String {
        let mut row = format!("{title:<32}");
        for cell in cells {
            row += &format!(" {cell:<10}");
        }
        format!("{}\n", row.trim_end())
    }

    /// The run's row for an act, while cancelling or busy or both.
    fn run_row(act: RunAct, cancelling: bool, busy: bool) -> Vec<String> {
        let standings = RunStatus::ALL.iter().map(|&status| Standing { status, cancelling, busy });
        standings.map(|standing| cell(run_transition(standing, act))).collect()
    }

    #[test]
    fn every_status_of_a_run_and_every_event_has_its_row() {
        let mut table = row("", RunStatus::ALL.iter().map(ToString::to_string));
        for (name, kind) in EventKind::KNOWN {
            let EventKind::Run(act) = *kind else { continue };
            let mut rows = vec![run_row(act, false, false)];
            table += &row(name, rows[0].iter().cloned());
            for (note, cancelling, busy) in [("cancelling", true, false), ("busy", false, true), ("both", true, true)] {
                let held = run_row(act, cancelling, busy);
                if !rows.contains(&held) {
                    table += &row(&format!("{name}, {note}"), held.iter().cloned());
                    rows.push(held);
                }
            }
        }
        expect![[r#"
                                             PENDING    APPROVED   RUNNING    PAUSED     COMPLETED  FAILED     CANCELLED
            RunQueued                        PENDING    APPROVED   -          -          -          -          -
            RunApproved                      APPROVED   -          -          -          -          -          -
            RunStarted                       RUNNING    RUNNING    -          -          -          -          -
            RunPaused                        -          -          PAUSED     -          -          -          -
            RunPaused, cancelling            -          -          -          -          -          -          -
            RunResumed                       -          -          -          RUNNING    -          -          -
            RunResumed, cancelling           -          -          -          -          -          -          -
            RunCancelRequested               PENDING    APPROVED   RUNNING    PAUSED     -          -          -
            RunCancelRequested, cancelling   -          -          -          -          -          -          -
            RunCancelled                     CANCELLED  CANCELLED  CANCELLED  CANCELLED  -          -          -
            RunFailed                        FAILED     FAILED     FAILED     FAILED     -          -          -
            RunCompleted                     -          -          COMPLETED  -          -          -          -
            RunCompleted, busy               -          -          -          -          -          -          -
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn every_status_of_a_run_says_what_its_steps_may_do() {
        let mut table = row("", RunStatus::ALL.iter().map(ToString::to_string));
        for (name, kind) in EventKind::KNOWN {
            let EventKind::Step(act) = *kind else { continue };
            let allowed = |status: &RunStatus| if run_allows(*status, act) { "yes" } else { "-" };
            table += &row(name, RunStatus::ALL.iter().map(|status| allowed(status).to_owned()));
        }
        expect![[r#"
                                             PENDING    APPROVED   RUNNING    PAUSED     COMPLETED  FAILED     CANCELLED
            StepStarted                      -          -          yes        -          -          -          -
            StepCompleted                    -          -          yes        yes        -          -          -
            StepFailed                       -          -          yes        yes        -          -          -
            StepSkipped                      -          -          yes        yes        -          -          -
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn every_status_of_a_step_and_every_event_has_its_row() {
        let mut table = row("", StepStatus::ALL.iter().map(ToString::to_string));
        for (name, kind) in EventKind::KNOWN {
            let EventKind::Step(act) = *kind else { continue };
            for attempt in Try::ALL {
                let cells = StepStatus::ALL.iter().map(|&status| cell(step_transition(status, act, attempt)));
                table += &row(&format!("{name}, {attempt:?}"), cells);
            }
        }
        expect![[r#"
                                             PENDING    RUNNING    SUCCESS    FAILED     SKIPPED
            StepStarted, Same                -          -          -          -          -
            StepStarted, Again               -          RUNNING    -          -          -
            StepStarted, Next                RUNNING    -          -          RUNNING    -
            StepStarted, Stray               -          -          -          -          -
            StepCompleted, Same              -          SUCCESS    -          -          -
            StepCompleted, Again             -          SUCCESS    -          -          -
            StepCompleted, Next              SUCCESS    -          -          -          -
            StepCompleted, Stray             -          -          -          -          -
            StepFailed, Same                 -          FAILED     -          -          -
            StepFailed, Again                -          FAILED     -          -          -
            StepFailed, Next                 FAILED     -          -          -          -
            StepFailed, Stray                -          -          -          -          -
            StepSkipped, Same                -          SKIPPED    -          SKIPPED    -
            StepSkipped, Again               -          SKIPPED    -          SKIPPED    -
            StepSkipped, Next                SKIPPED    -          -          -          -
            StepSkipped, Stray               -          -          -          -          -
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn attempts_neither_jump_nor_go_back() {
        let tried = |logical: u32, engine: u32| (Attempt::new(logical).unwrap(), Attempt::new(engine).unwrap());
        for (last, event, expected) in [
            (None, tried(1, 7), Try::Next),
            (None, tried(2, 1), Try::Stray),
            (Some(tried(2, 3)), tried(2, 3), Try::Same),
            (Some(tried(2, 3)), tried(2, 2), Try::Same),
            (Some(tried(2, 3)), tried(2, 4), Try::Again),
            (Some(tried(2, 3)), tried(3, 1), Try::Next),
            (Some(tried(2, 3)), tried(1, 4), Try::Stray),
            (Some(tried(2, 3)), tried(4, 1), Try::Stray),
            (Some(tried(i32::MAX as u32, 1)), tried(1, 1), Try::Stray),
        ] {
            assert_eq!(Try::relate(last, event), expected, "{last:?} {event:?}");
        }
    }
}
