//! Draining of a core that is about to release its shard.
//!
//! No new work begins: no attempt starts, no timer fires, no execution is loaded, messages stay in
//! the inbox. Work in flight ends and is recorded, so that the next owner does not have to repeat
//! it and nothing is in doubt. Guests run until they wait; the operations they request by then are
//! scheduled, and the next owner starts them.

use std::collections::VecDeque;

use onward_base::Timestamp;
use onward_journal::ExecutionId;

use super::ShardAction;
use super::active_execution::PendingInput;
use super::shard_core::ShardCore;

impl ShardCore {
    /// Starts draining: no new work begins from now on.
    pub const fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Stops draining, because the shard is not released after all. Returns the actions that resume
    /// its work.
    pub fn resume_after_drain(&mut self, now: Timestamp) -> Vec<ShardAction> {
        self.is_draining = false;
        let mut actions = Vec::new();
        for execution in self.actives.keys().copied().collect::<Vec<_>>() {
            self.advance_if_active(execution, now, &mut actions);
        }
        actions
    }

    /// Whether all work in flight has ended and is durable, so that the store contains everything
    /// in memory.
    pub fn is_drained(&self) -> bool {
        let is_quiet = self.performing.is_empty() && self.commits_in_flight.is_empty();
        is_quiet
            && !self
                .actives
                .values()
                .any(|active| active.has_unrecorded_attempts())
            && !self
                .loading
                .iter()
                .any(|(execution, inputs)| self.is_needed_for_drain(execution, inputs))
    }

    /// Whether an execution that is being loaded is needed for draining: only this core knows that
    /// one of its attempts ended, or that it was not started.
    pub(super) fn is_needed_for_drain(
        &self,
        execution: &ExecutionId,
        inputs: &VecDeque<PendingInput>,
    ) -> bool {
        let has_ended = inputs
            .iter()
            .any(|input| matches!(input, PendingInput::AttemptEnded(..)));
        has_ended
            || self
                .unstarted
                .iter()
                .any(|attempt| attempt.execution == *execution)
    }
}
