//! Workers, when something takes long: a step that cannot be taken, a commit that is slow, a shard
//! that is lost. Time is virtual.

use std::future::pending;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::Payload;
use onward_engine::client::{EngineClient, FunctionInfo};
use onward_engine::node::{
    ComponentRuntime, FunctionRegistry, NativeTaskRegistry, Node, NodeOptions,
};
use onward_engine::shard::{self, GuestEntry, GuestUnavailable, TaskAttempt};
use onward_engine::task_queue::{ClaimRequest, LeasedTask};
use onward_execution::{Guest, ScriptedGuest};
use onward_journal::{ComponentDigest, DeliveryGuarantee, ExecutionId, InvokeResult};
use onward_store::{Error, ShardId, Store};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::code::{Scripts, deployed_on, json};
use crate::watched::{Delay, Watched};

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
        // The first of two, and then it waits for something else.
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

/// Code of which one execution cannot be run for a while.
struct Fragile {
    scripts: Scripts,
    broken: Broken,
}

type Broken = Arc<Mutex<Option<ExecutionId>>>;

#[async_trait]
impl ComponentRuntime for Fragile {
    async fn load_component(&self, code: &[u8]) -> Result<Vec<FunctionInfo>, String> {
        self.scripts.load_component(code).await
    }

    fn is_loaded(&self, component: ComponentDigest) -> bool {
        self.scripts.is_loaded(component)
    }

    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        if *self.broken.lock().unwrap() == Some(entry.execution.execution_id) {
            return Err(GuestUnavailable::BrokenCode("for now".to_owned()));
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

struct Place {
    store: Arc<Watched>,
    broken: Broken,
    client: EngineClient,
    stop: watch::Sender<bool>,
    node: JoinHandle<Result<(), Error>>,
}

impl Place {
    async fn open() -> Self {
        let store = Arc::new(Watched::new());
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

    /// The node is gone without a word, and another takes over.
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

    /// A worker that waits for tasks.
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

    /// A task of an execution that cannot go on for now.
    async fn stuck(&self, function: &str, lease_ms: u32) -> LeasedTask {
        let id = self.start(function, "1").await;
        // It leaves memory.
        sleep(Duration::from_secs(3)).await;
        let held = self.claim_one(lease_ms).await;
        *self.broken.lock().unwrap() = Some(id);
        held
    }

    fn mend(&self) {
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
    let beside = client.clone().with_local_node(&node);
    let node = tokio::spawn(node.run(stopped));
    sleep(Duration::from_secs(6)).await;
    (beside, stop, node)
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
async fn a_long_chain_does_not_keep_a_worker_from_what_waits() {
    let place = Place::open().await;
    place.start("chain", "100").await;
    let mut next = Some(place.claim_one(60_000).await);
    let other = place.start("chain", "1").await;
    for _ in 0..10 {
        let held = match next.take() {
            Some(held) => held,
            None => place.claim_one(60_000).await,
        };
        if held.id.execution == other {
            return;
        }
        sleep(Duration::from_secs(1)).await;
        let wanted = claim("anna", 1, 60_000);
        next = place
            .client
            .complete_task_and_claim_next(held.id, &held.claim_token, Ok(json("1")), &wanted)
            .await
            .unwrap();
    }
    panic!("it has waited for ten tasks of another");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_told_in_time_is_recorded_though_its_execution_cannot_go_on() {
    let mut place = Place::open().await;
    let held = place.stuck("once", 3_000).await;
    place
        .client
        .complete_task(held.id, &held.claim_token, Ok(json("7")))
        .await
        .unwrap();
    // It does not exist in memory alone.
    place.crash().await;
    place.mend();
    assert_eq!(
        place
            .client
            .wait_for_result(held.id.execution)
            .await
            .unwrap(),
        Ok(json("7"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_told_again_is_durable_when_that_is_answered() {
    let mut place = Place::open().await;
    let held = place.stuck("once", 30_000).await;
    let (client, it) = (place.client.clone(), held.clone());
    let first = tokio::spawn(async move {
        client
            .complete_task(it.id, &it.claim_token, Ok(json("7")))
            .await
    });
    sleep(Duration::from_millis(10)).await;
    // A connection that breaks.
    first.abort();
    place
        .client
        .complete_task(held.id, &held.claim_token, Ok(json("7")))
        .await
        .unwrap();
    place.crash().await;
    place.mend();
    assert_eq!(
        place
            .client
            .wait_for_result(held.id.execution)
            .await
            .unwrap(),
        Ok(json("7"))
    );
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_gets_a_task_and_not_whoever_is_busy_with_another_execution() {
    let place = Place::open().await;
    let held = place.stuck("chain", 60_000).await;
    let idle = place.waiting("idle", 1, 2_000);
    sleep(Duration::from_millis(10)).await;
    let reporter = place.client.clone();
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
    let id = place.start("once", "5").await;
    let held = timeout(Duration::from_millis(100), idle)
        .await
        .unwrap()
        .unwrap()
        .remove(0);
    assert_eq!(held.id.execution, id);
    assert_eq!(report.await.unwrap(), Ok(None));
}

#[tokio::test(start_paused = true)]
async fn an_end_that_is_of_no_use_does_not_keep_a_node_from_stopping() {
    let place = Place::open().await;
    let id = place.start("race", "1").await;
    let held = place.waiting("anna", 2, 60_000).await.unwrap();
    let [one, other] = &held[..] else {
        panic!("{held:?}")
    };
    let (before, after) = (Duration::from_millis(50), Duration::ZERO);
    place.store.delay(Delay {
        execution: Some(id),
        before,
        after,
    });
    let (client, it) = (place.client.clone(), one.clone());
    let first = tokio::spawn(async move {
        client
            .complete_task(it.id, &it.claim_token, Ok(json("1")))
            .await
    });
    sleep(Duration::from_millis(10)).await;
    // It is about to be withdrawn.
    assert!(
        place
            .client
            .complete_task(other.id, &other.claim_token, Ok(json("1")))
            .await
            .is_err()
    );
    first.await.unwrap().unwrap();
    let begun = Instant::now();
    place.stop.send_replace(true);
    place.node.await.unwrap().unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_said_many_times_is_looked_at_once() {
    let place = Place::open().await;
    place.store.counts();
    for _ in 0..10_000 {
        place.store.notify("shard 0".to_owned());
    }
    sleep(Duration::from_secs(1)).await;
    let (reads, _) = place.store.counts();
    assert!(reads < 500, "{reads} reads");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_is_stored_does_not_wait_for_one_that_takes_long() {
    let place = Place::open().await;
    let waiting = place.waiting("anna", 2, 2_000);
    sleep(Duration::from_millis(100)).await;
    let (before, after) = (Duration::from_secs(8), Duration::ZERO);
    place.store.delay(Delay {
        execution: None,
        before,
        after,
    });
    let client = place.client.clone();
    let slow = tokio::spawn(async move {
        client
            .start_execution("once", json("1"), Some("slow"))
            .await
    });
    sleep(Duration::from_millis(10)).await;
    let quick = place.start("once", "2").await;
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
    // The other comes too late for her, and goes to whoever asks then.
    let slow = slow.await.unwrap().unwrap().execution;
    let held = timeout(Duration::from_secs(5), place.waiting("ben", 1, 2_000))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((held[0].id.execution, held[0].id.attempt), (slow, 1));
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_shard_that_was_lost_is_not_left_with_a_worker_that_never_heard_of_it() {
    let place = Place::open().await;
    let waiting = place.waiting("anna", 1, 600_000);
    sleep(Duration::from_millis(100)).await;
    // The step is stored, and nothing is heard of that for long. Meanwhile somebody else becomes
    // the owner of all.
    let (before, after) = (Duration::ZERO, Duration::from_secs(100));
    place.store.delay(Delay {
        execution: None,
        before,
        after,
    });
    let client = place.client.clone();
    let start =
        tokio::spawn(async move { client.start_execution("once", json("1"), Some("k")).await });
    sleep(Duration::from_millis(100)).await;
    assert_eq!(place.states().await, ["claimed"]);
    for number in 0..8 {
        take_over(&*place.store, ShardId(number)).await;
    }
    let held = timeout(Duration::from_secs(30), waiting)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((held.len(), held[0].id.attempt), (1, 1));
    drop(start);
}

/// Takes a shard from its owner, whatever that says.
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
async fn a_task_of_a_step_of_which_nothing_is_heard_goes_to_others_soon() {
    let place = Place::open().await;
    place.start("chain", "2").await;
    let held = place.claim_one(60_000).await;
    place.store.fall_silent();
    let next = place
        .client
        .complete_task_and_claim_next(
            held.id,
            &held.claim_token,
            Ok(json("7")),
            &claim("anna", 1, 60_000),
        )
        .await;
    assert!(!matches!(next, Ok(Some(_))), "{next:?}");
    let held = timeout(Duration::from_secs(5), place.waiting("ben", 1, 60_000))
        .await
        .unwrap()
        .unwrap();
    assert_eq!((held[0].id.number, held[0].id.attempt), (1, 1));
}
