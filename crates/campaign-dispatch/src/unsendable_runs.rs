//! Campaign runs that cannot reach anybody from this node: their provider is not there, or their file makes no sense to it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_base::SharedText;
use onward_campaign_core::CampaignRunControl;
use onward_store::tables::CampaignRunRow;
use onward_store::{Commit, Error, Store, StoreErrorKind};
use serde_json::json;
use tokio::time::Instant;

use crate::audit;

/// How long to leave such a run alone. Other nodes may know better.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// Such runs that are remembered.
const RUNS_MAX: usize = 1_000;

/// Since when which runs are left alone.
#[derive(Default)]
pub(crate) struct UnsendableRuns(Mutex<BTreeMap<SharedText, Instant>>);

impl UnsendableRuns {
    fn lock_runs(&self) -> MutexGuard<'_, BTreeMap<SharedText, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a run is left alone. One that is cancelled need not reach anybody.
    pub(crate) fn is_unsendable(&self, run: &CampaignRunRow) -> bool {
        let is_cancelled =
            CampaignRunControl::parse(&run.control) == Some(CampaignRunControl::Cancelled);
        !is_cancelled
            && self
                .lock_runs()
                .get(&run.id)
                .is_some_and(|since| since.elapsed() < RETRY_DELAY)
    }

    /// Leaves a run alone. The audit trail says so the first time, and the log each time.
    pub(crate) async fn mark_unsendable(
        &self,
        store: &dyn Store,
        run: &CampaignRunRow,
        worker: &str,
        words: &str,
    ) -> Result<(), Error> {
        let before = {
            let mut shut = self.lock_runs();
            if shut.len() >= RUNS_MAX {
                shut.clear();
            }
            shut.insert(run.id.clone(), Instant::now())
        };
        // Others of its jobs may have been begun at the same time.
        if before.is_some_and(|before| before.elapsed() < RETRY_DELAY) {
            return Ok(());
        }
        tracing::error!(run = %run.id, error = words, "a campaign run cannot reach anybody from here; it is tried again in a minute");
        if before.is_some() {
            return Ok(());
        }
        let detail = json!({ "worker": worker, "error": words });
        let entry = audit::append_entry(
            Commit::new(),
            run,
            "run.unreachable",
            &detail,
            store.now().await?,
        );
        match store.commit(entry).await {
            // It is for people; the log has it as well.
            Err(error)
                if !matches!(
                    error.kind(),
                    StoreErrorKind::Fatal | StoreErrorKind::Corrupt | StoreErrorKind::Invalid
                ) =>
            {
                Ok(())
            }
            stored => stored.map(drop),
        }
    }
}
