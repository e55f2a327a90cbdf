//! Reduces events to snapshots: the same fold is used from a run's first event and from a stored
//! snapshot.

use std::mem;
use std::sync::Arc;

use onward_base::SharedText;

use crate::payload_detail::PayloadDetail;
use crate::transition_check::{SnapshotChange, evaluate_event};
use crate::{
    AttemptNumber, AttemptSnapshot, EmittedAt, InconsistencyCode, InconsistencySummary,
    InvalidTransition, RunAction, RunEventRecord, RunEventWrite, RunId, RunInconsistency, RunSeq,
    RunSnapshot, RunStatus, RunSubstatus, RunTransitionState, StepAction, StepSnapshot, StepStatus,
};

/// Returns the snapshot after `event`.
///
/// An event at or below the watermark was reduced before, and an event of another run does not
/// belong to the snapshot: both change nothing. An illegal event advances the watermark and is
/// counted as an inconsistency; it changes nothing else.
#[must_use]
pub fn reduce_event(snapshot: RunSnapshot, event: &RunEventRecord) -> RunSnapshot {
    if event.run_seq <= snapshot.last_event_seq || event.event.run_id != snapshot.run_id {
        return snapshot;
    }
    let mut next = snapshot;
    match evaluate_event(&next, &event.event) {
        Ok(change) => next.apply_change(change, &event.event),
        Err(illegal) => next.record_inconsistency(event.run_seq, &illegal),
    }
    next.last_event_seq = event.run_seq;
    next
}

/// Reduces the complete log of a run to its snapshot.
pub fn project_run<'a>(
    run_id: RunId,
    events: impl IntoIterator<Item = &'a RunEventRecord>,
) -> RunSnapshot {
    project_from_snapshot(RunSnapshot::new(run_id), events)
}

/// Applies further events of the run to a snapshot.
#[must_use]
pub fn project_from_snapshot<'a>(
    snapshot: RunSnapshot,
    events: impl IntoIterator<Item = &'a RunEventRecord>,
) -> RunSnapshot {
    events.into_iter().fold(snapshot, reduce_event)
}

/// A range of events that is missing between two sequence numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunEventGap {
    /// Sequence number of the last event before the gap.
    pub after_seq: RunSeq,
    /// Sequence number of the first event after the gap.
    pub before_seq: RunSeq,
}

/// Returns the gap between the last event that was reduced and the next available one; `None` if no
/// event is missing.
pub fn detect_gap(last: RunSeq, next: RunSeq) -> Option<RunEventGap> {
    (next > last.next_seq()).then_some(RunEventGap {
        after_seq: last,
        before_seq: next,
    })
}

impl RunSnapshot {
    fn apply_change(&mut self, change: SnapshotChange<'_>, event: &RunEventWrite) {
        match change {
            SnapshotChange::Nothing => return,
            SnapshotChange::Run(act, status) => self.apply_run_action(act, status, event),
            SnapshotChange::Step(place, act, status) => self
                .steps
                .update_step(place, |step| step.apply_step_action(act, status, event)),
            SnapshotChange::NewStep(step_id, act, status) => {
                let latest = AttemptSnapshot::new(event.logical_attempt_id);
                let mut step = StepSnapshot {
                    step_id: step_id.clone(),
                    latest,
                    attempts: Vec::new(),
                };
                step.apply_step_action(act, status, event);
                self.steps.push_step(Arc::new(step));
            }
        }
        self.failed_steps = self.steps.failed_count();
        self.substatus = self.derive_substatus();
    }

    fn record_inconsistency(&mut self, run_seq: RunSeq, illegal: &InvalidTransition) {
        match &mut self.inconsistencies {
            Some(inconsistencies) => {
                inconsistencies.count = inconsistencies.count.saturating_add(1)
            }
            none => {
                let message = SharedText::from(illegal.to_string());
                let first = RunInconsistency {
                    run_seq,
                    code: InconsistencyCode::InvalidTransition,
                    message,
                };
                *none = Some(InconsistencySummary { count: 1, first });
            }
        }
    }

