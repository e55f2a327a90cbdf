//! Keeps the snapshot of every run within a second of its log.
//!
//! The store knows which runs have events that the projector has not processed, and the watermark
//! of each run. A pass processes each of these runs: it reads from the watermark, reduces the
//! events, and commits the new snapshot together with the new watermark. A crash in between costs
//! only the reading; if two projectors work on the same run, the store rejects one commit and that
//! projector reads again.
//!
//! Logs written by Onward have no gaps. A log from another source may have them: then the run is
//! marked STALE, no event is skipped, and the projector reads again, first from the snapshot, then
//! the whole log. Events that are missing from a full committed read are accepted as missing and
//! recorded: if they appear later, the run is projected again.

mod advance;
mod missing_ranges;
mod snapshot_cursor;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt as _, stream};
use onward_runs::RunId;
use onward_store::tables::{AlertCode, AlertSeverity};
use onward_store::{Error, RunEventReader, RunHead, Store, StoreErrorKind};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::PendingAlert;

pub use advance::RunAdvance;
pub use missing_ranges::MissingRanges;

/// Settings of the projector.
#[derive(Debug, Clone, Copy)]
pub struct ProjectorOptions {
    /// Maximum wait between passes when there is nothing to do; default: 200 ms.
    pub poll_interval: Duration,
    /// Number of runs processed concurrently; default: 16.
    pub concurrency: usize,
    /// Number of events read per page; default: 1000.
    pub page_size: usize,
    /// Lag above which an alert is raised; default: 5 s.
    pub lag_max: Duration,
    /// Interval at which the projector checks whether missing events have appeared; default: 10 s.
    pub recheck_interval: Duration,
}

impl Default for ProjectorOptions {
    fn default() -> Self {
        Self {
            poll_interval: Duration::from_millis(200),
            concurrency: 16,
            page_size: 1_000,
            lag_max: Duration::from_secs(5),
            recheck_interval: Duration::from_secs(10),
        }
    }
}

/// Result of one pass over all runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProjectorPass {
    /// Number of runs that were behind.
    pub runs: usize,
    /// Number of events that were reduced into snapshots.
    pub events: u64,
    /// Number of runs that need another pass because a gap was found.
    pub stale: usize,
    /// Number of runs whose snapshot could not be advanced.
    pub failed: usize,
    /// Age of the oldest unprocessed event, in milliseconds.
    pub lag_ms: u64,
}

/// The projector of one store.
pub struct Projector {
    store: Arc<dyn Store>,
    options: ProjectorOptions,
    wake: Arc<Notify>,
    is_lagging: bool,
    /// Runs whose log is shorter than it was before. They are skipped until their head changes, or
    /// until the next recheck.
    stuck_runs: BTreeMap<RunId, RunHead>,
}

impl Projector {
    /// Creates a projector; [`Projector::run`] starts it.
    pub fn new(store: Arc<dyn Store>, options: ProjectorOptions) -> Self {
        Self {
            store,
            options,
            wake: Arc::new(Notify::new()),
            is_lagging: false,
            stuck_runs: BTreeMap::new(),
        }
    }

    /// Handle to wake the projector after an append, so that it does not wait for its next poll.
    pub fn wake_handle(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }

    /// Runs until the store can no longer be used, and returns that error. Dropping the future
    /// stops the projector.
    pub async fn run(mut self) -> Error {
        let mut rechecked = Instant::now();
        loop {
            let has_more = match self.run_pass().await {
                Ok(pass) => pass.events > 0 && pass.stale == 0 && pass.failed == 0,
                Err(error) if error.kind() == StoreErrorKind::Fatal => return error,
                Err(error) => {
                    tracing::warn!(%error, "projector pass failed; retrying");
                    false
                }
            };
            if rechecked.elapsed() >= self.options.recheck_interval {
                rechecked = Instant::now();
                if let Err(error) = self.recheck_gaps().await {
                    tracing::warn!(%error, "missing events could not be read again; retrying");
                }
            }
            if !has_more {
                // Whether woken or timed out, the next pass follows.
                let _ =
                    tokio::time::timeout(self.options.poll_interval, self.wake.notified()).await;
            }
        }
    }

