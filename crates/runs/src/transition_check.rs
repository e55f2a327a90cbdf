//! Whether an event may follow: the transition tables, asked about a snapshot. Producers and the reducer ask here.

use thiserror::Error;

use crate::transition::{
    AttemptRelation, RunTransitionState, run_allows_step, run_transition, step_transition,
};
use crate::{
    AttemptNumber, RunAction, RunEventKind, RunEventType, RunEventWrite, RunId, RunSnapshot,
    RunStatus, StepAction, StepId, StepStatus,
};

/// Whether `event` may follow. The reducer judges the same way, so what a producer was not refused is never ignored.
pub fn check_transition(
    snapshot: &RunSnapshot,
    event: &RunEventWrite,
) -> Result<(), InvalidTransition> {
    evaluate_event(snapshot, event).map(|_| ())
}

/// Why an event may not follow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidTransition {
    /// It belongs to another run.
    #[error("{event_type} belongs to run {found}, not to {expected}")]
    OtherRun {
        /// What happened.
        event_type: RunEventType,
        /// The run it names.
        found: RunId,
        /// The run it was held against.
        expected: RunId,
    },
    /// The run is not where this can happen to it.
    #[error(
        "{event_type} cannot follow: the run is {}",
        describe_run_state(run_state)
    )]
    Run {
        /// What happened.
        event_type: RunEventType,
        /// Where the run stands.
        run_state: RunTransitionState,
    },
    /// The run is not where this can happen to a step.
    #[error("{event_type} cannot follow: the run is {status}")]
    RunOfStep {
        /// What happened.
        event_type: RunEventType,
        /// Where the run is.
        status: RunStatus,
    },
    /// The event is about a step, and does not say which.
    #[error("{0} cannot follow: it names no step")]
    NoStep(RunEventType),
    /// The step is not where this can happen to it.
    #[error(
        "{event_type} of step {step_id}, attempt {attempt}, cannot follow: the step is {}",
        describe_step_state(last)
    )]
    Step {
        /// What happened.
        event_type: RunEventType,
        /// To which step.
        step_id: StepId,
        /// Which logical attempt.
        attempt: AttemptNumber,
        /// Where the step is and at which logical attempt; `None` if nothing happened to it yet.
        last: Option<(StepStatus, AttemptNumber)>,
    },
}

impl InvalidTransition {
    /// What it is called in alerts; the name is stable.
    pub const CODE: &str = "INVALID_TRANSITION";
}

fn describe_run_state(standing: &RunTransitionState) -> String {
    let RunTransitionState {
        status,
        is_cancelling: cancelling,
        has_running_step: busy,
    } = standing;
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

/// What a legal event does.
#[derive(Clone, Copy)]
pub(crate) enum SnapshotChange<'a> {
    /// No more than the watermark.
    Nothing,
    /// The run goes to a status.
    Run(RunAction, RunStatus),
    /// A step appears, with a status.
    NewStep(&'a StepId, StepAction, StepStatus),
    /// The step at this place goes to a status.
    Step(usize, StepAction, StepStatus),
}

type TransitionResult<'a> = Result<SnapshotChange<'a>, InvalidTransition>;

/// What `event` does to the snapshot, or why it may not follow.
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
    let standing = snapshot.transition_state();
    match run_transition(standing, act) {
        Some(next) => Ok(SnapshotChange::Run(act, next)),
        None => Err(InvalidTransition::Run {
            event_type: event.event_type.clone(),
            run_state: standing,
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
