//! Nodes that give the shard up in order, and what must be true when they have.

use onward_engine::shard::AttemptId;
use onward_execution::{Execution as InMemory, InFlight, Limits};
use onward_journal::{Delivery, Event, Journal, JournalEvent, Performer, Timestamp, codec};
use onward_store::tables::Execution;
use onward_store::{Clock as _, Commit, Error, JournalAppend, Receipt, Store as _, lease};

use crate::Sim;
use crate::now::now;

/// How long a node may take to give the shard up.
const PATIENCE_MS: u64 = 10_000;

impl Sim {
    /// The owner is asked to give the shard up, and is given little time for it now and then.
    pub(crate) fn drain(&mut self) {
        let patience = if self.draw.percent(20) { self.draw.below(100) } else { PATIENCE_MS };
        let until = self.clock.now().plus_ms(patience);
        if let Some(node) = self.owner.and_then(|id| self.nodes.get_mut(&id)) {
            node.core.drain();
            node.leaves = Some(node.leaves.unwrap_or(until));
        }
    }

    /// The owner goes, if it has drained or may take no longer.
    pub(crate) fn leave(&mut self) -> Result<(), String> {
        let time = self.clock.now();
        let Some(id) = self.owner else { return Ok(()) };
        let Some(node) = self.nodes.get(&id) else { return Ok(()) };
        let Some(leaves) = node.leaves else { return Ok(()) };
        let (is_drained, lease) = (node.core.is_drained(), node.lease.clone());
        if is_drained {
            self.drained += 1;
            self.check_drained(id)?;
            self.bury(id);
        } else if leaves <= time {
            self.crash();
        } else {
            return Ok(());
        }
        now(lease::release(&*self.store, &lease)).map_err(|error| error.to_string())
    }

    /// Stores what a node wants stored, and remembers whose attempts it starts.
    pub(crate) fn store_by(&mut self, id: u32, commit: Commit) -> Result<Receipt, Error> {
        let started: Vec<AttemptId> = commit.journals.iter().flat_map(started).collect();
        let receipt = now(self.store.commit(commit))?;
        self.authors.extend(started.into_iter().map(|attempt| (attempt, id)));
        Ok(receipt)
    }

    /// Whatever it began that may not be repeated has ended, durably; whatever it did not begin is begun by the next.
    fn check_drained(&self, id: u32) -> Result<(), String> {
        self.executions().iter().try_for_each(|row| self.check_left(id, row))
    }

    fn check_left(&self, id: u32, row: &Execution) -> Result<(), String> {
        let journal = Journal::recover(row.execution_id, self.events(row.execution_id)?);
        let execution = InMemory::recover(journal.map_err(|violation| violation.to_string())?, Limits::default());
        if execution.is_over() {
            return Ok(());
        }
        for flight in execution.in_flight() {
            let InFlight { number, attempt, .. } = flight;
            let attempt = AttemptId { execution: row.execution_id, number, attempt };
            let is_once = matches!(
                execution.invocation(number),
                Some(Event::InvokeScheduled { delivery: Delivery::AtMostOnce, .. })
            );
            if is_once && self.authors.get(&attempt) == Some(&id) {
                return Err(format!("{} is left in doubt by a node that has drained", attempt.promise()));
            }
        }
        if execution.has_scheduled() && row.wake_at != Timestamp::MIN {
            return Err(format!("{} has something to begin, and is woken at {}", row.execution_id, row.wake_at));
        }
        Ok(())
    }
}

/// The attempts that an append says have started.
fn started(append: &JournalAppend) -> Vec<AttemptId> {
    let execution = append.execution;
    let attempt = |recorded: JournalEvent| match recorded.event {
        Event::InvokeStarted { promise_id, attempt, performer: Performer::Owner } => {
            promise_id.number_in(execution).map(|number| AttemptId { execution, number, attempt })
        }
        _ => None,
    };
    codec::decode(execution, &append.records).unwrap_or_default().into_iter().filter_map(attempt).collect()
}
