//! Executions that enter memory: loaded from the store, or started by a client together with their
//! first step.

use onward_base::{Payload, Timestamp};
use onward_execution::{Execution, ExecutionOutcome};
use onward_journal::{
    DeliveryGuarantee, ExecutionError, ExecutionId, Journal, JournalEvent, RuleViolation,
};
use onward_store::tables::ExecutionRow as Row;
use onward_store::{Commit, Error, StoreErrorKind};

use super::active_execution::{ActiveExecution, PendingInput, VERSION_UNSTORED};
use super::shard_core::{ShardCore, in_doubt_error};
use super::{AttemptId, ShardAction, attempts, step, step_commit};
use crate::row_body;

/// Error of an attempt that was in flight whenever its node crashed. The retry policy decides
/// whether there is another attempt.
fn node_lost_error(takeovers: u8) -> ExecutionError {
    ExecutionError::from_kind_name(
        "node_lost",
        format!("{takeovers} nodes in a row were lost while they performed this attempt"),
    )
}

/// Error kind of an execution whose step is too large for the store.
const STEP_TOO_LARGE_KIND: &str = "step_too_large";

/// Fails an execution whose last step the store refused because of its size.
fn fail_refused_step(active: &mut ActiveExecution, now: Timestamp) -> Result<(), RuleViolation> {
    let is_refusal = |input: &PendingInput| matches!(input, PendingInput::StepRefused(_));
    let place = active.inputs.iter().position(is_refusal);
    let Some(PendingInput::StepRefused(reason)) =
        place.and_then(|place| active.inputs.remove(place))
    else {
        return Ok(());
    };
    active.is_step_refused = true;
    active.is_paused = false;
    let message = format!("its step is too large to be stored: {reason}");
    let error = ExecutionError::from_kind_name(STEP_TOO_LARGE_KIND, message).into_permanent();
    active.execution.fail_execution(error, now).map(drop)
}

impl ShardCore {
    pub(super) fn on_loaded(
        &mut self,
        row: Row,
        version: u64,
        events: Vec<JournalEvent>,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        let id = row.execution_id;
        if self.actives.contains_key(&id) {
            return;
        }
        let pending_inputs = self.loading.remove(&id).unwrap_or_default();
        if self.is_draining && !self.is_needed_for_drain(&id, &pending_inputs) {
            return;
        }
        let journal = match Journal::recover(id, events) {
            Ok(journal) => journal,
            Err(violation) => {
                let reason = format!("its journal is not valid: {violation}");
                return self.park_execution(id, reason, pending_inputs, now, actions);
            }
        };
        let execution = Execution::recover(journal, self.options.limits);
        if let Some(ending) = execution.execution_outcome() {
            return self.forward_or_discard(pending_inputs, &ending, actions);
        }
        let mut active = Box::new(ActiveExecution::new(row, version, execution, now));
        // A step that was too large for one commit ends in the middle of a turn: the guest
        // continues before it receives new inputs.
        active.is_paused = active.execution.is_mid_turn();
        active.inputs = pending_inputs;
        if let Err(violation) = fail_refused_step(&mut active, now) {
            let reason = format!("an event violates a rule of the journal: {violation}");
            return self.park_active_execution(active, reason, now, actions);
        }
        self.resume_attempts(&mut active, actions);
        self.advance_execution(active, now, actions);
    }

    /// Starts an execution together with its first step, if that step is short.
    pub(super) fn on_start_requested(
        &mut self,
        row: Row,
        execution: Execution,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        let id = execution.id();
        let mut active = Box::new(ActiveExecution::new(row, VERSION_UNSTORED, execution, now));
        let mut step_actions = Vec::new();
        let Some(commit) = self.try_first_step(&mut active, now, &mut step_actions) else {
            return actions.push(ShardAction::StartSettled {
                execution: id,
                result: None,
            });
        };
        actions.append(&mut step_actions);
        self.commit_step(&mut active, commit, actions);
        self.put_active(active, now);
    }

    fn try_first_step(
        &mut self,
        active: &mut ActiveExecution,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) -> Option<Commit> {
        let is_refused = self.is_draining || self.is_tracking(&active.id());
        if is_refused
            || step::run_step(self, active, now, actions).ok()? == step::StepProgress::Paused
        {
            return None;
        }
        step_commit::compose_commit(self, active, now).ok()?
    }

    /// Resumes attempts that were in flight when the execution left memory: at-least-once attempts
    /// are repeated, at-most-once attempts are in doubt.
    fn resume_attempts(&mut self, active: &mut ActiveExecution, actions: &mut Vec<ShardAction>) {
        let execution = active.id();
        if active.execution.is_terminal() {
            return;
        }
        let mut counts = Vec::new();
        for flight in active
            .execution
            .attempts_in_flight()
            .filter(|flight| flight.performer.is_owner())
            .collect::<Vec<_>>()
        {
            let id = AttemptId {
                execution,
                number: flight.number,
                attempt: flight.attempt,
            };
            let Some(attempt) = attempts::build_attempt(
                self,
                active,
                id,
                attempts::resolve_invocation(self, active, id.number),
            ) else {
                continue;
            };
            if self.is_performing(&id) || active.has_ended(id) {
                continue;
            }
            let is_untouched = self.unstarted.remove(&id);
            if self.is_draining && !is_untouched {
                continue;
            }
            match attempt.delivery {
                DeliveryGuarantee::AtMostOnce if !is_untouched => {
                    active.inputs.push_back(PendingInput::AttemptEnded(
                        id,
                        Err(in_doubt_error("the attempt was started before a crash")),
                    ));
                    actions.push(ShardAction::InDoubt(id));
                }
                // Its start is recorded, perhaps by another owner that has performed it. A fenced
                // commit shows whether there was one.
                DeliveryGuarantee::AtMostOnce => active.pending.attempts.push(attempt),
                DeliveryGuarantee::AtLeastOnce if self.is_takeover && !is_untouched => {
                    let count = row_body::takeover_count(&active.row.body, id).saturating_add(1);
                    if count < self.options.takeovers_max {
                        counts.push((id, count));
                        active.pending.resumed.push(attempt);
                    } else {
                        let end = PendingInput::AttemptEnded(id, Err(node_lost_error(count)));
                        active.inputs.push_back(end);
                    }
                }
                DeliveryGuarantee::AtLeastOnce => self.dispatch_attempt(attempt, actions),
            }
        }
        if !counts.is_empty() {
            active.row.body = row_body::with_takeovers(&active.row.body, &counts);
            active.pending.changes_body = true;
        }
    }

    /// Retries a load that failed temporarily; parks the execution if its stored data is corrupt.
    pub(super) fn on_load_failed(
        &mut self,
        execution: ExecutionId,
        error: &Error,
        now: Timestamp,
        actions: &mut Vec<ShardAction>,
    ) {
        match error.kind() {
            StoreErrorKind::Corrupt | StoreErrorKind::Invalid => {
                let pending_inputs = self.loading.remove(&execution).unwrap_or_default();
                self.park_execution(execution, error.to_string(), pending_inputs, now, actions);
            }
            _ => actions.push(ShardAction::LoadLater(execution)),
        }
    }

    pub(super) fn on_not_found(&mut self, execution: ExecutionId, actions: &mut Vec<ShardAction>) {
        let pending_inputs = self.loading.remove(&execution).unwrap_or_default();
        self.forward_or_discard(
            pending_inputs,
            &ExecutionOutcome::Result(Ok(Payload::null())),
            actions,
        );
    }
}
