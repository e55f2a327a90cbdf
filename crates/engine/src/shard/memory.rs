//! The executions in memory: puts them back after a step, watches their deadlines, and evicts those
//! that are idle.

use onward_base::Timestamp;
use onward_journal::ExecutionId;

use super::active_execution::ActiveExecution;
use super::shard_core::ShardCore;

/// Interval at which idle executions are looked for, in milliseconds.
const IDLE_SWEEP_INTERVAL_MS: u64 = 100;

/// Guest capacity below which all idle executions are evicted.
const GUEST_CAPACITY_LOW: usize = 64;

impl ShardCore {
    pub(super) fn take_active(&mut self, execution: &ExecutionId) -> Option<Box<ActiveExecution>> {
        let active = self.actives.remove(execution)?;
        self.unwatch_deadline(&active);
        Some(active)
    }

    /// Puts an execution back into memory and registers its deadline.
    pub(super) fn put_active(&mut self, mut active: Box<ActiveExecution>, now: Timestamp) {
        self.unwatch_deadline(&active);
        // While a commit is in flight, a deadline cannot be acted on.
        active.watched_deadline = if active.commit_ticket.is_some() || active.is_paused {
            None
        } else {
            active.execution.next_deadline()
        };
        if let Some(at) = active.watched_deadline {
            self.deadlines.insert((at, active.id()));
        }
        active.last_used_at = now;
        self.actives.insert(active.id(), active);
    }

    pub(super) fn unwatch_deadline(&mut self, active: &ActiveExecution) {
        if let Some(at) = active.watched_deadline {
            self.deadlines.remove(&(at, active.id()));
        }
    }

    /// Evicts executions that have been idle for too long or exceed the maximum number.
    pub(super) fn evict_idle_executions(&mut self, now: Timestamp) {
        if now < self.last_sweep_at.plus_ms(IDLE_SWEEP_INTERVAL_MS) {
            return;
        }
        self.last_sweep_at = now;
        let mut idle: Vec<(Timestamp, ExecutionId)> = self
            .actives
            .values()
            .filter(|active| active.is_idle())
            .map(|active| (active.last_used_at, active.id()))
            .collect();
        idle.sort_unstable();
        let idle_max = if self.functions.guest_capacity() < GUEST_CAPACITY_LOW {
            0
        } else {
            self.options.idle_max
        };
        let surplus = idle.len().saturating_sub(idle_max);
        for (place, (touched, execution)) in idle.into_iter().enumerate() {
            if place < surplus || touched.plus_ms(self.options.idle_ms) <= now {
                self.take_active(&execution);
            }
        }
    }

    /// Evicts the idle guest that was unused for longest. Returns whether there was one.
    pub(super) fn evict_idle_guest(&mut self) -> bool {
        let idle = self
            .actives
            .values()
            .filter(|active| active.guest.is_some() && active.is_idle());
        match idle
            .min_by_key(|active| active.last_used_at)
            .map(|active| active.id())
        {
            Some(execution) => self.take_active(&execution).is_some(),
            None => false,
        }
    }
}
