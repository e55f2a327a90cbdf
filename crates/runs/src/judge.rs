//! Whether an event may follow: the transition tables, asked about a snapshot. Producers and the reducer ask here.

use thiserror::Error;

use crate::transition::{Standing, Try, run_allows, run_transition, step_transition};
use crate::{
    Attempt, EventKind, EventType, RunAct, RunEventWrite, RunId, RunSnapshot, RunStatus, StepAct, StepId, StepStatus,
};

/// Whether `event` may follow. The reducer judges the same way, so what a producer was not refused is never ignored.
pub fn legal(snapshot: &RunSnapshot, event: &RunEventWrite) -> Result<(), InvalidTransition> {
    judge(snapshot, event).map(|_| ())
}

/// Why an event may not follow.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidTransition {
    /// It belongs to another run.
    #[error("{event_type} belongs to run {found}, not to {expected}")]
    OtherRun {
        /// What happened.
        event_type: EventType,
        /// The run it names.
        found: RunId,
        /// The run it was held against.
        expected: RunId,
    },
    /// The run is not where this can happen to it.
    #[error("{event_type} cannot follow: the run is {}", describe(standing))]
    Run {
        /// What happened.
        event_type: EventType,
        /// Where the run stands.
        standing: Standing,
    },
    /// The run is not where this can happen to a step.
    #[error("{event_type} cannot follow: the run is {status}")]
    RunOfStep {
        /// What happened.
        event_type: EventType,
        /// Where the run is.
        status: RunStatus,
    },
    /// The event is about a step, and does not say which.
    #[error("{0} cannot follow: it names no step")]
    NoStep(EventType),
    /// The step is not where this can happen to it.
    #[error("{event_type} of step {step_id}, attempt {attempt}, cannot follow: the step is {}", describe_step(last))]
    Step {
        /// What happened.
        event_type: EventType,
        /// To which step.
        step_id: StepId,
        /// Which logical attempt.
        attempt: Attempt,
        /// Where the step is and at which logical attempt; `None` if nothing happened to it yet.
        last: Option<(StepStatus, Attempt)>,
    },
}

impl InvalidTransition {
    /// What it is called in alerts; the name is stable.
    pub const CODE: &str = "INVALID_TRANSITION";
}

fn describe(standing: &Standing) -> String {
    let Standing { status, cancelling, busy } = standing;
    let cancelling = if *cancelling { ", being cancelled" } else { "" };
    let busy = if *busy { ", with a step running" } else { "" };
    format!("{status}{cancelling}{busy}")
}

fn describe_step(last: &Option<(StepStatus, Attempt)>) -> String {
    last.map_or_else(|| StepStatus::Pending.to_string(), |(status, attempt)| format!("{status} at attempt {attempt}"))
}

/// What a legal event does.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    /// No more than the watermark.
    Nothing,
    /// The run goes to a status.
    Run(RunAct, RunStatus),
    /// A step appears, with a status.
    NewStep(&'a StepId, StepAct, StepStatus),
    /// The step at this place goes to a status.
    Step(usize, StepAct, StepStatus),
}

type Judgement<'a> = Result<Change<'a>, InvalidTransition>;

/// What `event` does to the snapshot, or why it may not follow.
pub(crate) fn judge<'a>(snapshot: &RunSnapshot, event: &'a RunEventWrite) -> Judgement<'a> {
    if event.run_id != snapshot.run_id {
        let (found, expected) = (event.run_id.clone(), snapshot.run_id.clone());
        return Err(InvalidTransition::OtherRun { event_type: event.event_type.clone(), found, expected });
    }
    match event.event_type.kind() {
        EventKind::Run(act) => judge_run(snapshot, event, act),
        EventKind::Step(act) => judge_step(snapshot, event, act),
        EventKind::Signal(_) | EventKind::Unknown => Ok(Change::Nothing),
    }
}

fn judge_run<'a>(snapshot: &RunSnapshot, event: &'a RunEventWrite, act: RunAct) -> Judgement<'a> {
    let standing = snapshot.standing();
    match run_transition(standing, act) {
        Some(next) => Ok(Change::Run(act, next)),
        None => Err(InvalidTransition::Run { event_type: event.event_type.clone(), standing }),
    }
}

fn judge_step<'a>(snapshot: &RunSnapshot, event: &'a RunEventWrite, act: StepAct) -> Judgement<'a> {
    let event_type = || event.event_type.clone();
    if !run_allows(snapshot.status, act) {
        return Err(InvalidTransition::RunOfStep { event_type: event_type(), status: snapshot.status });
    }
    let Some(step_id) = &event.step_id else {
        return Err(InvalidTransition::NoStep(event_type()));
    };
    let place = snapshot.steps.place(step_id);
    let latest = place.map(|place| &snapshot.steps[place].latest).filter(|it| it.status != StepStatus::Pending);
    let status = latest.map_or(StepStatus::Pending, |latest| latest.status);
    let last = latest.map(|latest| (latest.logical_attempt_id, latest.engine_attempt_id));
    let attempt = Try::relate(last, (event.logical_attempt_id, event.engine_attempt_id));
    match (step_transition(status, act, attempt), place) {
        (Some(next), Some(place)) => Ok(Change::Step(place, act, next)),
        (Some(next), None) => Ok(Change::NewStep(step_id, act, next)),
        (None, _) => Err(InvalidTransition::Step {
            event_type: event_type(),
            step_id: step_id.clone(),
            attempt: event.logical_attempt_id,
            last: last.map(|(logical, _)| (status, logical)),
        }),
    }
}
