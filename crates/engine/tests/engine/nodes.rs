//! Several nodes on one store: they share the shards out, hand them on in order, and take them over
//! from whoever is gone. Time is virtual.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward_base::Payload;
use onward_engine::client::{EngineClient, shard_of};
use onward_engine::doctor;
use onward_engine::node::{FunctionRegistry, NativeTaskRegistry, Node, NodeOptions, NodeRole};
use onward_engine::shard::TaskAttempt;
use onward_execution::ScriptedGuest;
use onward_journal::{DeliveryGuarantee, Event, ExecutionId, InvokeResult};
use onward_store::tables::{ExecutionRow, NodeRow as Row, ShardLeaseRow};
use onward_store::{ColumnCodec as _, RecordReader as _, RowKey, ShardId, Store, TableScan};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::code::{Scripts, deployed_on, json};
use crate::watched::Watched;

const FUNCTIONS: &[&str] = &["twice", "echo"];

/// How long a task takes.
const TASK: Duration = Duration::from_secs(3);

/// So many executions have some in every shard.
const EVERYWHERE: u32 = 64;

fn script(function: &str, input: Payload) -> ScriptedGuest {
    match function {
        // Two tasks that may be performed once at most, one after the other.
        "twice" => ScriptedGuest::new(|host| async move {
            for _ in 0..2 {
                let task = host
                    .schedule_with_policy(
                        "work",
                        input.clone(),
                        None,
                        DeliveryGuarantee::AtMostOnce,
                    )
                    .await?;
                host.await_promise(task).await?;
            }
            Ok(input)
        }),
        "echo" => ScriptedGuest::new(|_| async move { Ok(input) }),
        other => panic!("{other}"),
    }
}

struct World {
    store: Arc<Watched>,
    client: EngineClient,
    /// How many tasks were begun.
    begun: Arc<AtomicU32>,
}

struct Running {
    node: Arc<Node>,
    stop: watch::Sender<bool>,
    working: JoinHandle<Result<(), onward_store::Error>>,
}

impl Running {
    /// Stops it in order. Tells how long that took.
    async fn stop(self) -> Duration {
        let since = Instant::now();
        self.stop.send(true).unwrap();
        self.working.await.unwrap().unwrap();
        since.elapsed()
    }

    async fn kill(self) {
        self.working.abort();
        assert!(self.working.await.is_err());
    }
}

impl World {
    async fn new() -> Self {
        let store = Arc::new(Watched::new());
        let client = deployed_on(Arc::clone(&store) as Arc<dyn Store>, FUNCTIONS).await;
        Self {
            store,
            client,
            begun: Arc::default(),
        }
    }

    /// A node, and time for all to take their share.
    async fn node(&self, name: &str) -> Running {
        self.node_as(name, NodeRole::Member).await
    }

    async fn node_as(&self, name: &str, role: NodeRole) -> Running {
        let begun = Arc::clone(&self.begun);
        let native =
            NativeTaskRegistry::default().with_task("work", move |attempt: TaskAttempt| {
                begun.fetch_add(1, Ordering::SeqCst);
                async move {
                    // Some never end.
                    let length = if attempt.input == json("\"never\"") {
                        TASK * 10_000
                    } else {
                        TASK
                    };
                    sleep(length).await;
                    Ok(attempt.input)
                }
            });
        let library = FunctionRegistry::new(
            Arc::new(Scripts {
                functions: FUNCTIONS,
                script,
            }),
            native,
        );
        let options = NodeOptions {
            name: name.into(),
            role,
            address: Some("127.0.0.1:7400".into()),
            ..NodeOptions::default()
        };
        let node = Arc::new(Node::new(
            Arc::clone(&self.store) as Arc<dyn Store>,
            library,
            options,
        ));
        let (stop, stopped) = watch::channel(false);
        let working = tokio::spawn(Arc::clone(&node).run(stopped));
        sleep(Duration::from_secs(1)).await;
        Running {
            node,
            stop,
            working,
        }
    }

