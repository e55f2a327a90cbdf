//! Campaign runs that this node cannot send: it lacks their provider, or their campaign document is
//! invalid here.

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

/// How long this node does not retry an unsendable run. Other nodes may be able to send it.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// Maximum number of unsendable runs kept in memory.
const RUNS_MAX: usize = 1_000;

/// The unsendable runs, each with the time at which it was marked.
#[derive(Default)]
pub(crate) struct UnsendableRuns(Mutex<BTreeMap<SharedText, Instant>>);

impl UnsendableRuns {
    fn lock_runs(&self) -> MutexGuard<'_, BTreeMap<SharedText, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the run is not to be retried yet. A cancelled run sends nothing and is therefore
    /// never unsendable.
    pub(crate) fn is_unsendable(&self, run: &CampaignRunRow) -> bool {
        run.control != CampaignRunControl::Cancelled
            && self
                .lock_runs()
                .get(&run.id)
                .is_some_and(|marked_at| marked_at.elapsed() < RETRY_DELAY)
    }

    /// Marks a run as unsendable. The first time is recorded in the audit trail, every time in the
    /// log.
    pub(crate) async fn mark_unsendable(
        &self,
        store: &dyn Store,
        run: &CampaignRunRow,
        worker: &str,
        error: &(impl std::error::Error + Sync),
    ) -> Result<(), Error> {
        let previous = {
            let mut runs = self.lock_runs();
            if runs.len() >= RUNS_MAX {
                runs.clear();
            }
            runs.insert(run.id.clone(), Instant::now())
        };
        // Another job of the same run may have been started at the same time and reported it
        // already.
        if previous.is_some_and(|marked_at| marked_at.elapsed() < RETRY_DELAY) {
            return Ok(());
        }
        tracing::error!(run = %run.id, %error, "this node cannot send a campaign run; it retries the run in a minute");
        if previous.is_some() {
            return Ok(());
        }
        let detail = json!({ "worker": worker, "error": error.to_string() });
        let entry = audit::append_entry(
            Commit::new(),
            run,
            "run.unreachable",
            &detail,
            store.now().await?,
        );
        match store.commit(entry).await {
            // The entry is informational, and the log has it as well.
            Err(error)
                if !matches!(
                    error.kind(),
                    StoreErrorKind::Fatal | StoreErrorKind::Corrupt | StoreErrorKind::Invalid
                ) =>
            {
                Ok(())
            }
            result => result.map(drop),
        }
    }
}
