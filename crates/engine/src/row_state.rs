//! How the row of an execution should read, as far as it follows from the journal. Who writes rows and who checks them go by
//! this one rule.

use onward_base::Timestamp;
use onward_execution::Execution;
use onward_journal::ExecutionPhase;

/// The row of an execution that has a task under way or to start, or its guest has something to do: looked at as soon as its shard has an
/// owner.
pub(crate) const WAKE_NOW: Timestamp = Timestamp::MIN;

/// The row of an execution that only others can wake.
pub(crate) const WAKE_NEVER: Timestamp = Timestamp::MAX;

/// The state for people, and when to wake it.
pub(crate) fn derive_row_state(execution: &Execution) -> (&'static str, Timestamp) {
    let is_under_way = || {
        execution
            .attempts_in_flight()
            .any(|flight| flight.performer.is_owner())
    };
    let is_busy = execution.is_runnable() || execution.has_scheduled_invokes() || is_under_way();
    let deadline = || execution.next_deadline().unwrap_or(WAKE_NEVER);
    match execution.journal().journal_state().phase() {
        ExecutionPhase::Completed => ("Completed", WAKE_NEVER),
        ExecutionPhase::Failed => ("Failed", WAKE_NEVER),
        ExecutionPhase::Cancelled => ("Cancelled", WAKE_NEVER),
        ExecutionPhase::Cancelling | ExecutionPhase::CleanupBlocked if is_busy => {
            ("Cancelling", WAKE_NOW)
        }
        ExecutionPhase::Cancelling | ExecutionPhase::CleanupBlocked => ("Cancelling", deadline()),
        _ if is_busy => ("Running", WAKE_NOW),
        _ => ("Blocked", deadline()),
    }
}