    async fn start(&self, function: &str, input: &str) -> ExecutionId {
        self.client
            .start_execution(function, json(input), Some(input))
            .await
            .unwrap()
            .execution
    }

    /// Starts so many that every shard has some, which are under way soon.
    async fn start_everywhere(&self) -> Vec<ExecutionId> {
        let mut started = Vec::new();
        for number in 0..EVERYWHERE {
            started.push(self.start("twice", &number.to_string()).await);
        }
        let shards: BTreeSet<ShardId> = started.iter().map(shard_of).collect();
        assert_eq!(shards.len(), 8, "every shard has some");
        sleep(Duration::from_secs(1)).await;
        started
    }

    /// Waits until all of them have ended well.
    async fn expect_results(&self, started: Vec<ExecutionId>) {
        for (number, id) in started.into_iter().enumerate() {
            assert_eq!(self.result(id).await, Ok(json(&number.to_string())));
        }
        assert_eq!(
            self.begun.load(Ordering::SeqCst),
            EVERYWHERE * 2,
            "each task was begun once"
        );
    }

    async fn result(&self, id: ExecutionId) -> InvokeResult {
        for _ in 0..1_000 {
            if let Some(result) = self.client.execution_result(id).await.unwrap() {
                return result;
            }
            sleep(Duration::from_millis(500)).await;
        }
        panic!(
            "it never ends: {:?}",
            self.client.read_journal(id).await.unwrap().last()
        );
    }

    /// How many shards each has.
    async fn shares(&self) -> BTreeMap<String, u32> {
        let now = self.store.now().await.unwrap();
        let leases: Vec<(ShardLeaseRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<ShardLeaseRow>())
            .await
            .unwrap();
        let mut shares = BTreeMap::new();
        for (lease, _) in leases
            .into_iter()
            .filter(|(lease, _)| lease.lease_until > now)
        {
            *shares.entry(lease.node.to_string()).or_default() += 1;
        }
        shares
    }

    /// How many shards those have that have any, the most first.
    async fn counts(&self) -> Vec<u32> {
        let mut counts: Vec<u32> = self.shares().await.into_values().collect();
        counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        counts
    }

    /// Waits until one of them has all shards. Tells how long that took.
    async fn until_all_belong_to(&self, name: &str) -> Duration {
        let since = Instant::now();
        while self.shares().await != BTreeMap::from([(name.to_owned(), 8)]) {
            assert!(
                since.elapsed() < Duration::from_secs(60),
                "{:?}",
                self.shares().await
            );
            sleep(Duration::from_millis(10)).await;
        }
        since.elapsed()
    }

    async fn rows(&self) -> Vec<Row> {
        let rows: Vec<(Row, u64)> = self
            .store
            .list_records(TableScan::all_rows::<Row>())
            .await
            .unwrap();
        rows.into_iter().map(|(row, _)| row).collect()
    }

    async fn expect_clean(&self) {
        let mut report = |finding: &onward_api::finding::DoctorFinding| panic!("{finding}");
        doctor::examine_store(&*self.store, None, &mut report, |_| ())
            .await
            .unwrap();
    }

    /// What was recorded of tasks, in order.
    async fn tasks(&self, id: ExecutionId) -> Vec<&'static str> {
        self.client
            .read_journal(id)
            .await
            .unwrap()
            .iter()
            .filter_map(|recorded| kind(&recorded.event))
            .collect()
    }
}

