//! Workers and slow or failing steps: stuck executions, slow commits, lost shards. Time is virtual.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::Payload;
use onward_engine::client::EngineClient;
use onward_engine::node::{
    ComponentLoadError, ComponentRuntime, FunctionRegistry, NativeTaskRegistry, Node, NodeOptions,
};
use onward_engine::shard::{self, GuestEntry, GuestUnavailable, TaskAttempt};
use onward_engine::task_queue::{ClaimRequest, LeasedTask};
use onward_execution::{Guest, GuestFunction, ScriptedGuest};
use onward_journal::{ComponentDigest, DeliveryGuarantee, ExecutionId, InvokeResult};
use onward_store::{Error, ShardId, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::observed_store::{Delay, ObservedStore};
use crate::script_runtime::{Scripts, deployed_on, json};

const FUNCTIONS: &[&str] = &["chain", "once", "race"];

fn script(function: &str, input: Payload) -> ScriptedGuest {
    match function {
        "chain" => ScriptedGuest::new(|host| async move {
            for step in 0..input.as_str().parse::<u32>().unwrap() {
                host.invoke_function("task", json(&step.to_string()))
                    .await?;
            }
            Ok(json("\"over\""))
        }),
        "once" => ScriptedGuest::new(|host| async move {
            let promise = host
                .schedule_with_policy("task", input, None, DeliveryGuarantee::AtMostOnce)
                .await?;
            host.await_promise(promise).await
        }),
        // Takes the first of two results, then waits for a signal.
        "race" => ScriptedGuest::new(|host| async move {
            let set = host.create_join_set().await?;
            for number in 0..2 {
                let promise = host
                    .schedule_function("task", json(&number.to_string()))
                    .await?;
                host.submit_to_join_set(set, promise).await?;
            }
            host.next_result(set, None).await?;
            host.close_join_set(set).await?;
            host.await_signal("on", None).await?;
            Ok(json("1"))
        }),
        other => panic!("{other}"),
    }
}

/// Code that one chosen execution cannot run.
struct Fragile {
    scripts: Scripts,
    broken: Broken,
}

type Broken = Arc<Mutex<Option<ExecutionId>>>;

#[async_trait]
impl ComponentRuntime for Fragile {
    async fn load_component(&self, code: &[u8]) -> Result<Vec<GuestFunction>, ComponentLoadError> {
        self.scripts.load_component(code).await
    }

    fn is_loaded(&self, component: ComponentDigest) -> bool {
        self.scripts.is_loaded(component)
    }

    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        if *self.broken.lock().unwrap() == Some(entry.execution.execution_id) {
            return Err(GuestUnavailable::BrokenCode(
                "broken by the test".to_owned(),
            ));
        }
        self.scripts.create_guest(entry)
    }

    async fn perform_task(
        &self,
        component: ComponentDigest,
        attempt: &TaskAttempt,
    ) -> Option<InvokeResult> {
        self.scripts.perform_task(component, attempt).await
    }

    async fn send_http_request(&self, attempt: &TaskAttempt) -> InvokeResult {
        self.scripts.send_http_request(attempt).await
    }
}

struct SlowFixture {
    store: Arc<ObservedStore>,
    broken: Broken,
    client: EngineClient,
    stop: watch::Sender<bool>,
    node: JoinHandle<Result<(), Error>>,
}

impl SlowFixture {
    async fn open() -> Self {
        let store = Arc::new(ObservedStore::new());
        let client = deployed_on(Arc::clone(&store) as Arc<dyn Store>, FUNCTIONS).await;
        let broken = Broken::default();
        let (client, stop, node) = run(&client, &broken).await;
        Self {
            store,
            broken,
            client,
            stop,
            node,
        }
    }

    /// Kills the node, and starts another that takes over.
    async fn crash(&mut self) {
        self.node.abort();
        (self.client, self.stop, self.node) = run(&self.client, &self.broken).await;
    }

    async fn start(&self, function: &str, input: &str) -> ExecutionId {
        self.client
            .start_execution(function, json(input), None)
            .await
            .unwrap()
            .execution
    }

    async fn claim_one(&self, lease_ms: u32) -> LeasedTask {
        self.client
            .claim_tasks(
                &claim("anna", 1, lease_ms),
                Duration::from_secs(5),
                pending(),
            )
            .await
            .unwrap()
            .remove(0)
    }

    /// Starts a worker that waits for tasks.
    fn waiting(
        &self,
        worker: &'static str,
        most: usize,
        lease_ms: u32,
    ) -> JoinHandle<Vec<LeasedTask>> {
        let client = self.client.clone();
        tokio::spawn(async move {
            client
                .claim_tasks(
                    &claim(worker, most, lease_ms),
                    Duration::from_secs(60),
                    pending(),
                )
                .await
                .unwrap()
        })
    }

