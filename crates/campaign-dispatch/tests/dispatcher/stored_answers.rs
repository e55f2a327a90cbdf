//! Answers of a provider are stored before the worker waits for anything, so that a crash during
//! the wait leaves no answered item in doubt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::Timestamp;
use onward_campaign_core::{AudienceRecipient, CampaignRunStatus, DispatchPolicy};
use onward_campaign_dispatch::{AdmissionGate, SendAdmission};
use onward_store::tables::OutboxItemRow;
use onward_store::{AdmittedCommit, CommitReceipt, Error, RecordReader as _, Store, TableScan};
use tokio::sync::{Semaphore, watch};

use crate::faulty_store::{FaultyStore, StoreFaults};
use crate::world::{POLICY, RecordingProvider, World, accepted};

/// Admits one recipient on each first call of a pair, and delays the worker for a second on each
/// second call.
#[derive(Default)]
struct OneThenWait(AtomicU32);

impl AdmissionGate for OneThenWait {
    fn admit_recipients(
        &self,
        _recipients: &[&AudienceRecipient],
        _at_most: usize,
        _now: Timestamp,
    ) -> SendAdmission {
        match self.0.fetch_add(1, Ordering::SeqCst) {
            0 => SendAdmission::Admitted(vec![0]),
            _ => SendAdmission::Delayed(Duration::from_secs(1)),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_stored_before_the_worker_waits_for_a_rate_limit() {
    let world = World::with_gate(
        RecordingProvider::new(|_, _| accepted()),
        POLICY,
        OneThenWait::default(),
    );
    let run = world.deploy(&["a", "b", "c"]).await.unwrap().run_id;
    let (_stop, stopped) = watch::channel(false);
    let crashing = tokio::spawn(world.dispatcher().run(stopped));
    while world.provider.calls().is_empty() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The worker now waits for the gate, for two seconds at most.
    tokio::time::sleep(Duration::from_millis(500)).await;
    crashing.abort();
    assert_eq!(world.item_counts(&run).await.sent, 1);
    assert!(
        world
            .items()
            .await
            .iter()
            .all(|item| item.reserved_since.is_none()),
        "a crash leaves no item in doubt: {:?}",
        world.items().await
    );
}

/// Records the largest number of items that were reserved at the same time.
struct ReservedCount(Arc<AtomicUsize>);

#[async_trait]
impl StoreFaults for ReservedCount {
    async fn apply(
        &self,
        store: &dyn Store,
        commit: AdmittedCommit,
    ) -> Result<CommitReceipt, Error> {
        // Commits take time, in which other workers can reserve items.
        tokio::time::sleep(Duration::from_millis(5)).await;
        let applied = store.apply_commit(commit).await;
        let items: Vec<(OutboxItemRow, u64)> = store
            .list_records(TableScan::all_rows::<OutboxItemRow>())
            .await?;
        let is_reserved = |(item, _): &&(OutboxItemRow, u64)| item.reserved_since.is_some();
        self.0
            .fetch_max(items.iter().filter(is_reserved).count(), Ordering::SeqCst);
        applied
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_together_reserve_no_more_items_than_the_provider_has_permits() {
    let provider = RecordingProvider {
        permits: Some(Arc::new(Semaphore::new(1))),
        latency: Duration::from_millis(20),
        ..RecordingProvider::new(|_, _| accepted())
    };
    let policy = DispatchPolicy {
        window: 2,
        ..POLICY
    };
    let world = World::new(provider, policy);
    let recipients: Vec<String> = (0..24).map(|number| format!("p{number}")).collect();
    let recipients: Vec<&str> = recipients.iter().map(String::as_str).collect();
    let run = world.deploy(&recipients).await.unwrap().run_id;
    let reserved = Arc::new(AtomicUsize::new(0));
    let store = FaultyStore(
        Arc::clone(&world.store),
        ReservedCount(Arc::clone(&reserved)),
    );
    let (stop, stopped) = watch::channel(false);
    let dispatching = tokio::spawn(world.dispatcher_on(Arc::new(store)).run(stopped));
    while !world.has_ended(&run).await {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    stop.send_replace(true);
    dispatching.await.unwrap().unwrap();
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Completed);
    assert_eq!(reserved.load(Ordering::SeqCst), 1);
}
