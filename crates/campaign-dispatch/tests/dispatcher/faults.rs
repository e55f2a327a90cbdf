//! A worker that dies at a chosen point: before or after the n-th commit, or in the n-th call of
//! the provider.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onward_campaign_dispatch::{Options, Resolution};
use onward_store::{AdmittedCommit, CommitReceipt, Error, Store};
use tokio::sync::{Notify, watch};

use crate::between::{Between, Meddle};
use crate::world::{Counting, TERMS, World, accepted};

/// Where a worker stops for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Point {
    Before(u32),
    After(u32),
    /// It goes on, and has stood still for longer than a lease.
    Late(u32),
}

/// More than a lease.
const LATE: Duration = Duration::from_secs(400);

/// A commit at which a worker stops, and that says when.
struct Deadly {
    point: Point,
    commits: AtomicU32,
    reached: Arc<Notify>,
}

impl Deadly {
    async fn stop_at(&self, point: Point) {
        if point == self.point {
            self.reached.notify_one();
            std::future::pending::<()>().await;
        }
    }
}

#[async_trait]
impl Meddle for Deadly {
    async fn apply(
        &self,
        store: &dyn Store,
        commit: AdmittedCommit,
    ) -> Result<CommitReceipt, Error> {
        let number = 1 + self.commits.fetch_add(1, Ordering::SeqCst);
        self.stop_at(Point::Before(number)).await;
        let applied = store.apply_commit(commit).await;
        self.stop_at(Point::After(number)).await;
        if self.point == Point::Late(number) {
            self.reached.notify_one();
            tokio::time::sleep(LATE).await;
        }
        applied
    }
}

