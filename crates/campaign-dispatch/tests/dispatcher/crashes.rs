//! Workers that crash or stall at a chosen point: before or after the n-th commit, or during a
//! provider call.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_campaign_core::{CampaignRunStatus, DispatchPolicy, JobStatus};
use onward_campaign_dispatch::{Options, Resolution};
use onward_store::{AdmittedCommit, CommitReceipt, Error, Store};
use tokio::sync::{Notify, watch};

use crate::faulty_store::{FaultyStore, StoreFaults};
use crate::world::{POLICY, RecordingProvider, World, accepted};

/// The point at which a worker crashes or stalls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CrashPoint {
    Before(u32),
    After(u32),
    /// The worker continues after a stall of more than a lease.
    Stall(u32),
}

/// The duration of a stall: more than a lease.
const STALL_DURATION: Duration = Duration::from_secs(400);

/// Stops the worker at a commit, and notifies the test.
struct CrashAtCommit {
    point: CrashPoint,
    commits: AtomicU32,
    reached: Arc<Notify>,
}

impl CrashAtCommit {
    async fn stop_at(&self, point: CrashPoint) {
        if point == self.point {
            self.reached.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl StoreFaults for CrashAtCommit {
    async fn apply(
        &self,
        store: &dyn Store,
        commit: AdmittedCommit,
    ) -> Result<CommitReceipt, Error> {
        let number = 1 + self.commits.fetch_add(1, Ordering::SeqCst);
        self.stop_at(CrashPoint::Before(number)).await;
        let applied = store.apply_commit(commit).await;
        self.stop_at(CrashPoint::After(number)).await;
        if self.point == CrashPoint::Stall(number) {
            self.reached.notify_one();
            tokio::time::sleep(STALL_DURATION).await;
        }
        applied
    }
}

/// Crashes a worker at a point, lets another worker continue, and returns how many items were in
/// doubt, or `None` if the worker does not reach the point.
#[expect(
    clippy::too_many_lines,
    reason = "one scenario or one list of cases, read from top to bottom"
)]
async fn crash_at(point: CrashPoint) -> Option<usize> {
    let recipients = ["a", "b", "c", "d", "e", "f"];
    let policy = DispatchPolicy {
        window: 2,
        ..POLICY
    };
    let world = World::new(RecordingProvider::new(|_, _| accepted()), policy);
    let run = world.deploy(&recipients).await.unwrap().run_id;
    let reached = Arc::new(Notify::new());
    let faults = CrashAtCommit {
        point,
        commits: AtomicU32::new(0),
        reached: Arc::clone(&reached),
    };
    let store = FaultyStore(Arc::clone(&world.store), faults);
    let (stop, stopped) = watch::channel(false);
    let crashing = tokio::spawn(world.dispatcher_on(Arc::new(store)).run(stopped));
    let run_ended = async {
        while !world.has_ended(&run).await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        biased;
        () = reached.notified() => {}
        () = run_ended => {
            stop.send_replace(true);
            crashing.await.unwrap().unwrap();
            return None;
        }
    }
    crashing.abort();
    // Another worker takes over when the lease has expired, and settles what it can.
    let is_done = async |world: &World| {
        let counts = world.item_counts(&run).await;
        counts.open_items() == 0
            && world
                .jobs()
                .await
                .iter()
                .all(|job| job.status != JobStatus::Locked)
    };
    world.work_until(is_done).await;
    let in_doubt = world.campaigns.list_in_doubt(None, 10).await.unwrap().0;
    for item in &in_doubt {
        let was_called = world.provider.calls().contains_key(&*item.recipient_id);
        let resolution = if was_called {
            Resolution::Sent(None)
        } else {
            Resolution::Retry
        };
        world
            .campaigns
            .resolve_item(&item.id, &resolution, "ada", "provider log")
            .await
            .unwrap();
    }
    world.work_until_ended(&run).await;
    let calls = world.provider.calls();
    assert!(
        recipients.iter().all(|id| calls.get(*id) == Some(&1)),
        "{point:?}: {calls:?}"
    );
    assert!(
        world
            .statuses()
            .await
            .values()
            .all(|status| status == "sent"),
        "{point:?}"
    );
    assert_eq!(
        world.run_status(&run).await,
        CampaignRunStatus::Completed,
        "{point:?}"
    );
    Some(in_doubt.len())
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_stalls_sends_only_items_that_it_still_holds() {
    for number in 1.. {
        let world = World::new(RecordingProvider::new(|_, _| accepted()), POLICY);
        let run = world
            .deploy(&["a", "b", "c", "d", "e", "f"])
            .await
            .unwrap()
            .run_id;
        let (commits, reached) = (AtomicU32::new(0), Arc::new(Notify::new()));
        let faults = CrashAtCommit {
            point: CrashPoint::Stall(number),
            commits,
            reached: Arc::clone(&reached),
        };
        let store = Arc::new(FaultyStore(Arc::clone(&world.store), faults));
        let (stop, stopped) = watch::channel(false);
        let dispatching = tokio::spawn(
            world
                .dispatcher_on(Arc::clone(&store) as Arc<dyn Store>)
                .run(stopped),
        );
        while !world.has_ended(&run).await {
            assert_eq!(world.item_counts(&run).await.in_doubt, 0, "{number}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stop.send_replace(true);
        dispatching.await.unwrap().unwrap();
        assert!(
            world.provider.calls().values().all(|count| *count == 1),
            "{number}: {:?}",
            world.provider.calls()
        );
        if store.1.commits.load(Ordering::SeqCst) < number {
            assert!(number > 4, "it stalled while it reserved items");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_at_any_commit_neither_loses_nor_repeats_a_send() {
    let mut in_doubt = Vec::new();
    for number in 1.. {
        let (before, after) = (
            crash_at(CrashPoint::Before(number)).await,
            crash_at(CrashPoint::After(number)).await,
        );
        let (Some(before), Some(after)) = (before, after) else {
            break;
        };
        // Before the first reservation no item is in doubt; later at most one window per job in
        // progress.
        assert!(before <= 4 && after <= 4, "{number}: {before} {after}");
        in_doubt.extend([before, after]);
    }
    assert!(in_doubt.len() >= 14, "{in_doubt:?}");
    assert_eq!(in_doubt[0], 0, "nothing was reserved");
    assert!(in_doubt.iter().any(|count| *count > 0), "{in_doubt:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_during_a_provider_call_leaves_the_item_in_doubt() {
    let called = Arc::new(Notify::new());
    let is_first = AtomicBool::new(true);
    let notify_called = Arc::clone(&called);
    let mut provider = RecordingProvider::new(|_, _| accepted());
    provider.hangs = Some(Box::new(move || {
        let hangs = is_first.swap(false, Ordering::SeqCst);
        if hangs {
            notify_called.notify_one();
        }
        hangs
    }));
    let world = World::new(provider, POLICY);
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    let (_stop, stopped) = watch::channel(false);
    let crashing = tokio::spawn(world.dispatcher().run(stopped));
    called.notified().await;
    crashing.abort();
    // The expired lease of a paused run is recovered as well.
    world.campaigns.pause_run(&run, "ada").await.unwrap();
    world
        .work_until(async |world| world.item_counts(&run).await.in_doubt == 1)
        .await;
    assert_eq!(
        world
            .campaigns
            .list_in_doubt(None, 10)
            .await
            .unwrap()
            .0
            .len(),
        1
    );
    assert_eq!(
        world.provider.calls()["a"],
        1,
        "the provider was called, and is not called again"
    );
    assert_eq!(world.run_status(&run).await, CampaignRunStatus::Running);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_has_no_more_jobs_in_progress_than_its_limit() {
    let mut provider = RecordingProvider::new(|_, _| accepted());
    provider.hangs = Some(Box::new(|| true));
    let world = World::new(provider, POLICY);
    let recipients: Vec<String> = (0..40).map(|number| format!("p{number}")).collect();
    world
        .deploy(&recipients.iter().map(String::as_str).collect::<Vec<_>>())
        .await
        .unwrap();
    let options = Options {
        concurrency: 8,
        tenant_concurrency: Some(2),
        ..Options::default()
    };
    let (stop, stopped) = watch::channel(false);
    let dispatching = tokio::spawn(world.dispatcher_with(options).run(stopped));
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let locked = world
            .jobs()
            .await
            .iter()
            .filter(|job| job.status == JobStatus::Locked)
            .count();
        assert!(locked <= 2, "{locked}");
        assert_eq!(
            world.provider.calls().len(),
            2,
            "each job has one call in progress"
        );
    }
    stop.send_replace(true);
    dispatching.await.unwrap().unwrap();
}