    fn apply_run_action(&mut self, act: RunAction, status: RunStatus, event: &RunEventWrite) {
        let detail = PayloadDetail::from_payload(event.payload.as_ref());
        self.status = status;
        self.announced_substatus = detail
            .announced_substatus()
            .filter(|_| !status.is_terminal());
        match act {
            RunAction::Started => {
                self.started_at = Some(event.emitted_at.clone());
                self.engine_run_ref = detail.engine_run_ref();
            }
            RunAction::CancelRequested => self.substatus = Some(RunSubstatus::Cancelling),
            RunAction::Completed => {
                self.artifacts = self
                    .steps
                    .iter()
                    .flat_map(|it| &it.latest.artifacts)
                    .cloned()
                    .collect()
            }
            RunAction::Failed => self.error = detail.run_failure(),
            RunAction::Queued
            | RunAction::Approved
            | RunAction::Paused
            | RunAction::Resumed
            | RunAction::Cancelled => {}
        }
        if status.is_terminal() {
            self.total_duration_ms = self
                .started_at
                .as_ref()
                .map(|start| elapsed_ms(start, &event.emitted_at));
            self.completed_at = Some(event.emitted_at.clone());
        }
    }

    fn derive_substatus(&self) -> Option<RunSubstatus> {
        let RunTransitionState {
            status,
            is_cancelling: cancelling,
            has_running_step: busy,
        } = self.transition_state();
        match status {
            _ if status.is_terminal() => None,
            _ if cancelling => Some(RunSubstatus::Cancelling),
            RunStatus::Paused if busy => Some(RunSubstatus::Draining),
            RunStatus::Running if self.steps.retrying_count() > 0 => Some(RunSubstatus::Retrying),
            _ => self.announced_substatus,
        }
    }
}

impl StepSnapshot {
    fn apply_step_action(&mut self, act: StepAction, status: StepStatus, event: &RunEventWrite) {
        if self.latest.status == StepStatus::Failed && act == StepAction::Started {
            let next = AttemptSnapshot::new(event.logical_attempt_id);
            self.attempts.push(mem::replace(&mut self.latest, next));
        }
        self.latest.apply_attempt_action(act, status, event);
    }
}

impl AttemptSnapshot {
    const fn new(logical_attempt_id: AttemptNumber) -> Self {
        Self {
            status: StepStatus::Pending,
            logical_attempt_id,
            engine_attempt_id: AttemptNumber::FIRST,
            started_at: None,
            completed_at: None,
            artifacts: Vec::new(),
            error: None,
            reason: None,
        }
    }

    fn apply_attempt_action(&mut self, act: StepAction, status: StepStatus, event: &RunEventWrite) {
        self.status = status;
        self.logical_attempt_id = event.logical_attempt_id;
        self.engine_attempt_id = event.engine_attempt_id;
        if act == StepAction::Started {
            self.started_at
                .get_or_insert_with(|| event.emitted_at.clone());
        } else {
            self.completed_at = Some(event.emitted_at.clone());
        }
        let detail = || PayloadDetail::from_payload(event.payload.as_ref());
        match act {
            StepAction::Started => {}
            StepAction::Completed => self.artifacts = detail().artifact_refs(),
            StepAction::Failed => {
                let detail = detail();
                self.artifacts = detail.artifact_refs();
                self.error = detail.run_failure();
            }
            StepAction::Skipped => self.reason = detail().skip_reason(),
        }
    }
}

/// Returns the duration in milliseconds; 0 if it would be negative, because the clocks of two
/// producers may disagree.
fn elapsed_ms(start: &EmittedAt, end: &EmittedAt) -> u64 {
    let us = end.to_timestamp().as_micros() - start.to_timestamp().as_micros();
    u64::try_from(us / 1_000).unwrap_or(0)
}
