//! Commits of which nothing is heard: one of them is never taken for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_dispatch::{Answer, Terms};
use onward_dispatcher::{Dispatcher, Open, Options};
use onward_journal::{ExecutionId, Timestamp};
use onward_runs::{RunEventRecord, RunId};
use onward_store::tables::Job;
use onward_store::{
    Admitted, Error, JournalChunk, Key, Page, Policy, Purge, Reader, Receipt, Record as _, RunHead, Scan, Store,
    Stored, Table,
};
use tokio::sync::watch;

use crate::turns::{Slow, outlet};
use crate::world::{Counting, TERMS, World, accepted};

/// The second commit, a renewal, is stored and not heard of, and cannot be read either. The fourth, which has what the provider
/// said, is neither stored nor heard of.
struct Cut {
    store: Arc<dyn Store>,
    commits: AtomicU32,
    is_unreadable: AtomicBool,
}

#[async_trait]
impl Store for Cut {
    fn policy(&self) -> &Policy {
        self.store.policy()
    }

    async fn apply(&self, commit: Admitted) -> Result<Receipt, Error> {
        match 1 + self.commits.fetch_add(1, Ordering::SeqCst) {
            2 => {
                self.store.apply(commit).await?;
                self.is_unreadable.store(true, Ordering::SeqCst);
                Err(Error::OutcomeUnknown("cut off".to_owned()))
            }
            4 => Err(Error::OutcomeUnknown("cut off".to_owned())),
            _ => self.store.apply(commit).await,
        }
    }

    async fn row(&self, table: &'static Table, key: Key) -> Result<Option<Stored>, Error> {
        if table.name == Job::TABLE.name && self.is_unreadable.swap(false, Ordering::SeqCst) {
            return Err(Error::Unavailable("not now".to_owned()));
        }
        self.store.row(table, key).await
    }

    async fn rows(&self, scan: Scan) -> Result<Vec<Stored>, Error> {
        self.store.rows(scan).await
    }

    async fn count(&self, scan: Scan) -> Result<u64, Error> {
        self.store.count(scan).await
    }

    async fn journal(&self, execution: ExecutionId, from: u64, limit: usize) -> Result<Vec<JournalChunk>, Error> {
        self.store.journal(execution, from, limit).await
    }

    async fn run_events(&self, run: &RunId, page: Page) -> Result<Vec<RunEventRecord>, Error> {
        self.store.run_events(run, page).await
    }

    async fn run(&self, run: &RunId) -> Result<Option<RunHead>, Error> {
        self.store.run(run).await
    }

    async fn runs(&self, behind: Option<Reader>, after: Option<&RunId>, limit: usize) -> Result<Vec<RunHead>, Error> {
        self.store.runs(behind, after, limit).await
    }

    async fn purge(&self, purge: Purge) -> Result<bool, Error> {
        self.store.purge(purge).await
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.store.now().await
    }
}

/// Works for an hour on a store that is cut off, by a provider that takes half a minute for each.
async fn live_through(world: &World) -> Vec<String> {
    let (slow, is_unreadable) = (Arc::new(Slow::default()), AtomicBool::new(false));
    let store = Cut { store: Arc::clone(&world.store), commits: AtomicU32::new(0), is_unreadable };
    let terms = Terms { window: 1, calls_max: 9, attempts_max: 9, ..TERMS };
    let outlet = outlet(Arc::clone(&slow) as _, Open, terms);
    let options = Options { lanes: 1, lease: Duration::from_secs(60), ..Options::default() };
    let (stop, stopped) = watch::channel(false);
    let working = tokio::spawn(Dispatcher::new(Arc::new(store), Arc::new(outlet), options).run(stopped));
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    stop.send_replace(true);
    working.await.unwrap().unwrap();
    let mut called = slow.called.lock().unwrap().clone();
    called.sort();
    called
}

#[tokio::test(start_paused = true)]
async fn a_step_after_a_renewal_that_was_not_heard_of_is_not_taken_for_stored() {
    let world = World::new(Counting::new(|_, _| accepted()), TERMS);
    world.deploy(&["a", "b", "c"]).await.unwrap();
    assert_eq!(live_through(&world).await, ["a", "b", "c"]);
    assert_eq!(world.statuses().await["a"], "in doubt", "what was heard of it is not stored");
    assert!(world.items().await.iter().all(|item| item.held_since.is_none()));
}

#[tokio::test(start_paused = true)]
async fn nobody_is_called_on_a_reservation_that_is_not_stored() {
    // All of them have rows already.
    let put_off = |_: &str, _| Answer::Later("not now".into());
    let world = World::new(Counting::new(put_off), TERMS);
    world.deploy(&["a", "b", "c"]).await.unwrap();
    world.work_until(async |world| &*world.jobs().await[0].status == "failed").await;
    assert_eq!(live_through(&world).await, ["a", "b", "c"], "each once");
}
