//! Derives the state columns of an execution row from the journal. The code that writes rows and
//! the code that checks them share this one rule.

use onward_base::Timestamp;
use onward_execution::Execution;
use onward_journal::{ExecutionPhase, ExecutionState};

/// Wake time of an execution that has a task in flight or to start, or whose guest can run: its
/// shard owner loads it as soon as there is one.
pub const WAKE_NOW: Timestamp = Timestamp::MIN;

/// Wake time of an execution that only a message can wake.
pub const WAKE_NEVER: Timestamp = Timestamp::MAX;

/// Returns the displayed state of the execution and the time to wake it.
pub fn derive_row_state(execution: &Execution) -> (ExecutionState, Timestamp) {
    let is_under_way = || {
        execution
            .attempts_in_flight()
            .any(|flight| flight.performer.is_owner())
    };
    let is_busy = execution.is_runnable() || execution.has_scheduled_invokes() || is_under_way();
    let deadline = || execution.next_deadline().unwrap_or(WAKE_NEVER);
    match execution.journal().journal_state().phase() {
        ExecutionPhase::Completed => (ExecutionState::Completed, WAKE_NEVER),
        ExecutionPhase::Failed => (ExecutionState::Failed, WAKE_NEVER),
        ExecutionPhase::Cancelled => (ExecutionState::Cancelled, WAKE_NEVER),
        ExecutionPhase::Cancelling | ExecutionPhase::CleanupBlocked if is_busy => {
            (ExecutionState::Cancelling, WAKE_NOW)
        }
        ExecutionPhase::Cancelling | ExecutionPhase::CleanupBlocked => {
            (ExecutionState::Cancelling, deadline())
        }
        _ if is_busy => (ExecutionState::Running, WAKE_NOW),
        _ => (ExecutionState::Blocked, deadline()),
    }
}
