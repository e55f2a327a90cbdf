//! The operations that a simulated node waits for: commits, attempts, reads and lease renewals,
//! each with a random delay and random faults.

use onward_base::Timestamp;
use onward_engine::shard::{AttemptEnd, AttemptId, AttemptReporter, ShardInput, TaskAttempt};
use onward_journal::{DeliveryGuarantee, ExecutionId};
use onward_store::tables::{ExecutionRow, InboxMessageRow};
use onward_store::{
    Commit, CommitReceipt, Error, RecordReader as _, StoreClock as _, TableScan, shard_lease,
};

use crate::ShardSimulation;
use crate::client::SHARD;
use crate::driver::LEASE_MS;
use crate::failure::SimFailure;
use crate::ready_future::poll_ready;
use crate::scripts::perform_task;

/// An operation that a node waits for.
pub(crate) enum NodeOperation {
    Commit(u64, Box<Commit>),
    Perform(Box<TaskAttempt>),
    Load(ExecutionId),
    Inbox,
    Scan,
    Renew,
}

impl ShardSimulation {
    pub(crate) fn schedule_operation(&mut self, node: u32, op: NodeOperation) {
        let delay = match op {
            NodeOperation::Renew => 1_000,
            NodeOperation::Scan | NodeOperation::Inbox => self.draw.next_below(200),
            // Some commits take so long that executions that need not wait for them run far ahead.
            NodeOperation::Commit(..) if self.draw.roll_percent(20) => self.draw.next_below(1_000),
            NodeOperation::Commit(..) | NodeOperation::Load(_) => self.draw.next_below(20),
            NodeOperation::Perform(_) if self.draw.roll_percent(50) => self.draw.next_below(10),
            NodeOperation::Perform(_) => self.draw.next_below(300),
        };
        self.in_flight
            .push((self.clock.now().plus_ms(delay), node, op));
    }

    pub(crate) fn complete_operation(
        &mut self,
        id: u32,
        op: NodeOperation,
    ) -> Result<(), SimFailure> {
        if !self.nodes.contains_key(&id) {
            return Ok(());
        }
        match op {
            NodeOperation::Commit(ticket, commit) => {
                let result = self.commit_with_faults(id, *commit);
                self.deliver_input(id, ShardInput::Committed { ticket, result });
            }
            NodeOperation::Perform(attempt) => {
                let mut ends = vec![self.perform_attempt(&attempt)];
                // Some attempts end together.
                while self.draw.roll_percent(50)
                    && let Some(attempt) = self.take_other_attempt(id)
                {
                    ends.push(self.perform_attempt(&attempt));
                }
                self.deliver_input(id, ShardInput::AttemptsEnded(ends));
            }
            NodeOperation::Load(execution) => {
                let input = if self.draw_fault(self.faults.read_fails) {
                    ShardInput::LoadFailed {
                        execution,
                        error: Error::Unavailable("injected fault".to_owned()),
                    }
                } else {
                    self.load_execution(execution)?
                };
                self.deliver_input(id, input);
            }
            NodeOperation::Inbox => {
                if !self.draw_fault(self.faults.read_fails) {
                    let scan = TableScan::by_index::<InboxMessageRow>(InboxMessageRow::BY_SHARD)
                        .where_equal(&SHARD);
                    let messages = poll_ready(self.store.list_records(scan))?;
                    self.deliver_input(id, ShardInput::Messages(messages));
                }
                self.schedule_operation(id, NodeOperation::Inbox);
            }
            NodeOperation::Scan => {
                self.load_due_executions(id)?;
                self.schedule_operation(id, NodeOperation::Scan);
            }
            NodeOperation::Renew => self.renew_lease(id)?,
        }
        Ok(())
    }

    /// Performs an attempt and returns its end.
    fn perform_attempt(&mut self, attempt: &TaskAttempt) -> AttemptEnd {
        self.count_attempt(attempt);
        let result = perform_task(&attempt.function, &attempt.input, attempt.id.attempt);
        AttemptEnd {
            attempt: attempt.id,
            reported_by: AttemptReporter::Owner(attempt.dispatch_id),
            result,
        }
    }

    /// Takes another attempt that the node is performing.
    fn take_other_attempt(&mut self, id: u32) -> Option<Box<TaskAttempt>> {
        let is_other = |(_, node, op): &(Timestamp, u32, NodeOperation)| {
            *node == id && matches!(op, NodeOperation::Perform(_))
        };
        let index = self.in_flight.iter().position(is_other)?;
        match self.in_flight.swap_remove(index).2 {
            NodeOperation::Perform(attempt) => Some(attempt),
            _ => None,
        }
    }

    pub(crate) fn count_attempt(&mut self, attempt: &TaskAttempt) {
        self.attempts += 1;
        *self
            .performed
            .entry((
                attempt.id,
                attempt.delivery == DeliveryGuarantee::AtMostOnce,
            ))
            .or_default() += 1;
    }

    /// An aborted attempt may or may not be performed.
    pub(crate) fn abandon_attempt(&mut self, id: u32, attempt: AttemptId) {
        if self.draw.roll_percent(50) {
            self.in_flight.retain(|(_, node, op)| {
                !(*node == id && matches!(op, NodeOperation::Perform(it) if it.id == attempt))
            });
        }
    }

    fn renew_lease(&mut self, id: u32) -> Result<(), SimFailure> {
        let Some(node) = self.nodes.get_mut(&id) else {
            return Ok(());
        };
        match poll_ready(shard_lease::renew_lease(
            &*self.store,
            &node.lease,
            LEASE_MS,
        ))? {
            Some(lease) => {
                node.lease = lease;
                self.schedule_operation(id, NodeOperation::Renew);
            }
            None => self.remove_node(id),
        }
        Ok(())
    }

    fn commit_with_faults(&mut self, id: u32, commit: Commit) -> Result<CommitReceipt, Error> {
        if self.draw_fault(self.faults.commit_fails) {
            return Err(Error::Unavailable("injected fault".to_owned()));
        }
        if self.draw_fault(self.faults.commit_unknown) {
            // The commit is stored in half of the cases.
            if self.draw.roll_percent(50) {
                self.commit_as(id, commit)?;
            }
            return Err(Error::OutcomeUnknown("injected fault".to_owned()));
        }
        self.commit_as(id, commit)
    }

    /// Loads executions that are due into a node, unless it tracks them already.
    fn load_due_executions(&mut self, id: u32) -> Result<(), SimFailure> {
        let scan = TableScan::by_index::<ExecutionRow>(ExecutionRow::BY_WAKE)
            .where_equal(&SHARD)
            .where_at_most(&self.clock.now());
        let rows: Vec<(ExecutionRow, u64)> = poll_ready(self.store.list_records(scan))?;
        for (row, _) in rows {
            let Some(node) = self.nodes.get(&id) else {
                break;
            };
            if !node.core.is_tracking(&row.execution_id) {
                let input = self.load_execution(row.execution_id)?;
                self.deliver_input(id, input);
            }
        }
        Ok(())
    }

    fn load_execution(&self, execution: ExecutionId) -> Result<ShardInput, SimFailure> {
        let Some((row, version)) = self.execution_row(execution)? else {
            return Ok(ShardInput::NotFound(execution));
        };
        let events = self.read_journal(execution)?;
        Ok(ShardInput::Loaded {
            row: Box::new(row),
            version,
            events,
        })
    }
}