    /// Claims a task of an execution and makes the execution stuck.
    async fn stuck(&self, function: &str, lease_ms: u32) -> LeasedTask {
        let id = self.start(function, "1").await;
        // The execution leaves memory.
        sleep(Duration::from_secs(3)).await;
        let held = self.claim_one(lease_ms).await;
        *self.broken.lock().unwrap() = Some(id);
        held
    }

    fn repair(&self) {
        *self.broken.lock().unwrap() = None;
    }

    async fn states(&self) -> Vec<String> {
        self.client
            .list_tasks(None, 10)
            .await
            .unwrap()
            .iter()
            .map(|task| task.state.to_string())
            .collect()
    }
}

async fn run(
    client: &EngineClient,
    broken: &Broken,
) -> (
    EngineClient,
    watch::Sender<bool>,
    JoinHandle<Result<(), Error>>,
) {
    let code = Fragile {
        scripts: Scripts {
            functions: FUNCTIONS,
            script,
        },
        broken: Arc::clone(broken),
    };
    let library =
        FunctionRegistry::new(Arc::new(code), NativeTaskRegistry::default()).with_workers();
    let shard = shard::ShardOptions {
        idle_ms: 100,
        ..shard::ShardOptions::default()
    };
    let options = NodeOptions {
        shard,
        ..NodeOptions::default()
    };
    let node = Arc::new(Node::new(Arc::clone(client.store()), library, options));
    let (stop, stopped) = watch::channel(false);
    let local_client = client.clone().with_local_node(&node);
    let node = tokio::spawn(node.run(stopped));
    sleep(Duration::from_secs(6)).await;
    (local_client, stop, node)
}

fn claim(worker: &str, most: usize, lease_ms: u32) -> ClaimRequest {
    ClaimRequest {
        worker: worker.into(),
        functions: vec!["task".into()],
        max_tasks: most,
        lease_ms,
    }
}

#[tokio::test(start_paused = true)]
async fn a_long_chain_does_not_starve_queued_tasks() {
    let fixture = SlowFixture::open().await;
    fixture.start("chain", "100").await;
    let mut next = Some(fixture.claim_one(60_000).await);
    let other = fixture.start("chain", "1").await;
    for _ in 0..10 {
        let held = match next.take() {
            Some(held) => held,
            None => fixture.claim_one(60_000).await,
        };
        if held.id.execution == other {
            return;
        }
        sleep(Duration::from_secs(1)).await;
        let wanted = claim("anna", 1, 60_000);
        next = fixture
            .client
            .complete_task_and_claim_next(held.id, &held.claim_token, Ok(json("1")), &wanted)
            .await
            .unwrap();
    }
    panic!("the queued task waited for ten tasks of the chain");
}

