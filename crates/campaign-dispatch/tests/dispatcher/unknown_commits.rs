//! Commits with an unknown outcome: a worker never mistakes one commit for another.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_campaign_core::{DispatchPolicy, JobStatus, SendOutcome};
use onward_campaign_dispatch::{Dispatcher, Options, UnrestrictedGate};
use onward_store::tables::JobRow;
use onward_store::{AdmittedCommit, CommitReceipt, Error, Store, TableRecord as _, TableSchema};
use tokio::sync::watch;

use crate::fairness::{SlowProvider, delivery};
use crate::faulty_store::{FaultyStore, StoreFaults};
use crate::world::{POLICY, RecordingProvider, World, accepted};

/// The second commit, a lease renewal, is stored, but its outcome is unknown and cannot be read.
/// The fourth, which has the outcomes of a provider call, is not stored, and its outcome is
/// unknown.
struct LostCommits {
    commits: AtomicU32,
    is_unreadable: AtomicBool,
}

#[async_trait]
impl StoreFaults for LostCommits {
    async fn apply(
        &self,
        store: &dyn Store,
        commit: AdmittedCommit,
    ) -> Result<CommitReceipt, Error> {
        match 1 + self.commits.fetch_add(1, Ordering::SeqCst) {
            2 => {
                store.apply_commit(commit).await?;
                self.is_unreadable.store(true, Ordering::SeqCst);
                Err(Error::OutcomeUnknown("connection lost".to_owned()))
            }
            4 => Err(Error::OutcomeUnknown("connection lost".to_owned())),
            _ => store.apply_commit(commit).await,
        }
    }

    async fn read(&self, table: &TableSchema) -> Result<(), Error> {
        let is_unreadable =
            table.name == JobRow::TABLE.name && self.is_unreadable.swap(false, Ordering::SeqCst);
        if is_unreadable {
            Err(Error::Unavailable("injected fault".to_owned()))
        } else {
            Ok(())
        }
    }
}

/// Dispatches for an hour on the faulty store, with a provider that takes 25 s per item, and
/// returns the recipients that it was called for.
async fn dispatch_with_lost_commits(world: &World) -> Vec<String> {
    let (slow, is_unreadable) = (Arc::new(SlowProvider::default()), AtomicBool::new(false));
    let store = FaultyStore(
        Arc::clone(&world.store),
        LostCommits {
            commits: AtomicU32::new(0),
            is_unreadable,
        },
    );
    let policy = DispatchPolicy {
        window: 1,
        max_sends: 9,
        max_attempts: 9,
        ..POLICY
    };
    let delivery = delivery(Arc::clone(&slow) as _, UnrestrictedGate, policy);
    let options = Options {
        concurrency: 1,
        lease: Duration::from_secs(60),
        ..Options::default()
    };
    let (stop, stopped) = watch::channel(false);
    let dispatching =
        tokio::spawn(Dispatcher::new(Arc::new(store), Arc::new(delivery), options).run(stopped));
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    stop.send_replace(true);
    dispatching.await.unwrap().unwrap();
    let mut called = slow.called.lock().unwrap().clone();
    called.sort();
    called
}

#[tokio::test(start_paused = true)]
async fn a_lost_step_is_not_mistaken_for_an_earlier_renewal_with_an_unknown_outcome() {
    let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
    world.deploy(&["a", "b", "c"]).await.unwrap();
    assert_eq!(dispatch_with_lost_commits(&world).await, ["a", "b", "c"]);
    assert_eq!(
        world.statuses().await["a"],
        "in doubt",
        "the outcome of the call is not stored"
    );
    assert!(
        world
            .items()
            .await
            .iter()
            .all(|item| item.reserved_since.is_none())
    );
}

#[tokio::test(start_paused = true)]
async fn the_provider_is_not_called_for_a_reservation_that_is_not_stored() {
    // Deferred items have rows already.
    let defer = |_: &str, _| SendOutcome::Deferred("injected fault".into());
    let world = World::new(RecordingProvider::new(defer), POLICY);
    world.deploy(&["a", "b", "c"]).await.unwrap();
    world
        .work_until(async |world| world.jobs().await[0].status == JobStatus::Failed)
        .await;
    assert_eq!(
        dispatch_with_lost_commits(&world).await,
        ["a", "b", "c"],
        "each is sent once"
    );
}
