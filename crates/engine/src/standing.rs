//! How the row of an execution should read, as far as it follows from the journal. Who writes rows and who checks them go by
//! this one rule.

use onward_execution::Execution;
use onward_journal::{Phase, Timestamp};

/// The row of an execution that has a task under way or to start, or its guest has something to do: looked at as soon as its shard has an
/// owner.
pub(crate) const AT_ONCE: Timestamp = Timestamp::MIN;

/// The row of an execution that only others can wake.
pub(crate) const NEVER: Timestamp = Timestamp::MAX;

/// The state for people, and when to wake it.
pub(crate) fn standing(execution: &Execution) -> (&'static str, Timestamp) {
    let is_under_way = || execution.in_flight().any(|flight| flight.performer.is_owner());
    let is_busy = execution.is_runnable() || execution.has_scheduled() || is_under_way();
    let deadline = || execution.deadline().unwrap_or(NEVER);
    match execution.journal().fold().phase() {
        Phase::Completed => ("Completed", NEVER),
        Phase::Failed => ("Failed", NEVER),
        Phase::Cancelled => ("Cancelled", NEVER),
        Phase::Cancelling | Phase::CleanupBlocked if is_busy => ("Cancelling", AT_ONCE),
        Phase::Cancelling | Phase::CleanupBlocked => ("Cancelling", deadline()),
        _ if is_busy => ("Running", AT_ONCE),
        _ => ("Blocked", deadline()),
    }
}
