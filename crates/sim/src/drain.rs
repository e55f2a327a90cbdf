//! Nodes that drain and release the shard, and the invariants that must hold afterwards.

use onward_base::Timestamp;
use onward_engine::shard::AttemptId;
use onward_execution::{AttemptInFlight, Execution, ExecutionLimits};
use onward_journal::{DeliveryGuarantee, Event, InvokePerformer, Journal, JournalEvent, codec};
use onward_store::tables::ExecutionRow;
use onward_store::{
    Commit, CommitReceipt, Error, JournalAppend, Store as _, StoreClock as _, shard_lease,
};

use crate::ShardSimulation;
use crate::failure::SimFailure;
use crate::ready_future::poll_ready;

/// Maximum time in milliseconds that a node has to drain.
const DRAIN_TIMEOUT_MS: u64 = 10_000;

impl ShardSimulation {
    /// Starts the drain of the owner; in 20 % of the cases it has less than 100 ms for it.
    pub(crate) fn drain_owner(&mut self) {
        let timeout_ms = if self.draw.roll_percent(20) {
            self.draw.next_below(100)
        } else {
            DRAIN_TIMEOUT_MS
        };
        let deadline = self.clock.now().plus_ms(timeout_ms);
        if let Some(node) = self.owner.and_then(|id| self.nodes.get_mut(&id)) {
            node.core.drain();
            node.drain_deadline = Some(node.drain_deadline.unwrap_or(deadline));
        }
    }

    /// Removes the owner if it has drained, or crashes it if its deadline has passed; then releases
    /// the lease.
    pub(crate) fn finish_drain(&mut self) -> Result<(), SimFailure> {
        let time = self.clock.now();
        let Some(id) = self.owner else { return Ok(()) };
        let Some(node) = self.nodes.get(&id) else {
            return Ok(());
        };
        let Some(deadline) = node.drain_deadline else {
            return Ok(());
        };
        let (is_drained, lease) = (node.core.is_drained(), node.lease.clone());
        if is_drained {
            self.drained += 1;
            self.check_drained(id)?;
            self.remove_node(id);
        } else if deadline <= time {
            self.crash_owner();
        } else {
            return Ok(());
        }
        poll_ready(shard_lease::release_lease(&*self.store, &lease)).map_err(SimFailure::from)
    }

    /// Stores a node's commit and records which node started which attempts.
    pub(crate) fn commit_as(&mut self, id: u32, commit: Commit) -> Result<CommitReceipt, Error> {
        let started: Vec<AttemptId> = commit.journals.iter().flat_map(started_attempts).collect();
        let receipt = poll_ready(self.store.commit(commit))?;
        self.attempt_starters
            .extend(started.into_iter().map(|attempt| (attempt, id)));
        Ok(receipt)
    }

    /// Checks a drained node: every at-most-once attempt that it started has ended durably, and
    /// everything that it did not start is due for the next owner.
    fn check_drained(&self, id: u32) -> Result<(), SimFailure> {
        self.list_executions()
            .iter()
            .try_for_each(|row| self.check_drained_execution(id, row))
    }

    fn check_drained_execution(&self, id: u32, row: &ExecutionRow) -> Result<(), SimFailure> {
        let journal = Journal::recover(row.execution_id, self.read_journal(row.execution_id)?);
        let execution = Execution::recover(journal?, ExecutionLimits::default());
        if execution.is_terminal() {
            return Ok(());
        }
        for flight in execution.attempts_in_flight() {
            let AttemptInFlight {
                number, attempt, ..
            } = flight;
            let attempt = AttemptId {
                execution: row.execution_id,
                number,
                attempt,
            };
            let is_once = matches!(
                execution.invocation_event(number),
                Some(Event::InvokeScheduled {
                    delivery: DeliveryGuarantee::AtMostOnce,
                    ..
                })
            );
            if is_once && self.attempt_starters.get(&attempt) == Some(&id) {
                return Err(SimFailure::new(format!(
                    "a drained node left the attempt {} in doubt",
                    attempt.promise_id()
                )));
            }
        }
        if execution.has_scheduled_invokes() && row.wake_at != Timestamp::MIN {
            return Err(SimFailure::new(format!(
                "{} has scheduled tasks, but its next wake-up is at {}",
                row.execution_id, row.wake_at
            )));
        }
        Ok(())
    }
}

/// Returns the attempts whose start is recorded in an append.
fn started_attempts(append: &JournalAppend) -> Vec<AttemptId> {
    let execution = append.execution;
    let attempt = |recorded: JournalEvent| match recorded.event {
        Event::InvokeStarted {
            promise_id,
            attempt,
            performer: InvokePerformer::Owner,
        } => promise_id
            .child_number_in(execution)
            .map(|number| AttemptId {
                execution,
                number,
                attempt,
            }),
        _ => None,
    };
    codec::decode_record(execution, &append.records)
        .unwrap_or_default()
        .into_iter()
        .filter_map(attempt)
        .collect()
}
