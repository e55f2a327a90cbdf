//! Several nodes on one store: they share the shards, hand them over, and take over those of dead
//! nodes. Time is virtual.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use onward_base::Payload;
use onward_diagnostics::doctor;
use onward_engine::client::{EngineClient, shard_of};
use onward_engine::node::{FunctionRegistry, NativeTaskRegistry, Node, NodeOptions, NodeRole};
use onward_engine::shard::TaskAttempt;
use onward_execution::ScriptedGuest;
use onward_journal::{DeliveryGuarantee, Event, ExecutionId, ExecutionState, InvokeResult};
use onward_store::tables::{ExecutionRow, NodeRow as Row, ShardLeaseRow};
use onward_store::{ColumnCodec as _, RecordReader as _, RowKey, ShardId, Store, TableScan};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::observed_store::ObservedStore;
use crate::script_runtime::{Scripts, deployed_on, json};

const FUNCTIONS: &[&str] = &["twice", "echo"];

/// Duration of a task.
const TASK: Duration = Duration::from_secs(3);

/// Number of executions that puts at least one into every shard.
const EVERYWHERE: u32 = 64;

fn script(function: &str, input: Payload) -> ScriptedGuest {
    match function {
        // Two at-most-once tasks, one after the other.
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
    store: Arc<ObservedStore>,
    client: EngineClient,
    /// Number of tasks that were started.
    started: Arc<AtomicU32>,
}

struct Running {
    node: Arc<Node>,
    stop: watch::Sender<bool>,
    working: JoinHandle<Result<(), onward_store::Error>>,
}

impl Running {
    /// Stops the node gracefully. Returns how long that took.
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
        let store = Arc::new(ObservedStore::new());
        let client = deployed_on(Arc::clone(&store) as Arc<dyn Store>, FUNCTIONS).await;
        Self {
            store,
            client,
            started: Arc::default(),
        }
    }

    /// Starts a node, and waits until all nodes have their share of shards.
    async fn node(&self, name: &str) -> Running {
        self.node_as(name, NodeRole::Member).await
    }

    async fn node_as(&self, name: &str, role: NodeRole) -> Running {
        let started = Arc::clone(&self.started);
        let native =
            NativeTaskRegistry::default().with_task("work", move |attempt: TaskAttempt| {
                started.fetch_add(1, Ordering::SeqCst);
                async move {
                    // Tasks with this input never end.
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

    /// Starts enough executions that every shard has some, and waits until their tasks run.
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

    /// Waits until all of them have completed.
    async fn expect_results(&self, started: Vec<ExecutionId>) {
        for (number, id) in started.into_iter().enumerate() {
            assert_eq!(self.result(id).await, Ok(json(&number.to_string())));
        }
        assert_eq!(
            self.started.load(Ordering::SeqCst),
            EVERYWHERE * 2,
            "each task was started once"
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
            "the execution does not end: {:?}",
            self.client.read_journal(id).await.unwrap().last()
        );
    }

    /// Number of shards of each node.
    async fn shards_by_owner(&self) -> BTreeMap<String, u32> {
        let now = self.store.now().await.unwrap();
        let leases: Vec<(ShardLeaseRow, u64)> = self
            .store
            .list_records(TableScan::all_rows::<ShardLeaseRow>())
            .await
            .unwrap();
        let mut shards_by_owner = BTreeMap::new();
        for (lease, _) in leases
            .into_iter()
            .filter(|(lease, _)| lease.lease_until > now)
        {
            *shards_by_owner.entry(lease.node.to_string()).or_default() += 1;
        }
        shards_by_owner
    }

    /// Number of shards of each node that has any, in descending order.
    async fn counts(&self) -> Vec<u32> {
        let mut counts: Vec<u32> = self.shards_by_owner().await.into_values().collect();
        counts.sort_unstable_by_key(|count| std::cmp::Reverse(*count));
        counts
    }

    /// Waits until this node has all shards. Returns how long that took.
    async fn wait_until_owner_of_all(&self, name: &str) -> Duration {
        let since = Instant::now();
        while self.shards_by_owner().await != BTreeMap::from([(name.to_owned(), 8)]) {
            assert!(
                since.elapsed() < Duration::from_secs(60),
                "{:?}",
                self.shards_by_owner().await
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

    async fn assert_doctor_finds_nothing(&self) {
        let mut report = |finding: &onward_api::finding::DoctorFinding| panic!("{finding}");
        doctor::examine_store(&*self.store, None, &mut report, |_| ())
            .await
            .unwrap();
    }

    /// The events of tasks in a journal, in order.
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
        "no task was running: {took:?}"
    );
    sleep(Duration::from_millis(500)).await;
    assert_eq!(world.counts().await, [4, 4]);
    let before = world.shards_by_owner().await;
    sleep(Duration::from_secs(60)).await;
    assert_eq!(
        world.shards_by_owner().await,
        before,
        "shards do not move while no node joins or leaves"
    );
    second.stop().await;
    third.stop().await;
    assert!(world.counts().await.is_empty());
    assert_eq!(world.rows().await, []);
}

#[tokio::test(start_paused = true)]
async fn a_stopping_node_records_its_running_task_and_starts_no_other() {
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
    assert_eq!(world.started.load(Ordering::SeqCst), 1);
    world.assert_doctor_finds_nothing().await;

    let _second = world.node("b").await;
    assert_eq!(world.result(id).await, Ok(json("1")));
    assert_eq!(world.started.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_exceeds_the_drain_timeout_is_abandoned_with_its_shard() {
    let world = World::new().await;
    let first = world.node("a").await;
    let id = world.start("twice", "\"never\"").await;
    sleep(Duration::from_secs(1)).await;
    let took = first.stop().await;
    assert!(
        took >= Duration::from_secs(10) && took < Duration::from_secs(11),
        "{took:?}"
    );
    world.assert_doctor_finds_nothing().await;
    let _second = world.node("b").await;
    assert_eq!(
        world.result(id).await.unwrap_err().kind.as_str(),
        "in_doubt"
    );
}

#[tokio::test(start_paused = true)]
async fn executions_started_while_a_node_drains_wait_for_another_node() {
    let world = World::new().await;
    let first = world.node("a").await;
    let id = world.start("twice", "1").await;
    sleep(Duration::from_secs(1)).await;
    first.stop.send(true).unwrap();
    sleep(Duration::from_millis(1_500)).await;
    // In the same process, so that the shard owner is asked to start them; some are in the shard
    // that still drains.
    let local_client = world.client.clone().with_local_node(&first.node);
    let mut started = Vec::new();
    for number in 0..EVERYWHERE {
        started.push(
            local_client
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
        assert_eq!(
            row.unwrap().0.state,
            ExecutionState::Running,
            "no node has run it"
        );
    }
    let _second = world.node("b").await;
    for id in started {
        assert!(world.result(id).await.is_ok());
    }
    assert_eq!(world.result(id).await, Ok(json("1")));
}

#[tokio::test(start_paused = true)]
async fn a_joining_node_waits_for_the_tasks_of_the_shards_it_takes_over() {
    let world = World::new().await;
    let _first = world.node("a").await;
    let started = world.start_everywhere().await;
    let _second = world.node("b").await;
    assert_eq!(world.counts().await, [8], "tasks run in all shards");
    sleep(TASK).await;
    assert_eq!(world.counts().await, [4, 4]);
    world.expect_results(started).await;
}

#[tokio::test(start_paused = true)]
async fn a_killed_node_is_replaced_within_the_lease_and_a_stopped_node_at_once() {
    let (lease, poll) = (
        NodeOptions::default().lease_duration,
        NodeOptions::default().poll_interval,
    );
    for pause in [0, 500, 1_000, 1_500] {
        let world = World::new().await;
        let (first, second) = (world.node("a").await, world.node("b").await);
        sleep(Duration::from_millis(pause)).await;
        first.kill().await;
        let took = world.wait_until_owner_of_all("b").await;
        assert!(took <= lease + poll + Duration::from_millis(20), "{took:?}");
        let third = world.node("c").await;
        assert_eq!(world.counts().await, [4, 4]);
        let asked = Instant::now();
        second.stop().await;
        world.wait_until_owner_of_all("c").await;
        assert!(asked.elapsed() <= poll * 2, "{:?}", asked.elapsed());
        drop(third);
    }
}

#[tokio::test(start_paused = true)]
async fn rows_of_dead_nodes_are_removed_by_live_nodes() {
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
async fn a_store_outage_longer_than_a_lease_loses_no_task_and_no_shard() {
    let world = World::new().await;
    let (_first, _second) = (world.node("a").await, world.node("b").await);
    let started = world.start_everywhere().await;
    let before = world.shards_by_owner().await;
    world.store.set_away(true);
    sleep(Duration::from_secs(20)).await;
    world.store.set_away(false);
    sleep(Duration::from_secs(1)).await;
    assert_eq!(world.shards_by_owner().await, before);
    world.expect_results(started).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_sends_few_requests_to_its_store() {
    let world = World::new().await;
    let _node = world.node("a").await;
    world.store.counts();
    sleep(Duration::from_secs(100)).await;
    let (reads, writes) = world.store.counts();
    // Every 200 ms: due work of 8 shards, leases, live nodes, messages, function names. Every 1.7
    // s: the time, for each lease and for the node. Every second: expired task leases; every ten
    // seconds: 11 queue depths.
    assert!((6_600..6_850).contains(&reads), "{reads} reads in 100 s");
    assert!((500..550).contains(&writes), "{writes} writes in 100 s");
}

#[tokio::test(start_paused = true)]
async fn a_standby_node_works_until_a_member_joins() {
    let world = World::new().await;
    let stopgap = world.node_as("s", NodeRole::Fallback).await;
    assert_eq!(
        world.shards_by_owner().await,
        BTreeMap::from([("s".to_owned(), 8)])
    );
    let started = world.start_everywhere().await;
    let _member = world.node("a").await;
    world.wait_until_owner_of_all("a").await;
    let _other = world.node_as("t", NodeRole::Fallback).await;
    sleep(Duration::from_secs(10)).await;
    assert_eq!(
        world.shards_by_owner().await,
        BTreeMap::from([("a".to_owned(), 8)])
    );
    stopgap.stop().await;
    world.expect_results(started).await;
}

#[tokio::test(start_paused = true)]
async fn a_joining_node_puts_no_task_in_doubt() {
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
    // Meanwhile the other executions continue, in shards that are kept and in those handed over.
    for (number, id) in world.start_everywhere().await.into_iter().enumerate() {
        assert_eq!(world.result(id).await, Ok(json(&number.to_string())));
    }
    assert_eq!(
        world.started.load(Ordering::SeqCst),
        EVERYWHERE * 3,
        "each task was started once"
    );
}
