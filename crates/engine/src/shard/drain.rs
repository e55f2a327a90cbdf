//! A core that is about to give its shard up.
//!
//! Nothing begins any more: no attempt starts, no timer fires, nothing is loaded, messages stay in the inbox. What has begun
//! ends, and is recorded: whoever takes over need not repeat it, and nothing is in doubt. Guests run until they wait; what they
//! want done by then is scheduled, and the next owner starts it.

use std::collections::VecDeque;

use onward_base::Timestamp;
use onward_journal::ExecutionId;

use super::ShardAction;
use super::active_execution::PendingInput;
use super::shard_core::ShardCore;

impl ShardCore {
    /// Lets nothing begin from now on.
    pub const fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Lets things begin again: the shard is not given up after all.
    pub fn resume_after_drain(&mut self, now: Timestamp) -> Vec<ShardAction> {
        self.is_draining = false;
        let mut actions = Vec::new();
        for execution in self.actives.keys().copied().collect::<Vec<_>>() {
            self.advance_if_active(execution, now, &mut actions);
        }
        actions
    }

    /// Whether all that had begun has ended, and is durable. What is in memory then is in the store as well.
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
                .any(|(execution, news)| self.is_needed_for_drain(execution, news))
    }

    /// Whether an execution that is being read has to be: only this core knows how an attempt of it ended, or that it was not
    /// begun.
    pub(super) fn is_needed_for_drain(
        &self,
        execution: &ExecutionId,
        news: &VecDeque<PendingInput>,
    ) -> bool {
        let has_ended = news
            .iter()
            .any(|news| matches!(news, PendingInput::AttemptEnded(..)));
        has_ended
            || self
                .unstarted
                .iter()
                .any(|attempt| attempt.execution == *execution)
    }
}
