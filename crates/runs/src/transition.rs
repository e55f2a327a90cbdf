//! The state machines of a run and of a step as two tables: which action is legal in which state,
//! and which state follows.
//!
//! Producers are rejected according to these tables, and the reducer uses the same tables to ignore
//! illegal events that are in a log nevertheless. There is no second set of rules.

use crate::{AttemptNumber, RunAction, RunStatus, StepAction, StepStatus};

/// The part of a run's state that decides which actions are legal.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RunTransitionState {
    /// Status of the run.
    pub status: RunStatus,
    /// `true` if cancellation was requested.
    pub is_cancelling: bool,
    /// `true` if at least one step is running.
    pub has_running_step: bool,
}

/// Returns the status of a run after `act`; `None` if `act` is illegal.
pub const fn run_transition(state: RunTransitionState, act: RunAction) -> Option<RunStatus> {
    use RunAction as A;
    use RunStatus as S;
    let RunTransitionState {
        status,
        is_cancelling: cancelling,
        has_running_step: busy,
    } = state;
    match (status, act) {
        (S::Completed | S::Failed | S::Cancelled, _) => None,

        (S::Pending | S::Approved, A::Queued) => Some(status),
        (S::Pending, A::Approved) => Some(S::Approved),
        (S::Pending | S::Approved, A::Started) => Some(S::Running),

        // A run that is being cancelled can be neither paused nor resumed.
        (S::Running, A::Paused) if !cancelling => Some(S::Paused),
        (S::Paused, A::Resumed) if !cancelling => Some(S::Running),
        (_, A::CancelRequested) if !cancelling => Some(status),

        (S::Running, A::Completed) if !busy => Some(S::Completed),
        (_, A::Failed) => Some(S::Failed),
        (_, A::Cancelled) => Some(S::Cancelled),

        (
            _,
            A::Queued
            | A::Approved
            | A::Started
            | A::Paused
            | A::Resumed
            | A::CancelRequested
            | A::Completed,
        ) => None,
    }
}

/// Returns `true` if `act` is legal for a step while the run has this status. The steps of a paused
/// run may finish.
pub const fn run_allows_step(status: RunStatus, act: StepAction) -> bool {
    match (status, act) {
        (RunStatus::Running, _) => true,
        (RunStatus::Paused, StepAction::Completed | StepAction::Failed | StepAction::Skipped) => {
            true
        }
        (RunStatus::Paused, StepAction::Started) => false,
        (RunStatus::Pending | RunStatus::Approved, _) => false,
        (RunStatus::Completed | RunStatus::Failed | RunStatus::Cancelled, _) => false,
    }
}

/// Relation of the attempts that an event names to the last attempts of its step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AttemptRelation {
    /// The same logical attempt, and the same or an earlier engine attempt.
    Same,
    /// The same logical attempt with a later engine attempt: a retry by the platform.
    EngineRetry,
    /// The next logical attempt.
    NextLogical,
    /// A logical attempt that skips numbers or goes backwards.
    OutOfOrder,
}

impl AttemptRelation {
    /// All relations, in order of declaration.
    pub const ALL: [Self; 4] = [
        Self::Same,
        Self::EngineRetry,
        Self::NextLogical,
        Self::OutOfOrder,
    ];

    /// Returns the relation of an event's logical and engine attempt to the last ones of its step.
    /// Before the first event of a step, `last` is `None` and logical attempt 1 is the next one.
    pub fn from_attempts(
        last: Option<(AttemptNumber, AttemptNumber)>,
        (logical, engine): (AttemptNumber, AttemptNumber),
    ) -> Self {
        match last {
            None if logical == AttemptNumber::FIRST => Self::NextLogical,
            None => Self::OutOfOrder,
            Some((last, last_engine)) if logical == last && engine <= last_engine => Self::Same,
            Some((last, _)) if logical == last => Self::EngineRetry,
            Some((last, _)) if last.next_attempt() == Some(logical) => Self::NextLogical,
            Some(_) => Self::OutOfOrder,
        }
    }
}

