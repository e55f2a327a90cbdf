//! Events to snapshots: one fold, whether it begins with a run's first event or goes on from a snapshot.

use std::mem;
use std::sync::Arc;

use onward_journal::Text;

use crate::detail::Detail;
use crate::judge::{Change, judge};
use crate::{
    Attempt, AttemptSnapshot, EmittedAt, Inconsistencies, Inconsistency, InconsistencyCode, InvalidTransition, RunAct,
    RunEventRecord, RunEventWrite, RunId, RunSeq, RunSnapshot, RunStatus, Standing, StepAct, StepSnapshot, StepStatus,
    Substatus,
};

/// The snapshot after `event`.
///
/// An event at or below the watermark was taken in before, and an event of another run is none of its business: both change
/// nothing. An illegal one advances the watermark and is counted, no more.
#[must_use]
pub fn reduce(snapshot: RunSnapshot, event: &RunEventRecord) -> RunSnapshot {
    if event.run_seq <= snapshot.last_event_seq || event.event.run_id != snapshot.run_id {
        return snapshot;
    }
    let mut next = snapshot;
    match judge(&next, &event.event) {
        Ok(change) => next.apply(change, &event.event),
        Err(illegal) => next.note(event.run_seq, &illegal),
    }
    next.last_event_seq = event.run_seq;
    next
}

/// The snapshot of a run whose whole log this is.
pub fn project<'a>(run_id: RunId, events: impl IntoIterator<Item = &'a RunEventRecord>) -> RunSnapshot {
    incremental_project(RunSnapshot::new(run_id), events)
}

/// The snapshot after these further events of its run.
#[must_use]
pub fn incremental_project<'a>(
    snapshot: RunSnapshot,
    events: impl IntoIterator<Item = &'a RunEventRecord>,
) -> RunSnapshot {
    events.into_iter().fold(snapshot, reduce)
}

/// Events that are missing between two that were seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gap {
    /// The last one before it.
    pub after: RunSeq,
    /// The first one behind it.
    pub before: RunSeq,
}

/// The gap between the last event taken in and the next one at hand.
pub fn detect_gaps(last: RunSeq, next: RunSeq) -> Option<Gap> {
    (next > last.next()).then_some(Gap { after: last, before: next })
}

impl RunSnapshot {
    fn apply(&mut self, change: Change<'_>, event: &RunEventWrite) {
        match change {
            Change::Nothing => return,
            Change::Run(act, status) => self.apply_to_run(act, status, event),
            Change::Step(place, act, status) => self.steps.change(place, |step| step.apply(act, status, event)),
            Change::NewStep(step_id, act, status) => {
                let latest = AttemptSnapshot::new(event.logical_attempt_id);
                let mut step = StepSnapshot { step_id: step_id.clone(), latest, attempts: Vec::new() };
                step.apply(act, status, event);
                self.steps.push(Arc::new(step));
            }
        }
        self.failed_steps = self.steps.failed();
        self.substatus = self.derive_substatus();
    }

    fn note(&mut self, run_seq: RunSeq, illegal: &InvalidTransition) {
        match &mut self.inconsistencies {
            Some(inconsistencies) => inconsistencies.count = inconsistencies.count.saturating_add(1),
            none => {
                let message = Text::from(illegal.to_string());
                let first = Inconsistency { run_seq, code: InconsistencyCode::InvalidTransition, message };
                *none = Some(Inconsistencies { count: 1, first });
            }
        }
    }

    fn apply_to_run(&mut self, act: RunAct, status: RunStatus, event: &RunEventWrite) {
        let detail = Detail::of(event.payload.as_ref());
        self.status = status;
        self.announced_substatus = detail.substatus().filter(|_| !status.is_terminal());
        match act {
            RunAct::Started => {
                self.started_at = Some(event.emitted_at.clone());
                self.engine_run_ref = detail.engine_run_ref();
            }
            RunAct::CancelRequested => self.substatus = Some(Substatus::Cancelling),
            RunAct::Completed => {
                self.artifacts = self.steps.iter().flat_map(|it| &it.latest.artifacts).cloned().collect()
            }
            RunAct::Failed => self.error = detail.error(),
            RunAct::Queued | RunAct::Approved | RunAct::Paused | RunAct::Resumed | RunAct::Cancelled => {}
        }
        if status.is_terminal() {
            self.total_duration_ms = self.started_at.as_ref().map(|start| elapsed_ms(start, &event.emitted_at));
            self.completed_at = Some(event.emitted_at.clone());
        }
    }

    fn derive_substatus(&self) -> Option<Substatus> {
        let Standing { status, cancelling, busy } = self.standing();
        match status {
            _ if status.is_terminal() => None,
            _ if cancelling => Some(Substatus::Cancelling),
            RunStatus::Paused if busy => Some(Substatus::Draining),
            RunStatus::Running if self.steps.retrying() > 0 => Some(Substatus::Retrying),
            _ => self.announced_substatus,
        }
    }
}

impl StepSnapshot {
    fn apply(&mut self, act: StepAct, status: StepStatus, event: &RunEventWrite) {
        if self.latest.status == StepStatus::Failed && act == StepAct::Started {
            let next = AttemptSnapshot::new(event.logical_attempt_id);
            self.attempts.push(mem::replace(&mut self.latest, next));
        }
        self.latest.apply(act, status, event);
    }
}

impl AttemptSnapshot {
    const fn new(logical_attempt_id: Attempt) -> Self {
        Self {
            status: StepStatus::Pending,
            logical_attempt_id,
            engine_attempt_id: Attempt::FIRST,
            started_at: None,
            completed_at: None,
            artifacts: Vec::new(),
            error: None,
            reason: None,
        }
    }

    fn apply(&mut self, act: StepAct, status: StepStatus, event: &RunEventWrite) {
        self.status = status;
        self.logical_attempt_id = event.logical_attempt_id;
        self.engine_attempt_id = event.engine_attempt_id;
        if act == StepAct::Started {
            self.started_at.get_or_insert_with(|| event.emitted_at.clone());
        } else {
            self.completed_at = Some(event.emitted_at.clone());
        }
        let detail = || Detail::of(event.payload.as_ref());
        match act {
            StepAct::Started => {}
            StepAct::Completed => self.artifacts = detail().artifacts(),
            StepAct::Failed => {
                let detail = detail();
                self.artifacts = detail.artifacts();
                self.error = detail.error();
            }
            StepAct::Skipped => self.reason = detail().reason(),
        }
    }
}

/// Two producers' clocks may disagree: no time is negative.
fn elapsed_ms(start: &EmittedAt, end: &EmittedAt) -> u64 {
    let us = end.at().as_micros() - start.at().as_micros();
    u64::try_from(us / 1_000).unwrap_or(0)
}
