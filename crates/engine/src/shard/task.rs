//! The row of a task that a worker performs, from the commit that starts the attempt to its end.

use onward_journal::{Delivery, Text, Timestamp};
use onward_store::tables::{Execution as Row, Task};
use onward_store::{Field as _, Key};

use super::{Attempt, AttemptId};

/// Waits for a worker.
pub(crate) const QUEUED: &str = "queued";

/// A worker has it.
pub(crate) const CLAIMED: &str = "claimed";

/// An attempt as workers find it.
pub(super) fn queued(row: &Row, attempt: &Attempt, is_last: bool, now: Timestamp) -> Task {
    Task {
        execution_id: attempt.id.execution,
        promise: attempt.id.number,
        attempt: attempt.id.attempt,
        shard: row.shard,
        tenant_id: row.tenant_id.clone(),
        project_id: row.project_id.clone(),
        environment_id: row.environment_id.clone(),
        function: Text::from(&*attempt.function),
        state: QUEUED.into(),
        queued_at: now,
        leased_until: Timestamp::MAX,
        lease_ms: 0,
        worker: None,
        claim: None,
        input: Text::from(attempt.input.as_str()),
        delivery: attempt.delivery.as_str().into(),
        timeout_ms: attempt.timeout_ms.map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
        is_last,
    }
}

/// Which attempt it is.
pub(crate) const fn id(task: &Task) -> AttemptId {
    AttemptId { execution: task.execution_id, number: task.promise, attempt: task.attempt }
}

/// The key of the row of an attempt.
pub(crate) fn key(id: AttemptId) -> Key {
    Key(vec![id.execution.to_value(), id.number.to_value(), id.attempt.to_value()])
}

/// Whether the attempt must not be repeated.
pub(crate) fn is_at_most_once(task: &Task) -> bool {
    &*task.delivery == Delivery::AtMostOnce.as_str()
}
