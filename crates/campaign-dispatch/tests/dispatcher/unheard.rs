//! Commits of which nothing is heard: one of them is never taken for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_campaign_core::{DispatchPolicy, SendOutcome};
use onward_campaign_dispatch::{Dispatcher, Options, UnrestrictedGate};
use onward_store::tables::JobRow;
use onward_store::{AdmittedCommit, CommitReceipt, Error, Store, TableRecord as _, TableSchema};
use tokio::sync::watch;

use crate::between::{Between, Meddle};
use crate::turns::{Slow, outlet};
use crate::world::{Counting, TERMS, World, accepted};

/// The second commit, a renewal, is stored and not heard of, and cannot be read either. The fourth,
/// which has what the provider said, is neither stored nor heard of.
struct Cut {
    commits: AtomicU32,
    is_unreadable: AtomicBool,
}

#[async_trait]
impl Meddle for Cut {
    async fn apply(
        &self,
        store: &dyn Store,
        commit: AdmittedCommit,
    ) -> Result<CommitReceipt, Error> {
        match 1 + self.commits.fetch_add(1, Ordering::SeqCst) {
            2 => {
                store.apply_commit(commit).await?;
                self.is_unreadable.store(true, Ordering::SeqCst);
                Err(Error::OutcomeUnknown("cut off".to_owned()))
            }
            4 => Err(Error::OutcomeUnknown("cut off".to_owned())),
            _ => store.apply_commit(commit).await,
        }
    }

    async fn read(&self, table: &TableSchema) -> Result<(), Error> {
        let is_unreadable =
            table.name == JobRow::TABLE.name && self.is_unreadable.swap(false, Ordering::SeqCst);
        if is_unreadable {
            Err(Error::Unavailable("not now".to_owned()))
        } else {
            Ok(())
        }
    }
}

/// Works for an hour on a store that is cut off, by a provider that takes half a minute for each.
async fn live_through(world: &World) -> Vec<String> {
    let (slow, is_unreadable) = (Arc::new(Slow::default()), AtomicBool::new(false));
    let store = Between(
        Arc::clone(&world.store),
        Cut {
            commits: AtomicU32::new(0),
            is_unreadable,
        },
    );
    let terms = DispatchPolicy {
        window: 1,
        max_sends: 9,
        max_attempts: 9,
        ..TERMS
    };
    let outlet = outlet(Arc::clone(&slow) as _, UnrestrictedGate, terms);
    let options = Options {
        concurrency: 1,
        lease: Duration::from_secs(60),
        ..Options::default()
    };
    let (stop, stopped) = watch::channel(false);
    let working =
        tokio::spawn(Dispatcher::new(Arc::new(store), Arc::new(outlet), options).run(stopped));
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
    assert_eq!(
        world.statuses().await["a"],
        "in doubt",
        "what was heard of it is not stored"
    );
    assert!(
        world
            .items()
            .await
            .iter()
            .all(|item| item.held_since.is_none())
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_is_called_on_a_reservation_that_is_not_stored() {
    // All of them have rows already.
    let put_off = |_: &str, _| SendOutcome::Deferred("not now".into());
    let world = World::new(Counting::new(put_off), TERMS);
    world.deploy(&["a", "b", "c"]).await.unwrap();
    world
        .work_until(async |world| &*world.jobs().await[0].status == "failed")
        .await;
    assert_eq!(live_through(&world).await, ["a", "b", "c"], "each once");
}
