//! Answers of a provider to a worker that was stopped for longer than its lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_campaign_core::{CampaignRunStatus, SendOutcome};
use onward_store::{AdmittedCommit, CommitReceipt, Error, Store};
use tokio::sync::watch;

use crate::faulty_store::{FaultyStore, StoreFaults};
use crate::world::{POLICY, RecordingProvider, World, accepted, expect};

/// Stops the worker before its second commit, the one with the answers, for more than a lease.
#[derive(Default)]
struct StallBeforeAnswers(AtomicU32);

#[async_trait]
impl StoreFaults for StallBeforeAnswers {
    async fn apply(
        &self,
        store: &dyn Store,
        commit: AdmittedCommit,
    ) -> Result<CommitReceipt, Error> {
        if self.0.fetch_add(1, Ordering::SeqCst) == 1 {
            tokio::time::sleep(Duration::from_secs(400)).await;
        }
        store.apply_commit(commit).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_after_the_lease_settles_the_item_if_it_was_accepted() {
    let script = |recipient: &str, _| match recipient {
        "refused" => SendOutcome::Refused("550".into()),
        _ => accepted(),
    };
    let world = World::new(RecordingProvider::new(script), POLICY);
    let run = world.deploy(&["a", "b", "refused"]).await.unwrap().run_id;
    let store = FaultyStore(Arc::clone(&world.store), StallBeforeAnswers::default());
    let (stop, stopped) = watch::channel(false);
    let stalling = tokio::spawn(world.dispatcher_on(Arc::new(store)).run(stopped));
    tokio::time::sleep(Duration::from_secs(10)).await;
    // Another worker takes over, and does not know whether the items were sent.
    let taken_over = async |world: &World| world.item_counts(&run).await.in_doubt == 3;
    world.work_until(taken_over).await;
    tokio::time::sleep(Duration::from_secs(300)).await;
    let expected = [("a", "sent"), ("b", "sent"), ("refused", "in doubt")];
    assert_eq!(world.statuses().await, expect(&expected));
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Running);
    let item = &world.items().await[0];
    assert_eq!(item.provider_message_id.as_deref(), Some("m-1"));
    assert!(world.provider.calls().values().all(|count| *count == 1));
    stop.send_replace(true);
    stalling.await.unwrap().unwrap();
}
