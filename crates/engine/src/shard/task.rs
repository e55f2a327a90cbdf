//! The row of a task that a worker performs, from the commit that starts the attempt to its end.

use onward_journal::{Delivery, Payload, Text, Timestamp};
use onward_store::tables::{Execution as Row, Task};
use onward_store::{Field as _, Key};

use super::{Attempt, AttemptId};
use crate::offers::{Offers, Seat};
use crate::work::Held;

/// Waits for a worker.
pub(crate) const QUEUED: &str = "queued";

/// A worker has it.
pub(crate) const CLAIMED: &str = "claimed";

/// A task for a worker that is to be stored.
pub(super) struct Queued {
    pub(super) row: Task,
    input: Payload,
    /// Whose it will be, if somebody waits for one.
    pub(super) seat: Option<Seat>,
}

impl Queued {
    pub(super) fn new(row: &Row, attempt: &Attempt, is_last: bool, now: Timestamp) -> Self {
        Self { row: queued(row, attempt, is_last, now), input: attempt.input.clone(), seat: None }
    }

    /// Stores it as claimed where somebody waits for it: they need not claim it then.
    pub(super) fn seat(&mut self, offers: &Offers, owner: &Text, claim: impl FnOnce() -> Text, now: Timestamp) {
        self.seat = offers.seat(self.row.execution_id, owner, &self.row.function);
        if let Some(seat) = &self.seat {
            claimed(&mut self.row, seat.worker(), seat.lease_ms(), claim(), now);
        }
    }

    /// The task as whoever waits for it gets it; its function if nobody does.
    pub(super) fn held(self) -> Result<(Seat, Held), Text> {
        match self.seat {
            Some(seat) => Ok((seat, held(self.row, self.input))),
            None => Err(self.row.function),
        }
    }
}

/// Makes a task a worker's.
pub(crate) fn claimed(row: &mut Task, worker: &Text, lease_ms: u32, claim: Text, now: Timestamp) {
    row.state = CLAIMED.into();
    row.leased_until = now.plus_ms(lease_ms.into());
    row.lease_ms = lease_ms;
    row.worker = Some(worker.clone());
    row.claim = Some(claim);
}

/// A task as the worker has it that claimed it for this input.
pub(crate) fn held(row: Task, input: Payload) -> Held {
    Held {
        id: id(&row),
        delivery: if is_at_most_once(&row) { Delivery::AtMostOnce } else { Delivery::AtLeastOnce },
        timeout_ms: row.timeout_ms.and_then(|ms| u64::try_from(ms).ok()),
        claim: row.claim.unwrap_or_else(|| Text::from("")),
        function: row.function,
        input,
        leased_until: row.leased_until,
    }
}

/// An attempt as workers find it.
fn queued(row: &Row, attempt: &Attempt, is_last: bool, now: Timestamp) -> Task {
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