fn kind(event: &Event) -> Option<&'static str> {
    match event {
        Event::InvokeScheduled { .. } => Some("scheduled"),
        Event::InvokeStarted { .. } => Some("started"),
        Event::InvokeCompleted { result: Ok(_), .. } => Some("done"),
        Event::InvokeCompleted { .. } => Some("failed"),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn shards_are_shared_out_when_a_node_joins_and_when_one_leaves() {
    let world = World::new().await;
    let first = world.node("a").await;
    assert_eq!(world.counts().await, [8]);
    let second = world.node("b").await;
    assert_eq!(world.counts().await, [4, 4]);
    let third = world.node("c").await;
    assert_eq!(world.counts().await, [3, 3, 2]);
    assert_eq!(third.node.live_node_count(), 3);
    let took = first.stop().await;
    assert!(
        took < Duration::from_millis(300),
        "nothing was under way: {took:?}"
    );
    sleep(Duration::from_millis(500)).await;
    assert_eq!(world.counts().await, [4, 4]);
    let before = world.shares().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        world.shares().await,
        before,
        "nothing changes while nobody comes or goes"
    );
    second.stop().await;
    third.stop().await;
    assert!(world.counts().await.is_empty());
    assert_eq!(world.rows().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_task_under_way_when_its_node_stops_is_recorded_and_the_next_is_for_another() {
    let world = World::new().await;
    let first = world.node("a").await;
    let id = world.start("twice", "1").await;
    sleep(Duration::from_secs(1)).await;
    let took = first.stop().await;
    assert!(took > Duration::from_secs(1) && took < TASK, "{took:?}");
    assert_eq!(
        world.tasks(id).await,
        ["scheduled", "started", "done", "scheduled"]
    );
    assert_eq!(world.begun.load(Ordering::SeqCst), 1);
    world.expect_clean().await;

    let _second = world.node("b").await;
    assert_eq!(world.result(id).await, Ok(json("1")));
    assert_eq!(world.begun.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_takes_longer_than_a_node_may_is_given_up_with_its_shard() {
    let world = World::new().await;
    let first = world.node("a").await;
    let id = world.start("twice", "\"never\"").await;
    sleep(Duration::from_secs(1)).await;
    let took = first.stop().await;
    assert!(
        took >= Duration::from_secs(10) && took < Duration::from_secs(11),
        "{took:?}"
    );
    world.expect_clean().await;
    let _second = world.node("b").await;
    assert_eq!(
        world.result(id).await.unwrap_err().kind.as_str(),
        "in_doubt"
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_started_while_a_node_drains_waits_for_another() {
    let world = World::new().await;
    let first = world.node("a").await;
    let id = world.start("twice", "1").await;
    sleep(Duration::from_secs(1)).await;
    first.stop.send(true).unwrap();
    sleep(Duration::from_millis(1_500)).await;
    // In the same process, so that its shard is asked to begin them; some are in the shard that
    // still drains.
    let beside = world.client.clone().with_local_node(&first.node);
    let mut started = Vec::new();
    for number in 0..EVERYWHERE {
        started.push(
            beside
                .start_execution("echo", json(&number.to_string()), None)
                .await
                .unwrap()
                .execution,
        );
    }
    first.working.await.unwrap().unwrap();
    for id in &started {
        let row: Option<(ExecutionRow, u64)> = world
            .store
            .read_record(RowKey(vec![id.to_value()]))
            .await
            .unwrap();
        assert_eq!(&*row.unwrap().0.state, "Running", "nobody has begun it");
    }
    let _second = world.node("b").await;
    for id in started {
        assert!(world.result(id).await.is_ok());
    }
    assert_eq!(world.result(id).await, Ok(json("1")));
}

#[tokio::test(start_paused = true)]
async fn who_joins_waits_for_the_tasks_of_the_shards_that_it_takes() {
    let world = World::new().await;
    let _first = world.node("a").await;
    let started = world.start_everywhere().await;
    let _second = world.node("b").await;
    assert_eq!(
        world.counts().await,
        [8],
        "tasks are under way in all of them"
    );
    sleep(TASK).await;
    assert_eq!(world.counts().await, [4, 4]);
    world.expect_results(started).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_is_gone_is_replaced_within_the_lease_and_whoever_stops_at_once() {
    let (lease, poll) = (
        NodeOptions::default().lease_duration,
        NodeOptions::default().poll_interval,
    );
    for pause in [0, 500, 1_000, 1_500] {
        let world = World::new().await;
        let (first, second) = (world.node("a").await, world.node("b").await);
        sleep(Duration::from_millis(pause)).await;
        first.kill().await;
        let took = world.until_all_belong_to("b").await;
        assert!(took <= lease + poll + Duration::from_millis(20), "{took:?}");
        let third = world.node("c").await;
        assert_eq!(world.counts().await, [4, 4]);
        let asked = Instant::now();
        second.stop().await;
        world.until_all_belong_to("c").await;
        assert!(asked.elapsed() <= poll * 2, "{:?}", asked.elapsed());
        drop(third);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_left_of_those_who_are_gone_is_removed_by_others() {
    let world = World::new().await;
    let first = world.node("a").await;
    let _second = world.node("b").await;
    let names = |rows: Vec<Row>| {
        let mut names: Vec<String> = rows.iter().map(|row| row.name.to_string()).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(names(world.rows().await), ["a", "b"]);
    assert!(
        world
            .rows()
            .await
            .iter()
            .all(|row| row.address.as_deref() == Some("127.0.0.1:7400"))
    );
    first.kill().await;
    sleep(Duration::from_secs(30)).await;
    assert_eq!(names(world.rows().await), ["a", "b"]);
    sleep(Duration::from_secs(40)).await;
    assert_eq!(names(world.rows().await), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_longer_than_a_lease_costs_nobody_a_task_or_a_shard() {
    let world = World::new().await;
    let (_first, _second) = (world.node("a").await, world.node("b").await);
    let started = world.start_everywhere().await;
    let before = world.shares().await;
    world.store.set_away(true);
    sleep(Duration::from_secs(20)).await;
    world.store.set_away(false);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.shares().await, before);
    world.expect_results(started).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_nothing_to_do_asks_little_of_its_store() {
    let world = World::new().await;
    let _node = world.node("a").await;
    world.store.counts();
    sleep(Duration::from_secs(100)).await;
    let (reads, writes) = world.store.counts();
    // Each 200 ms: what is due in 8 shards, whose they are, who is there, all messages, all names.
    // Every 1.7 s the time, for each of its leases and for the node. Each second workers that are
    // lost, and every ten what waits in 11 places.
    assert!((6_600..6_850).contains(&reads), "{reads} reads in 100 s");
    assert!((500..550).contains(&writes), "{writes} writes in 100 s");
}

#[tokio::test(start_paused = true)]
async fn a_stopgap_works_until_a_member_comes() {
    let world = World::new().await;
    let stopgap = world.node_as("s", NodeRole::Fallback).await;
    assert_eq!(world.shares().await, BTreeMap::from([("s".to_owned(), 8)]));
    let started = world.start_everywhere().await;
    let _member = world.node("a").await;
    world.until_all_belong_to("a").await;
    let _other = world.node_as("t", NodeRole::Fallback).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(world.shares().await, BTreeMap::from([("a".to_owned(), 8)]));
    stopgap.stop().await;
    world.expect_results(started).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_joins_puts_nothing_in_doubt_however_long_it_takes() {
    let world = World::new().await;
    let _first = world.node("a").await;
    let mut started = Vec::new();
    for number in 0..EVERYWHERE {
        let key = format!("endless {number}");
        started.push(
            world
                .client
                .start_execution("twice", json("\"never\""), Some(&key))
                .await
                .unwrap()
                .execution,
        );
    }
    sleep(Duration::from_secs(1)).await;
    let _second = world.node("b").await;
    sleep(Duration::from_secs(100)).await;
    for id in started {
        assert_eq!(world.client.execution_result(id).await.unwrap(), None);
    }
    // Meanwhile the others go on: those that are kept and those that were handed over.
    for (number, id) in world.start_everywhere().await.into_iter().enumerate() {
        assert_eq!(world.result(id).await, Ok(json(&number.to_string())));
    }
    assert_eq!(
        world.begun.load(Ordering::SeqCst),
        EVERYWHERE * 3,
        "each task was begun once"
    );
}
