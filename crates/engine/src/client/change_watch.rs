//! Waits for changes of a journal or of a run: notified in this process, with a slow poll of the
//! store for changes that other processes make.

use std::sync::Arc;
use std::time::Duration;

use onward_journal::ExecutionId;
use onward_runs::RunId;
use onward_store::ShardId;
use onward_store::tables::ExecutionRow;

use super::EngineClient;
use crate::node::LocalHub;
use crate::node::change_topics::ChangeSubscription;

/// First interval for polling what another process may change. It doubles while nothing changes.
const POLL_INTERVAL_MIN: Duration = Duration::from_millis(100);

/// Longest interval for polling what another process may change.
const POLL_INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Interval for polling what this process changes: only a takeover can make it miss a change.
const OWN_POLL_INTERVAL: Duration = Duration::from_secs(5);

/// How often a waiting client polls the store.
#[derive(Clone)]
pub(crate) struct PollPace {
    /// The hub of this process, and the shard of what is waited for.
    owner: Option<(Arc<LocalHub>, ShardId)>,
    /// Whether the interval grows. It does not in a process without a node, which is a command that
    /// waits for one thing.
    is_growing: bool,
    interval: Duration,
}

impl PollPace {
    pub(crate) fn new(hub: Option<&Arc<LocalHub>>, shard: Option<ShardId>) -> Self {
        Self {
            owner: hub.cloned().zip(shard),
            is_growing: hub.is_some(),
            interval: POLL_INTERVAL_MIN,
        }
    }

    /// Whether this process changes what is waited for.
    pub(crate) fn is_owned_here(&self) -> bool {
        let owner = self.owner.as_ref();
        owner.is_some_and(|(hub, shard)| hub.owns_shard(*shard))
    }

    /// Returns the time until the next poll.
    pub(crate) fn next_interval(&mut self) -> Duration {
        if self.is_owned_here() {
            return OWN_POLL_INTERVAL;
        }
        let interval = self.interval;
        if self.is_growing {
            self.interval = (interval * 2).min(POLL_INTERVAL_MAX);
        }
        interval
    }

    /// Polls quickly again, because there was a change.
    pub(crate) const fn reset(&mut self) {
        self.interval = POLL_INTERVAL_MIN;
    }
}

/// Waits for changes of a journal or of a run.
pub struct ChangeWatch<K: Ord + Clone> {
    subscription: Option<ChangeSubscription<K>>,
    pace: PollPace,
}

impl<K: Ord + Clone> ChangeWatch<K> {
    /// Waits until there may be a change that was not there when this watch was created, or when
    /// this last returned.
    pub async fn wait_for_change(&mut self) {
        let poll = tokio::time::sleep(self.pace.next_interval());
        let Some(subscription) = &mut self.subscription else {
            return poll.await;
        };
        tokio::select! {
            () = subscription.wait_for_change() => self.pace.reset(),
            () = poll => {}
        }
    }
}

impl EngineClient {
    /// Watches the journal of an execution. Changes after this call are noticed, so create the
    /// watch before reading the journal.
    pub fn watch_journal(&self, row: &ExecutionRow) -> ChangeWatch<ExecutionId> {
        let hub = self.hub.as_ref();
        ChangeWatch {
            subscription: hub.map(|hub| hub.journal_changes.subscribe(row.execution_id)),
            pace: PollPace::new(hub, Some(row.shard)),
        }
    }

    /// Watches the events of a run, like [`watch_journal`](Self::watch_journal).
    pub fn watch_run(&self, run: &RunId) -> ChangeWatch<RunId> {
        let hub = self.hub.as_ref();
        ChangeWatch {
            subscription: hub.map(|hub| hub.run_changes.subscribe(run.clone())),
            pace: PollPace::new(hub, None),
        }
    }

    /// Notifies the watches of this process that events of a run were appended.
    pub fn notify_run(&self, run: &RunId) {
        if let Some(hub) = &self.hub {
            hub.run_changes.notify_change(run);
        }
    }
}
