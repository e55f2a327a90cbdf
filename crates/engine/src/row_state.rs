//! Derives the state columns of an execution row from the journal. The code that writes rows and
//! the code that checks them share this one rule.

use onward_base::Timestamp;
use onward_execution::Execution;
use onward_journal::ExecutionPhase;

/// Wake time of an execution that has a task in flight or to start, or whose guest can run: its
/// shard owner loads it as soon as there is one.
pub(crate) const WAKE_NOW: Timestamp = Timestamp::MIN;

/// Wake time of an execution that only a message can wake.
pub(crate) const WAKE_NEVER: Timestamp = Timestamp::MAX;

/// Returns the displayed state of the execution and the time to wake it.
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
