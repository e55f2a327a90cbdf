//! Checks whether an event is legal in the state of a snapshot, according to the transition tables.
//! Producers and the reducer use the same check.

use thiserror::Error;

use crate::transition::{
    AttemptRelation, RunTransitionState, run_allows_step, run_transition, step_transition,
};
use crate::{
    AttemptNumber, RunAction, RunEventKind, RunEventType, RunEventWrite, RunId, RunSnapshot,
    RunStatus, StepAction, StepId, StepStatus,
};

/// Checks that `event` may follow. The reducer applies the same rules, so it never ignores an event
/// that this check accepted.
pub fn check_transition(
    snapshot: &RunSnapshot,
    event: &RunEventWrite,
) -> Result<(), InvalidTransition> {
    evaluate_event(snapshot, event).map(|_| ())
}

/// Reason why an event may not follow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidTransition {
    /// The event belongs to another run.
    #[error("{event_type} belongs to run {found}, not to {expected}")]
    OtherRun {
        /// Type of the rejected event.
        event_type: RunEventType,
        /// The run that the event names.
        found: RunId,
        /// The run of the snapshot that the event was checked against.
        expected: RunId,
    },
    /// The state of the run does not allow this run event.
    #[error(
        "{event_type} cannot follow: the run is {}",
        describe_run_state(run_state)
    )]
    Run {
        /// Type of the rejected event.
        event_type: RunEventType,
        /// State of the run at the check.
        run_state: RunTransitionState,
    },
    /// The status of the run does not allow this step event.
    #[error("{event_type} cannot follow: the run is {status}")]
    RunOfStep {
        /// Type of the rejected event.
        event_type: RunEventType,
        /// Status of the run at the check.
        status: RunStatus,
    },
    /// The event type refers to a step, but the event names no step.
    #[error("{0} cannot follow: it names no step")]
    NoStep(RunEventType),
    /// The state of the step does not allow this event.
    #[error(
        "{event_type} of step {step_id}, attempt {attempt}, cannot follow: the step is {}",
        describe_step_state(last)
    )]
    Step {
        /// Type of the rejected event.
        event_type: RunEventType,
        /// The step that the event names.
        step_id: StepId,
        /// The logical attempt that the event names.
        attempt: AttemptNumber,
        /// Status and last logical attempt of the step; `None` before its first event.
        last: Option<(StepStatus, AttemptNumber)>,
    },
}

impl InvalidTransition {
    /// Stable code for alerts.
    pub const CODE: &str = "INVALID_TRANSITION";
}

fn describe_run_state(state: &RunTransitionState) -> String {
    let RunTransitionState {
        status,
        is_cancelling: cancelling,
        has_running_step: busy,
    } = state;
    let cancelling = if *cancelling { ", being cancelled" } else { "" };
    let busy = if *busy { ", with a step running" } else { "" };
    format!("{status}{cancelling}{busy}")
}

fn describe_step_state(last: &Option<(StepStatus, AttemptNumber)>) -> String {
    last.map_or_else(
        || StepStatus::Pending.to_string(),
        |(status, attempt)| format!("{status} at attempt {attempt}"),
    )
}

/// Effect of a legal event on the snapshot.
#[derive(Clone, Copy)]
pub(crate) enum SnapshotChange<'a> {
    /// The event advances the watermark only.
    Nothing,
    /// The run changes to this status.
    Run(RunAction, RunStatus),
    /// A step appears for the first time, with this status.
    NewStep(&'a StepId, StepAction, StepStatus),
    /// The step at this position changes to this status.
    Step(usize, StepAction, StepStatus),
}

type TransitionResult<'a> = Result<SnapshotChange<'a>, InvalidTransition>;

/// Returns the effect of `event` on the snapshot, or the reason why it may not follow.
pub(crate) fn evaluate_event<'a>(
    snapshot: &RunSnapshot,
    event: &'a RunEventWrite,
) -> TransitionResult<'a> {
    if event.run_id != snapshot.run_id {
        let (found, expected) = (event.run_id.clone(), snapshot.run_id.clone());
        return Err(InvalidTransition::OtherRun {
            event_type: event.event_type.clone(),
            found,
            expected,
        });
    }
    match event.event_type.event_kind() {
        RunEventKind::Run(act) => evaluate_run_event(snapshot, event, act),
        RunEventKind::Step(act) => evaluate_step_event(snapshot, event, act),
        RunEventKind::Signal(_) | RunEventKind::Unknown => Ok(SnapshotChange::Nothing),
    }
}

fn evaluate_run_event<'a>(
    snapshot: &RunSnapshot,
    event: &'a RunEventWrite,
    act: RunAction,
) -> TransitionResult<'a> {
    let state = snapshot.transition_state();
    match run_transition(state, act) {
        Some(next) => Ok(SnapshotChange::Run(act, next)),
        None => Err(InvalidTransition::Run {
            event_type: event.event_type.clone(),
            run_state: state,
        }),
    }
}

fn evaluate_step_event<'a>(
    snapshot: &RunSnapshot,
    event: &'a RunEventWrite,
    act: StepAction,
) -> TransitionResult<'a> {
    let event_type = || event.event_type.clone();
    if !run_allows_step(snapshot.status, act) {
        return Err(InvalidTransition::RunOfStep {
            event_type: event_type(),
            status: snapshot.status,
        });
    }
    let Some(step_id) = &event.step_id else {
        return Err(InvalidTransition::NoStep(event_type()));
    };
    let place = snapshot.steps.position_of(step_id);
    let latest = place
        .map(|place| &snapshot.steps[place].latest)
        .filter(|it| it.status != StepStatus::Pending);
    let status = latest.map_or(StepStatus::Pending, |latest| latest.status);
    let last = latest.map(|latest| (latest.logical_attempt_id, latest.engine_attempt_id));
    let attempt =
        AttemptRelation::from_attempts(last, (event.logical_attempt_id, event.engine_attempt_id));
    match (step_transition(status, act, attempt), place) {
        (Some(next), Some(place)) => Ok(SnapshotChange::Step(place, act, next)),
        (Some(next), None) => Ok(SnapshotChange::NewStep(step_id, act, next)),
        (None, _) => Err(InvalidTransition::Step {
            event_type: event_type(),
            step_id: step_id.clone(),
            attempt: event.logical_attempt_id,
            last: last.map(|(logical, _)| (status, logical)),
        }),
    }
}