#[tokio::test(start_paused = true)]
async fn a_result_for_a_stuck_execution_is_durable() {
    let mut fixture = SlowFixture::open().await;
    let held = fixture.stuck("once", 3_000).await;
    fixture
        .client
        .complete_task(held.id, &held.claim_token, Ok(json("7")))
        .await
        .unwrap();
    // The result must not exist in memory only.
    fixture.crash().await;
    fixture.repair();
    assert_eq!(
        fixture
            .client
            .wait_for_result(held.id.execution)
            .await
            .unwrap(),
        Ok(json("7"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_repeated_result_is_durable_once_acknowledged() {
    let mut fixture = SlowFixture::open().await;
    let held = fixture.stuck("once", 30_000).await;
    let (client, it) = (fixture.client.clone(), held.clone());
    let first = tokio::spawn(async move {
        client
            .complete_task(it.id, &it.claim_token, Ok(json("7")))
            .await
    });
    sleep(Duration::from_millis(10)).await;
    // The connection breaks.
    first.abort();
    fixture
        .client
        .complete_task(held.id, &held.claim_token, Ok(json("7")))
        .await
        .unwrap();
    fixture.crash().await;
    fixture.repair();
    assert_eq!(
        fixture
            .client
            .wait_for_result(held.id.execution)
            .await
            .unwrap(),
        Ok(json("7"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_idle_waiter_gets_a_task_before_a_sticky_waiter_of_another_execution() {
    let fixture = SlowFixture::open().await;
    let held = fixture.stuck("chain", 60_000).await;
    let idle = fixture.waiting("idle", 1, 2_000);
    sleep(Duration::from_millis(10)).await;
    let reporter = fixture.client.clone();
    let report = tokio::spawn(async move {
        reporter
            .complete_task_and_claim_next(
                held.id,
                &held.claim_token,
                Ok(json("7")),
                &claim("busy", 1, 2_000),
            )
            .await
    });
    sleep(Duration::from_millis(10)).await;
    let id = fixture.start("once", "5").await;
    let held = timeout(Duration::from_millis(100), idle)
        .await
        .unwrap()
        .unwrap()
        .remove(0);
    assert_eq!(held.id.execution, id);
    assert_eq!(report.await.unwrap(), Ok(None));
}

#[tokio::test(start_paused = true)]
async fn an_obsolete_result_does_not_delay_a_shutdown() {
    let fixture = SlowFixture::open().await;
    let id = fixture.start("race", "1").await;
    let held = fixture.waiting("anna", 2, 60_000).await.unwrap();
    let [one, other] = &held[..] else {
        panic!("{held:?}")
    };
    let (before, after) = (Duration::from_millis(50), Duration::ZERO);
    fixture.store.delay(Delay {
        execution: Some(id),
        before,
        after,
    });
    let (client, it) = (fixture.client.clone(), one.clone());
    let first = tokio::spawn(async move {
        client
            .complete_task(it.id, &it.claim_token, Ok(json("1")))
            .await
    });
    sleep(Duration::from_millis(10)).await;
    // The other task is about to be withdrawn.
    assert!(
        fixture
            .client
            .complete_task(other.id, &other.claim_token, Ok(json("1")))
            .await
            .is_err()
    );
    first.await.unwrap().unwrap();
    let started = Instant::now();
    fixture.stop.send_replace(true);
    fixture.node.await.unwrap().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn repeated_notifications_cause_one_read() {
    let fixture = SlowFixture::open().await;
    fixture.store.counts();
    for _ in 0..10_000 {
        fixture.store.notify("shard 0".to_owned());
    }
    sleep(Duration::from_secs(1)).await;
    let (reads, _) = fixture.store.counts();
    assert!(reads < 500, "{reads} reads");
}

#[tokio::test(start_paused = true)]
async fn a_stored_task_does_not_wait_for_a_slow_commit() {
    let fixture = SlowFixture::open().await;
    let waiting = fixture.waiting("anna", 2, 2_000);
    sleep(Duration::from_millis(100)).await;
    let (before, after) = (Duration::from_secs(8), Duration::ZERO);
    fixture.store.delay(Delay {
        execution: None,
        before,
        after,
    });
    let client = fixture.client.clone();
    let slow = tokio::spawn(async move {
        client
            .start_execution("once", json("1"), Some("slow"))
            .await
    });
    sleep(Duration::from_millis(10)).await;
    let quick = fixture.start("once", "2").await;
    let held = timeout(Duration::from_secs(1), waiting)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        held.iter()
            .map(|held| held.id.execution)
            .collect::<Vec<_>>(),
        [quick]
    );
    // The slow task comes too late for this worker, and goes to the next one.
    let slow = slow.await.unwrap().unwrap().execution;
    let held = timeout(Duration::from_secs(5), fixture.waiting("ben", 1, 2_000))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((held[0].id.execution, held[0].id.attempt), (slow, 1));
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_lost_shard_is_not_left_with_a_worker_that_did_not_receive_it() {
    let fixture = SlowFixture::open().await;
    let waiting = fixture.waiting("anna", 1, 600_000);
    sleep(Duration::from_millis(100)).await;
    // The step is stored, but its outcome is not reported for long. Meanwhile another node becomes
    // the owner of all shards.
    let (before, after) = (Duration::ZERO, Duration::from_secs(100));
    fixture.store.delay(Delay {
        execution: None,
        before,
        after,
    });
    let client = fixture.client.clone();
    let start =
        tokio::spawn(async move { client.start_execution("once", json("1"), Some("k")).await });
    sleep(Duration::from_millis(100)).await;
    assert_eq!(fixture.states().await, ["claimed"]);
    for number in 0..8 {
        take_over(&*fixture.store, ShardId(number)).await;
    }
    let held = timeout(Duration::from_secs(30), waiting)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((held.len(), held[0].id.attempt), (1, 1));
    drop(start);
}

/// Takes a shard from its owner, despite a valid lease.
async fn take_over(store: &dyn Store, shard: ShardId) {
    use onward_store::tables::ShardLeaseRow;
    use onward_store::{ColumnCodec as _, Commit, RecordReader as _, RowKey};

    let (lease, version): (ShardLeaseRow, u64) = store
        .read_record(RowKey(vec![shard.to_value()]))
        .await
        .unwrap()
        .unwrap();
    let epoch = onward_store::ShardEpoch(lease.epoch.0 + 1);
    let next = ShardLeaseRow {
        epoch,
        node: "other".into(),
        node_id: "other".into(),
        ..lease
    };
    store
        .commit(Commit::new().update(&next, version))
        .await
        .unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_step_with_unknown_outcome_goes_to_another_worker_soon() {
    let fixture = SlowFixture::open().await;
    fixture.start("chain", "2").await;
    let held = fixture.claim_one(60_000).await;
    fixture.store.lose_next_answer();
    let next = fixture
        .client
        .complete_task_and_claim_next(
            held.id,
            &held.claim_token,
            Ok(json("7")),
            &claim("anna", 1, 60_000),
        )
        .await;
    assert!(!matches!(next, Ok(Some(_))), "{next:?}");
    let held = timeout(Duration::from_secs(5), fixture.waiting("ben", 1, 60_000))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((held[0].id.number, held[0].id.attempt), (1, 1));
}