    /// Runs one pass: brings every run that is behind up to date.
    pub async fn run_pass(&mut self) -> Result<ProjectorPass, Error> {
        let mut pass = ProjectorPass::default();
        let mut after: Option<RunId> = None;
        loop {
            let heads = self
                .store
                .list_run_heads(Some(RunEventReader::Projector), after.as_ref(), 1_000)
                .await?;
            let Some(last) = heads.last() else { break };
            after = Some(last.run_id.clone());
            self.advance_runs(heads, &mut pass).await?;
        }
        self.watch_lag(pass.lag_ms).await?;
        metrics::gauge!("onward_projector_lag_seconds").set(pass.lag_ms as f64 / 1_000.0);
        metrics::counter!("onward_projector_events_total").increment(pass.events);
        Ok(pass)
    }

    async fn advance_runs(
        &mut self,
        heads: Vec<RunHead>,
        pass: &mut ProjectorPass,
    ) -> Result<(), Error> {
        let store = &*self.store;
        let now = store.now().await?;
        let (left, heads): (Vec<RunHead>, Vec<RunHead>) = heads
            .into_iter()
            .partition(|head| self.stuck_runs.get(&head.run_id) == Some(head));
        for head in left {
            pass.runs += 1;
            pass.stale += 1;
            pass.lag_ms = pass
                .lag_ms
                .max(advance::ms_between(head.last_persisted_at, now));
        }
        let page = self.options.page_size;
        let advance = |head: RunHead| async move {
            let advanced = advance::advance_run(store, &head, page).await;
            (head, advanced)
        };
        let mut done = stream::iter(heads)
            .map(advance)
            .buffer_unordered(self.options.concurrency);
        while let Some((head, advanced)) = done.next().await {
            pass.runs += 1;
            // The lag of a run that does not advance is at least the age of its last event.
            let waited_ms = advance::ms_between(head.last_persisted_at, now);
            match advanced {
                Ok(RunAdvance {
                    events,
                    lag_ms,
                    stale,
                    stuck,
                }) => {
                    if stuck {
                        self.stuck_runs.insert(head.run_id.clone(), head);
                    }
                    pass.events += events;
                    pass.lag_ms = pass.lag_ms.max(if stale { waited_ms } else { lag_ms });
                    pass.stale += usize::from(stale);
                }
                Err(error) if error.kind() == StoreErrorKind::Fatal => return Err(error),
                Err(error) if error.kind() == StoreErrorKind::Conflict => {
                    pass.failed += 1;
                    tracing::debug!(run = %head.run_id, %error, "another projector advanced the snapshot first");
                }
                Err(error) => {
                    pass.failed += 1;
                    pass.lag_ms = pass.lag_ms.max(waited_ms);
                    tracing::warn!(run = %head.run_id, %error, "snapshot could not be advanced; retrying");
                }
            }
        }
        Ok(())
    }

    /// Checks the runs with missing events and projects those again in which some have appeared.
    /// Returns their number.
    pub async fn recheck_gaps(&mut self) -> Result<usize, Error> {
        self.stuck_runs.clear();
        advance::reproject_filled_gaps(&*self.store, self.options.page_size).await
    }

    /// Raises one alert each time the lag becomes high; the next one requires that the lag first
    /// returns to at most one second.
    async fn watch_lag(&mut self, lag_ms: u64) -> Result<(), Error> {
        let is_high = u128::from(lag_ms) > self.options.lag_max.as_millis();
        let becomes_high = is_high && !self.is_lagging;
        self.is_lagging = is_high || (self.is_lagging && lag_ms > 1_000);
        if !becomes_high {
            return Ok(());
        }
        let now = self.store.now().await?;
        let message = format!(
            "snapshots lag {:.1} s behind their logs; the limit is {:.0} s",
            lag_ms as f64 / 1e3,
            self.options.lag_max.as_secs_f64()
        );
        let alert = PendingAlert {
            code: AlertCode::ProjectorLagHigh,
            severity: AlertSeverity::P2,
            subject: "projector".into(),
            dedup_key: now.to_string().into(),
            message: message.into(),
        };
        alert.raise_once(&*self.store, now).await
    }
}