/// Lets a worker die at a point, lets another go on, and returns how many items were in doubt;
/// nothing if the point does not come.
#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
async fn die_at(point: Point) -> Option<usize> {
    let people = ["a", "b", "c", "d", "e", "f"];
    let terms = onward_campaign_core::DispatchPolicy { window: 2, ..TERMS };
    let world = World::new(Counting::new(|_, _| accepted()), terms);
    let run = world.deploy(&people).await.unwrap().run_id;
    let reached = Arc::new(Notify::new());
    let deadly = Deadly {
        point,
        commits: AtomicU32::new(0),
        reached: Arc::clone(&reached),
    };
    let store = Between(Arc::clone(&world.store), deadly);
    let (stop, stopped) = watch::channel(false);
    let doomed = tokio::spawn(world.dispatcher_on(Arc::new(store)).run(stopped));
    let is_over = async {
        while world
            .campaigns
            .read_run(&run)
            .await
            .unwrap()
            .ended_at
            .is_none()
        {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::select! {
        biased;
        () = reached.notified() => {}
        () = is_over => {
            stop.send_replace(true);
            doomed.await.unwrap().unwrap();
            return None;
        }
    }
    doomed.abort();
    // Another takes over when the lease has run out, and does what can be done.
    let is_done = async |world: &World| {
        let tally = world.campaigns.count_run_items(&run).await.unwrap();
        tally.open_items() == 0
            && world
                .jobs()
                .await
                .iter()
                .all(|job| &*job.status != "locked")
    };
    world.work_until(is_done).await;
    let doubts = world.campaigns.list_in_doubt(None, 10).await.unwrap().0;
    for item in &doubts {
        let was_called = world.provider.calls().contains_key(&*item.recipient_id);
        let verdict = if was_called {
            Resolution::Sent(None)
        } else {
            Resolution::Retry
        };
        world
            .campaigns
            .resolve_item(&item.id, &verdict, "ada", "their log")
            .await
            .unwrap();
    }
    world.work_until_over(&run).await;
    let calls = world.provider.calls();
    assert!(
        people.iter().all(|who| calls.get(*who) == Some(&1)),
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
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "completed",
        "{point:?}"
    );
    Some(doubts.len())
}

#[tokio::test(start_paused = true)]
async fn whoever_stood_still_calls_for_what_is_still_its_own() {
    for number in 1.. {
        let world = World::new(Counting::new(|_, _| accepted()), TERMS);
        let run = world
            .deploy(&["a", "b", "c", "d", "e", "f"])
            .await
            .unwrap()
            .run_id;
        let (commits, reached) = (AtomicU32::new(0), Arc::new(Notify::new()));
        let deadly = Deadly {
            point: Point::Late(number),
            commits,
            reached: Arc::clone(&reached),
        };
        let store = Arc::new(Between(Arc::clone(&world.store), deadly));
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(
            world
                .dispatcher_on(Arc::clone(&store) as Arc<dyn Store>)
                .run(stopped),
        );
        while world
            .campaigns
            .read_run(&run)
            .await
            .unwrap()
            .ended_at
            .is_none()
        {
            assert_eq!(
                world
                    .campaigns
                    .count_run_items(&run)
                    .await
                    .unwrap()
                    .in_doubt,
                0,
                "{number}"
            );
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        stop.send_replace(true);
        working.await.unwrap().unwrap();
        assert!(
            world.provider.calls().values().all(|count| *count == 1),
            "{number}: {:?}",
            world.provider.calls()
        );
        if store.1.commits.load(Ordering::SeqCst) < number {
            assert!(number > 4, "it stood still where it reserves");
            return;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whenever_a_worker_dies_nobody_is_called_twice_and_nobody_is_forgotten() {
    let mut doubts = Vec::new();
    for number in 1.. {
        let (before, after) = (
            die_at(Point::Before(number)).await,
            die_at(Point::After(number)).await,
        );
        let (Some(before), Some(after)) = (before, after) else {
            break;
        };
        // Before the first reservation there is nothing to doubt; after that no more than what a
        // window holds in each lane.
        assert!(before <= 4 && after <= 4, "{number}: {before} {after}");
        doubts.extend([before, after]);
    }
    assert!(doubts.len() >= 14, "{doubts:?}");
    assert_eq!(doubts[0], 0, "nothing was reserved");
    assert!(doubts.iter().any(|count| *count > 0), "{doubts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_dies_in_the_middle_of_a_call_leaves_it_in_doubt() {
    let called = Arc::new(Notify::new());
    let gate = Arc::new(Mutex::new(true));
    let (says, holds) = (Arc::clone(&called), Arc::clone(&gate));
    let mut provider = Counting::new(|_, _| accepted());
    provider.hangs = Some(Box::new(move || {
        let is_held = std::mem::replace(&mut *holds.lock().unwrap(), false);
        if is_held {
            says.notify_one();
        }
        is_held
    }));
    let world = World::new(provider, TERMS);
    let run = world.deploy(&["a"]).await.unwrap().run_id;
    let (_stop, stopped) = watch::channel(false);
    let doomed = tokio::spawn(world.dispatcher().run(stopped));
    called.notified().await;
    doomed.abort();
    // Also where nothing is to be begun meanwhile.
    world.campaigns.pause_run(&run, "ada").await.unwrap();
    world
        .work_until(async |world| {
            world
                .campaigns
                .count_run_items(&run)
                .await
                .unwrap()
                .in_doubt
                == 1
        })
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
        "the provider was reached, and is not called again"
    );
    assert_eq!(
        &*world.campaigns.read_run(&run).await.unwrap().status,
        "running"
    );
}

#[tokio::test(start_paused = true)]
async fn no_more_jobs_of_a_tenant_are_worked_on_than_may_be() {
    let mut provider = Counting::new(|_, _| accepted());
    provider.hangs = Some(Box::new(|| true));
    let world = World::new(provider, TERMS);
    let people: Vec<String> = (0..40).map(|number| format!("p{number}")).collect();
    world
        .deploy(&people.iter().map(String::as_str).collect::<Vec<_>>())
        .await
        .unwrap();
    let options = Options {
        concurrency: 8,
        tenant_concurrency: Some(2),
        ..Options::default()
    };
    let (stop, stopped) = watch::channel(false);
    let working = tokio::spawn(world.dispatcher_with(options).run(stopped));
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let locked = world
            .jobs()
            .await
            .iter()
            .filter(|job| &*job.status == "locked")
            .count();
        assert!(locked <= 2, "{locked}");
        assert_eq!(
            world.provider.calls().len(),
            2,
            "one call for each job is under way"
        );
    }
    stop.send_replace(true);
    working.await.unwrap().unwrap();
}