/// Returns the status of a step after `act` of this attempt; `None` if `act` is illegal.
pub const fn step_transition(
    status: StepStatus,
    act: StepAction,
    attempt: AttemptRelation,
) -> Option<StepStatus> {
    use StepAction as A;
    use StepStatus as S;
    match (status, act, attempt) {
        (S::Pending, A::Started, AttemptRelation::NextLogical) => Some(S::Running),
        (S::Pending, A::Completed, AttemptRelation::NextLogical) => Some(S::Success),
        (S::Pending, A::Failed, AttemptRelation::NextLogical) => Some(S::Failed),
        (S::Pending, A::Skipped, AttemptRelation::NextLogical) => Some(S::Skipped),

        (S::Running, A::Started, AttemptRelation::EngineRetry) => Some(S::Running),
        (S::Running, A::Completed, AttemptRelation::Same | AttemptRelation::EngineRetry) => {
            Some(S::Success)
        }
        (S::Running, A::Failed, AttemptRelation::Same | AttemptRelation::EngineRetry) => {
            Some(S::Failed)
        }
        (S::Running, A::Skipped, AttemptRelation::Same | AttemptRelation::EngineRetry) => {
            Some(S::Skipped)
        }

        (S::Failed, A::Started, AttemptRelation::NextLogical) => Some(S::Running),
        (S::Failed, A::Skipped, AttemptRelation::Same | AttemptRelation::EngineRetry) => {
            Some(S::Skipped)
        }

        (S::Pending | S::Running | S::Failed | S::Success | S::Skipped, _, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;
    use crate::RunEventKind;

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

    /// The run's row of the table for an action, with the flags for cancelling and busy.
    fn run_row(act: RunAction, cancelling: bool, busy: bool) -> Vec<String> {
        let states = RunStatus::ALL.iter().map(|&status| RunTransitionState {
            status,
            is_cancelling: cancelling,
            has_running_step: busy,
        });
        states
            .map(|state| cell(run_transition(state, act)))
            .collect()
    }

    #[test]
    fn every_status_of_a_run_and_every_event_has_its_row() {
        let mut table = row("", RunStatus::ALL.iter().map(ToString::to_string));
        for (name, kind) in RunEventKind::KNOWN {
            let RunEventKind::Run(act) = *kind else {
                continue;
            };
            let mut rows = vec![run_row(act, false, false)];
            table += &row(name, rows[0].iter().cloned());
            for (note, cancelling, busy) in [
                ("cancelling", true, false),
                ("busy", false, true),
                ("both", true, true),
            ] {
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
    fn every_status_of_a_run_allows_these_step_events() {
        let mut table = row("", RunStatus::ALL.iter().map(ToString::to_string));
        for (name, kind) in RunEventKind::KNOWN {
            let RunEventKind::Step(act) = *kind else {
                continue;
            };
            let allowed = |status: &RunStatus| {
                if run_allows_step(*status, act) {
                    "yes"
                } else {
                    "-"
                }
            };
            table += &row(
                name,
                RunStatus::ALL
                    .iter()
                    .map(|status| allowed(status).to_owned()),
            );
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
        for (name, kind) in RunEventKind::KNOWN {
            let RunEventKind::Step(act) = *kind else {
                continue;
            };
            for attempt in AttemptRelation::ALL {
                let cells = StepStatus::ALL
                    .iter()
                    .map(|&status| cell(step_transition(status, act, attempt)));
                table += &row(&format!("{name}, {attempt:?}"), cells);
            }
        }
        expect![[r#"
                                             PENDING    RUNNING    SUCCESS    FAILED     SKIPPED
            StepStarted, Same                -          -          -          -          -
            StepStarted, EngineRetry         -          RUNNING    -          -          -
            StepStarted, NextLogical         RUNNING    -          -          RUNNING    -
            StepStarted, OutOfOrder          -          -          -          -          -
            StepCompleted, Same              -          SUCCESS    -          -          -
            StepCompleted, EngineRetry       -          SUCCESS    -          -          -
            StepCompleted, NextLogical       SUCCESS    -          -          -          -
            StepCompleted, OutOfOrder        -          -          -          -          -
            StepFailed, Same                 -          FAILED     -          -          -
            StepFailed, EngineRetry          -          FAILED     -          -          -
            StepFailed, NextLogical          FAILED     -          -          -          -
            StepFailed, OutOfOrder           -          -          -          -          -
            StepSkipped, Same                -          SKIPPED    -          SKIPPED    -
            StepSkipped, EngineRetry         -          SKIPPED    -          SKIPPED    -
            StepSkipped, NextLogical         SKIPPED    -          -          -          -
            StepSkipped, OutOfOrder          -          -          -          -          -
        "#]]
        .assert_eq(&table);
    }

    #[test]
    fn attempts_neither_jump_nor_go_back() {
        let tried = |logical: u32, engine: u32| {
            (
                AttemptNumber::new(logical).unwrap(),
                AttemptNumber::new(engine).unwrap(),
            )
        };
        for (last, event, expected) in [
            (None, tried(1, 7), AttemptRelation::NextLogical),
            (None, tried(2, 1), AttemptRelation::OutOfOrder),
            (Some(tried(2, 3)), tried(2, 3), AttemptRelation::Same),
            (Some(tried(2, 3)), tried(2, 2), AttemptRelation::Same),
            (Some(tried(2, 3)), tried(2, 4), AttemptRelation::EngineRetry),
            (Some(tried(2, 3)), tried(3, 1), AttemptRelation::NextLogical),
            (Some(tried(2, 3)), tried(1, 4), AttemptRelation::OutOfOrder),
            (Some(tried(2, 3)), tried(4, 1), AttemptRelation::OutOfOrder),
            (
                Some(tried(i32::MAX as u32, 1)),
                tried(1, 1),
                AttemptRelation::OutOfOrder,
            ),
        ] {
            assert_eq!(
                AttemptRelation::from_attempts(last, event),
                expected,
                "{last:?} {event:?}"
            );
        }
    }
}
