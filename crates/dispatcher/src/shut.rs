//! Campaign runs that cannot reach anybody from this node: their provider is not there, or their file makes no sense to it.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use onward_dispatch::Control;
use onward_journal::Text;
use onward_store::tables::CampaignRun;
use onward_store::{Commit, Error, Kind, Store};
use serde_json::json;
use tokio::time::Instant;

use crate::audit;

/// How long to leave such a run alone. Other nodes may know better.
const ALONE: Duration = Duration::from_secs(60);

/// Such runs that are remembered.
const RUNS_MAX: usize = 1_000;

/// Since when which runs are left alone.
#[derive(Default)]
pub(crate) struct Shut(Mutex<BTreeMap<Text, Instant>>);

impl Shut {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Text, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a run is left alone. One that is cancelled need not reach anybody.
    pub(crate) fn is(&self, run: &CampaignRun) -> bool {
        let is_cancelled = Control::parse(&run.control) == Some(Control::Cancelled);
        !is_cancelled && self.lock().get(&run.id).is_some_and(|since| since.elapsed() < ALONE)
    }

    /// Leaves a run alone. The audit trail says so the first time, and the log each time.
    pub(crate) async fn note(
        &self,
        store: &dyn Store,
        run: &CampaignRun,
        worker: &str,
        words: &str,
    ) -> Result<(), Error> {
        let before = {
            let mut shut = self.lock();
            if shut.len() >= RUNS_MAX {
                shut.clear();
            }
            shut.insert(run.id.clone(), Instant::now())
        };
        // Others of its jobs may have been begun at the same time.
        if before.is_some_and(|before| before.elapsed() < ALONE) {
            return Ok(());
        }
        tracing::error!(run = %run.id, error = words, "a campaign run cannot reach anybody from here; it is tried again in a minute");
        if before.is_some() {
            return Ok(());
        }
        let detail = json!({ "worker": worker, "error": words });
        let entry = audit::entry(Commit::new(), run, "run.unreachable", &detail, store.now().await?);
        match store.commit(entry).await {
            // It is for people; the log has it as well.
            Err(error) if !matches!(error.kind(), Kind::Fatal | Kind::Corrupt | Kind::Invalid) => Ok(()),
            stored => stored.map(drop),
        }
    }
}
