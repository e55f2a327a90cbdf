//! The row of a task that a worker performs, from the commit that starts the attempt to its end.

use onward_base::{Payload, SharedText, Timestamp};
use onward_store::tables::{ExecutionRow as Row, TaskRow, WorkerTaskState};
use onward_store::{ColumnCodec as _, RowKey};

use super::{AttemptId, TaskAttempt};
use crate::task_matcher::{ClaimSlot, TaskMatcher};
use crate::task_queue::LeasedTask;

/// A task for a worker that the next commit stores.
pub(super) struct QueuedTask {
    pub(super) row: TaskRow,
    input: Payload,
    /// Reservation of the worker that gets the task; `None` if no worker waits for it.
    pub(super) slot: Option<ClaimSlot>,
}

impl QueuedTask {
    pub(super) fn new(row: &Row, attempt: &TaskAttempt, is_last: bool, now: Timestamp) -> Self {
        Self {
            row: queued_task_row(row, attempt, is_last, now),
            input: attempt.input.clone(),
            slot: None,
        }
    }

    /// Reserves a waiting worker and marks the task as claimed by it, so that the worker does not
    /// have to claim it separately.
    pub(super) fn reserve_slot(
        &mut self,
        matcher: &TaskMatcher,
        owner: &SharedText,
        claim: impl FnOnce() -> SharedText,
        now: Timestamp,
    ) {
        self.slot = matcher.reserve_slot(self.row.execution_id, owner, &self.row.function);
        if let Some(slot) = &self.slot {
            mark_claimed(
                &mut self.row,
                slot.worker_name(),
                slot.lease_ms(),
                claim(),
                now,
            );
        }
    }

    /// Returns the reservation and the task to deliver, or the function of the task if no worker
    /// waits for it.
    pub(super) fn into_leased_task(self) -> Result<(ClaimSlot, LeasedTask), SharedText> {
        match self.slot {
            Some(slot) => Ok((slot, to_leased_task(self.row, self.input))),
            None => Err(self.row.function),
        }
    }
}

/// Marks a task as claimed by a worker, with a lease and its timeout from `now` on.
pub(crate) fn mark_claimed(
    row: &mut TaskRow,
    worker: &SharedText,
    lease_ms: u32,
    claim: SharedText,
    now: Timestamp,
) {
    row.state = WorkerTaskState::Claimed;
    row.timeout_at = row
        .timeout_ms
        .and_then(|ms| u64::try_from(ms).ok())
        .map_or(Timestamp::MAX, |ms| now.plus_ms(ms));
    row.leased_until = now.plus_ms(lease_ms.into()).min(row.timeout_at);
    row.lease_ms = lease_ms;
    row.worker = Some(worker.clone());
    row.claim = Some(claim);
}

/// Builds the task as the worker that claimed it receives it.
pub(crate) fn to_leased_task(row: TaskRow, input: Payload) -> LeasedTask {
    LeasedTask {
        id: attempt_id(&row),
        delivery: row.delivery,
        timeout_ms: row.timeout_ms.and_then(|ms| u64::try_from(ms).ok()),
        claim_token: row.claim.unwrap_or_else(|| SharedText::from("")),
        function: row.function,
        input,
        leased_until: row.leased_until,
    }
}

/// Builds the queued row of an attempt.
fn queued_task_row(row: &Row, attempt: &TaskAttempt, is_last: bool, now: Timestamp) -> TaskRow {
    TaskRow {
        execution_id: attempt.id.execution,
        promise: attempt.id.number,
        attempt: attempt.id.attempt,
        shard: row.shard,
        tenant_id: row.tenant_id.clone(),
        project_id: row.project_id.clone(),
        environment_id: row.environment_id.clone(),
        function: SharedText::from(&*attempt.function),
        state: WorkerTaskState::Queued,
        queued_at: now,
        leased_until: Timestamp::MAX,
        lease_ms: 0,
        worker: None,
        claim: None,
        input: SharedText::from(attempt.input.as_str()),
        delivery: attempt.delivery,
        timeout_ms: attempt
            .timeout_ms
            .map(|ms| i64::try_from(ms).unwrap_or(i64::MAX)),
        is_last,
        timeout_at: Timestamp::MAX,
    }
}

/// The id of the attempt that the row stands for.
pub const fn attempt_id(task: &TaskRow) -> AttemptId {
    AttemptId {
        execution: task.execution_id,
        number: task.promise,
        attempt: task.attempt,
    }
}

/// Primary key of the row of an attempt.
pub fn task_key(id: AttemptId) -> RowKey {
    RowKey(vec![
        id.execution.to_value(),
        id.number.to_value(),
        id.attempt.to_value(),
    ])
}
