//! A store in memory: the simplest thing that can be right. Other stores are compared with it, and adapters whose
//! database is far away decide on a [`State`] that they have loaded with what a commit is about.

mod state;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use async_trait::async_trait;
use onward_journal::{ExecutionId, Timestamp};
use onward_runs::{RunEventRecord, RunId};

pub use state::State;

use crate::{
    Admitted, Care, Clock, Error, Heard, JournalChunk, Key, Page, Policy, Presence, Purge, Reader, Receipt, RunHead,
    Scan, Store, Stored, SystemClock, Table, decide,
};

/// A store that forgets everything when it is dropped.
pub struct Memory {
    state: Mutex<State>,
    policy: Policy,
    clock: Arc<dyn Clock>,
    listeners: Mutex<Vec<Listener>>,
}

/// Somebody who hears what is told, as long as they want to.
type Listener = Weak<dyn Fn(&str) + Send + Sync>;

impl Default for Memory {
    fn default() -> Self {
        Self::new(Policy::default(), Arc::new(SystemClock))
    }
}

impl Memory {
    /// An empty store.
    pub fn new(policy: Policy, clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), policy, clock, listeners: Mutex::default() }
    }

    /// Nothing panics between two writes of a plan, so what a poisoned lock guards is whole.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Store for Memory {
    fn policy(&self) -> &Policy {
        &self.policy
    }

    async fn apply(&self, commit: Admitted) -> Result<Receipt, Error> {
        let mut state = self.state();
        let plan = decide(&commit, &mut *state, self.clock.now(), Care::Look)?;
        state.write(&plan);
        Ok(plan.receipt)
    }

    async fn row(&self, table: &'static Table, key: Key) -> Result<Option<Stored>, Error> {
        Ok(self.state().get(table, &key).cloned())
    }

    async fn count(&self, scan: Scan) -> Result<u64, Error> {
        Ok(self.state().scan(&scan, usize::MAX).len() as u64)
    }

    async fn rows(&self, scan: Scan) -> Result<Vec<Stored>, Error> {
        Ok(self.state().scan(&scan, self.policy.limits.page_max))
    }

    async fn journal(&self, execution: ExecutionId, from: u64, limit: usize) -> Result<Vec<JournalChunk>, Error> {
        Ok(self.state().journal(execution, from, limit.min(self.policy.limits.page_max)))
    }

    async fn run_events(&self, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error> {
        Ok(self.state().run_events(run, page.after, page.limit.min(self.policy.limits.page_max)))
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        Ok(self.state().run(run).cloned())
    }

    async fn runs(&self, behind: Option<Reader>, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, Error> {
        Ok(self.state().runs(behind, after, limit.min(self.policy.limits.page_max)))
    }

    async fn purge(&self, purge: Purge) -> Result<bool, Error> {
        Ok(self.state().purge(&purge))
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.clock.now())
    }

    fn tell(&self, words: String) {
        let listeners: Vec<Heard> = {
            let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
            listeners.retain(|listener| listener.strong_count() > 0);
            listeners.iter().filter_map(Weak::upgrade).collect()
        };
        for heard in listeners {
            heard(&words);
        }
    }

    fn hear(&self, heard: Heard) -> Option<Presence> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&heard));
        Some(Box::new(heard))
    }
}
