//! Limits of executions: capacity, timeouts, broken code, call depth, full journals; and
//! successors. Time is virtual.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use onward_base::Payload;
use onward_engine::client::{EngineClient, ExecutionFilter, ExecutionListOrder};
use onward_engine::node::{
    ComponentLoadError, ComponentRuntime, FunctionRegistry, NativeTaskRegistry, Node, NodeOptions,
};
use onward_engine::shard::{self, GuestEntry, GuestUnavailable, TaskAttempt};
use onward_execution::{
    ExecutionLimits, Guest, GuestFunction, GuestResponse, GuestTurn, ScriptedGuest,
};
use onward_journal::{
    ComponentDigest, DeliveryGuarantee, ErrorKind, Event, ExecutionError, ExecutionId,
    InvokeResult, RetryPolicy,
};
use onward_store::tables::{AlertRow, InboxMessageRow};
use onward_store::{RecordReader as _, Store, TableScan};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::script_runtime::{deployed, json, workflows};

const FUNCTIONS: &[&str] = &[
    "deep", "slow", "hasty", "counter", "guardian", "wide", "busy", "fickle", "tireless", "sole",
];

fn once(timeout_ms: u64) -> Option<Box<RetryPolicy>> {
    Some(Box::new(RetryPolicy {
        max_attempts: std::num::NonZeroU32::new(1),
        timeout_ms: Some(timeout_ms),
        ..RetryPolicy::default()
    }))
}

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
fn script(function: &str, input: Payload, made: usize) -> ScriptedGuest {
    match function {
        // Calls itself without end.
        "deep" => {
            ScriptedGuest::new(
                |host| async move { host.invoke_function("deep", json("null")).await },
            )
        }
        "slow" => {
            ScriptedGuest::new(
                |host| async move { host.sleep(3_600_000).await.map(|()| json("1")) },
            )
        }
        "hasty" => ScriptedGuest::new(|host| async move {
            let slow = host
                .schedule_with_policy(
                    "slow",
                    json("null"),
                    once(1_000),
                    DeliveryGuarantee::AtLeastOnce,
                )
                .await?;
            host.await_promise(slow).await
        }),
        // An at-most-once task whose policy allows retries.
        "sole" => ScriptedGuest::new(|host| async move {
            let policy = RetryPolicy {
                timeout_ms: Some(1_000),
                ..RetryPolicy::default()
            };
            let name = input.as_str().trim_matches('"').to_owned();
            let task = host
                .schedule_with_policy(
                    &name,
                    json("null"),
                    Some(Box::new(policy)),
                    DeliveryGuarantee::AtMostOnce,
                )
                .await?;
            host.await_promise(task).await
        }),
        // Counts signals, and continues as new after each.
        "counter" => ScriptedGuest::new(move |host| async move {
            let count: u32 = input.as_str().parse().unwrap();
            let last = host.await_signal("tick", None).await?.unwrap();
            if last == json("\"stop\"") {
                return Ok(json(&count.to_string()));
            }
            host.continue_as_new(json(&(count + 1).to_string())).await?;
            Ok(json("null"))
        }),
        "guardian" => {
            ScriptedGuest::new(
                |host| async move { host.invoke_function("counter", json("0")).await },
            )
        }
        // Requests more at once than one commit can store.
        "wide" => ScriptedGuest::new(|host| async move {
            let large = json(&format!("\"{}\"", "x".repeat(1_000_000)));
            let mut tasks = Vec::new();
            for _ in 0..20 {
                tasks.push(host.schedule_function("work", large.clone()).await?);
            }
            let done = host.await_all(&tasks).await?;
            Ok(json(
                &done.into_iter().filter(Result::is_ok).count().to_string(),
            ))
        }),
        // Requests random bytes until its journal is full, and continues as new.
        "tireless" => ScriptedGuest::new(move |host| async move {
            if input == json("1") {
                return Ok(json("\"done\""));
            }
            while host.random_bytes(1).await.is_ok() {}
            host.continue_as_new(json("1")).await.map(|()| json("null"))
        }),
        "busy" => {
            ScriptedGuest::new(|host| async move { host.invoke_function("work", json("1")).await })
        }
        // Requests something different each time its guest is created.
        "fickle" => ScriptedGuest::new(move |host| async move {
            if made == 0 {
                host.sleep(60_000).await?
            } else {
                drop(host.random_bytes(4).await?)
            }
            host.await_signal("go", None).await?;
            Ok(json("null"))
        }),
        other => panic!("{other}"),
    }
}

/// Scripts with a limited number of guests at a time.
struct Crowded {
    room: Arc<AtomicUsize>,
    made: AtomicUsize,
}

/// A guest that occupies capacity until it is dropped.
struct Roomy {
    script: ScriptedGuest,
    room: Arc<AtomicUsize>,
}

impl Guest for Roomy {
    fn resume_guest(&mut self, answer: Option<GuestResponse>) -> GuestTurn {
        self.script.resume_guest(answer)
    }
}

impl Drop for Roomy {
    fn drop(&mut self) {
        self.room.fetch_add(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl ComponentRuntime for Crowded {
    async fn load_component(&self, _: &[u8]) -> Result<Vec<GuestFunction>, ComponentLoadError> {
        Ok(workflows(FUNCTIONS))
    }

    fn is_loaded(&self, _: ComponentDigest) -> bool {
        true
    }

    fn create_guest(&self, entry: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        if self.guest_capacity() == 0 {
            return Err(GuestUnavailable::NoCapacity);
        }
        self.room.fetch_sub(1, Ordering::SeqCst);
        let made = self.made.fetch_add(1, Ordering::SeqCst);
        let script = script(&entry.execution.function, entry.input.clone(), made);
        Ok(Box::new(Roomy {
            script,
            room: Arc::clone(&self.room),
        }))
    }

    fn guest_capacity(&self) -> usize {
        self.room.load(Ordering::SeqCst)
    }

    async fn perform_task(&self, _: ComponentDigest, _: &TaskAttempt) -> Option<InvokeResult> {
        Some(Err(ExecutionError::new(
            ErrorKind::UserError,
            "scripts have no tasks",
        )))
    }

    async fn send_http_request(&self, _: &TaskAttempt) -> InvokeResult {
        Err(ExecutionError::new(
            ErrorKind::UserError,
            "scripts have no network",
        ))
    }
}

struct World {
    store: Arc<dyn Store>,
    client: EngineClient,
    stop: watch::Sender<bool>,
    node: JoinHandle<Result<(), onward_store::Error>>,
    /// How often a task that fails was started.
    started: Arc<AtomicUsize>,
}

impl World {
    async fn new(room: usize) -> Self {
        let client = deployed(FUNCTIONS).await;
        let store = Arc::clone(client.store());
        let native =
            NativeTaskRegistry::default().with_task("work", |attempt: TaskAttempt| async move {
                tokio::time::sleep(Duration::from_millis(300)).await;
                Ok(attempt.input)
            });
        let started: Arc<AtomicUsize> = Arc::default();
        let (endless, broken) = (Arc::clone(&started), Arc::clone(&started));
        let native = native.with_task("endless", move |_| {
            endless.fetch_add(1, Ordering::SeqCst);
            std::future::pending()
        });
        let native = native.with_task("broken", move |_| {
            broken.fetch_add(1, Ordering::SeqCst);
            async { panic!("broken by the test") }
        });
        let code = Crowded {
            room: Arc::new(AtomicUsize::new(room)),
            made: AtomicUsize::new(0),
        };
        let library = FunctionRegistry::new(Arc::new(code), native);
        let limits = ExecutionLimits {
            events_max: 100,
            ..ExecutionLimits::default()
        };
        let shard = shard::ShardOptions {
            limits,
            ..shard::ShardOptions::default()
        };
        let options = NodeOptions {
            loading_max: 4,
            shard,
            ..NodeOptions::default()
        };
        let node = Arc::new(Node::new(Arc::clone(&store), library, options));
        let client = client.with_local_node(&node);
        let (stop, stopped) = watch::channel(false);
        let node = tokio::spawn(node.run(stopped));
        Self {
            store,
            client,
            stop,
            node,
            started,
        }
    }

    async fn start(&self, function: &str, input: &str) -> ExecutionId {
        self.client
            .start_execution(function, json(input), None)
            .await
            .unwrap()
            .execution
    }

    async fn result(&self, id: ExecutionId) -> InvokeResult {
        for _ in 0..10_000 {
            if let Some(result) = self.client.execution_result(id).await.unwrap() {
                return result;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!(
            "the execution does not end: {:?}",
            self.client.read_journal(id).await.unwrap().last()
        );
    }

    async fn tick(&self, to: ExecutionId, text: &str, key: Option<&str>) {
        self.client
            .send_signal(to, "tick".parse().unwrap(), json(text), key)
            .await
            .unwrap();
    }

    /// Waits until no message is pending.
    async fn wait_until_messages_consumed(&self) {
        for _ in 0..1_000 {
            let waiting: Vec<(InboxMessageRow, u64)> = self
                .store
                .list_records(TableScan::all_rows::<InboxMessageRow>())
                .await
                .unwrap();
            if waiting.iter().all(|(message, _)| message.body.is_empty()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("messages are not consumed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_times_out_is_cancelled() {
    let world = World::new(100).await;
    let id = world.start("hasty", "null").await;
    assert_eq!(world.result(id).await.unwrap_err().kind, ErrorKind::Timeout);
    let events = world.client.read_journal(id).await.unwrap();
    let child = events.iter().find_map(|it| match it.event {
        Event::InvokeStarted { performer, .. } => performer.child_execution(),
        _ => None,
    });
    assert_eq!(
        world.result(child.unwrap()).await.unwrap_err().kind,
        ErrorKind::Cancelled
    );
}

#[tokio::test(start_paused = true)]
async fn an_at_most_once_task_without_a_result_is_in_doubt() {
    for task in ["\"endless\"", "\"broken\""] {
        let world = World::new(100).await;
        let id = world.start("sole", task).await;
        let error = world.result(id).await.unwrap_err();
        assert_eq!(
            (error.kind.as_str(), error.retryable),
            ("in_doubt", false),
            "{task}: {error}"
        );
        assert_eq!(world.started.load(Ordering::SeqCst), 1, "{task}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_call_depth_of_workflows_is_limited() {
    let world = World::new(1_000).await;
    let id = world.start("deep", "null").await;
    assert_eq!(
        world.result(id).await.unwrap_err().kind.as_str(),
        "too_deep"
    );
    let executions = world
        .client
        .list_executions(
            &ExecutionFilter::default(),
            ExecutionListOrder::OldestFirst,
            None,
            1_000,
        )
        .await
        .unwrap();
    assert_eq!(executions.len(), 65, "64 nested invocations");
}

#[tokio::test(start_paused = true)]
async fn signals_are_forwarded_to_the_successor() {
    let world = World::new(100).await;
    let id = world.start("counter", "0").await;
    for round in 0..5 {
        world.tick(id, "1", Some(&format!("key {round}"))).await;
        world.wait_until_messages_consumed().await;
    }
    // All were consumed, some by a predecessor; sending them again has no effect.
    for round in 0..5 {
        world.tick(id, "1", Some(&format!("key {round}"))).await;
        world.wait_until_messages_consumed().await;
    }
    world.tick(id, "\"stop\"", None).await;
    assert_eq!(world.result(id).await, Ok(json("5")));
}

#[tokio::test(start_paused = true)]
async fn cancellation_is_forwarded_to_the_successor_of_a_child() {
    let world = World::new(100).await;
    let id = world.start("guardian", "null").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let executions = world
        .client
        .list_executions(
            &ExecutionFilter::default(),
            ExecutionListOrder::OldestFirst,
            None,
            10,
        )
        .await
        .unwrap();
    let child = executions
        .iter()
        .find(|row| &*row.function == "counter")
        .unwrap()
        .execution_id;
    world.tick(child, "1", None).await;
    world.wait_until_messages_consumed().await;
    world.client.request_cancel(id, "enough").await.unwrap();
    assert_eq!(
        world.result(id).await.unwrap_err().kind,
        ErrorKind::Cancelled
    );
    assert_eq!(
        world.result(child).await.unwrap_err().kind,
        ErrorKind::Cancelled
    );
}

#[tokio::test(start_paused = true)]
async fn executions_due_at_the_same_time_are_loaded_in_batches() {
    let world = World::new(1_000).await;
    let mut ids = Vec::new();
    for _ in 0..300 {
        ids.push(world.start("slow", "null").await);
    }
    // They leave memory, and all wake in the same second.
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    for id in ids {
        assert_eq!(world.result(id).await, Ok(json("1")));
    }
}

#[tokio::test(start_paused = true)]
async fn guests_without_capacity_wait_for_it() {
    let world = World::new(3).await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        // Waiting guests are evicted for guests that run.
        waiting.push(world.start("counter", "0").await);
    }
    let mut ids = Vec::new();
    for _ in 0..40 {
        ids.push(world.start("busy", "null").await);
    }
    for id in ids {
        assert_eq!(world.result(id).await, Ok(json("1")));
    }
    for id in waiting {
        world.tick(id, "\"stop\"", None).await;
        assert_eq!(world.result(id).await, Ok(json("0")));
    }
    world.stop.send(true).unwrap();
    world.node.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stuck_execution_raises_one_alert() {
    let world = World::new(100).await;
    let id = world.start("fickle", "null").await;
    // It leaves memory while it sleeps, and diverges when its guest is created again.
    tokio::time::sleep(Duration::from_secs(120)).await;
    world
        .client
        .send_signal(id, "go".parse().unwrap(), json("1"), None)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    let alerts: Vec<(AlertRow, u64)> = world
        .store
        .list_records(TableScan::all_rows::<AlertRow>())
        .await
        .unwrap();
    let alerts: Vec<_> = alerts
        .iter()
        .map(|(alert, _)| (alert.code.as_str(), &*alert.subject))
        .collect();
    assert_eq!(alerts, [("EXECUTION_STUCK", &*id.to_string())]);
    let waiting: Vec<(InboxMessageRow, u64)> = world
        .store
        .list_records(TableScan::all_rows::<InboxMessageRow>())
        .await
        .unwrap();
    assert_eq!(
        waiting.len(),
        1,
        "the signal is kept until the execution can take it"
    );
}

#[tokio::test(start_paused = true)]
async fn a_large_step_is_stored_in_several_commits() {
    let world = World::new(100).await;
    let id = world.start("wide", "null").await;
    assert_eq!(world.result(id).await, Ok(json("20")));
    // The same for external events: more messages than one commit can store, then a cancellation.
    let id = world.start("slow", "null").await;
    for _ in 0..20 {
        world
            .tick(id, &format!("\"{}\"", "x".repeat(1_000_000)), None)
            .await;
    }
    world.client.request_cancel(id, "enough").await.unwrap();
    assert_eq!(
        world.result(id).await.unwrap_err().kind,
        ErrorKind::Cancelled
    );
    let too_large = json(&format!("\"{}\"", "x".repeat(2_000_000)));
    let refused = world
        .client
        .send_signal(id, "tick".parse().unwrap(), too_large, None)
        .await
        .unwrap_err();
    assert!(
        matches!(
            refused,
            onward_engine::client::ClientError::PayloadTooLarge { .. }
        ),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_key_of_a_signal_collides_with_no_other_message() {
    let world = World::new(100).await;
    let id = world.start("slow", "null").await;
    for key in ["cancel", "", "cancel:"] {
        world.tick(id, "1", Some(key)).await;
    }
    world.wait_until_messages_consumed().await;
    world.client.request_cancel(id, "enough").await.unwrap();
    assert_eq!(
        world.result(id).await.unwrap_err().kind,
        ErrorKind::Cancelled
    );
}

#[tokio::test(start_paused = true)]
async fn waiting_messages_do_not_block_other_executions() {
    let world = World::new(100).await;
    let stuck = world.start("fickle", "null").await;
    tokio::time::sleep(Duration::from_secs(120)).await;
    let shard = world
        .client
        .find_execution(stuck)
        .await
        .unwrap()
        .unwrap()
        .shard;
    let neighbour = loop {
        let id = world.start("counter", "0").await;
        if world
            .client
            .find_execution(id)
            .await
            .unwrap()
            .unwrap()
            .shard
            == shard
        {
            break id;
        }
    };
    for _ in 0..1_100 {
        world
            .client
            .send_signal(stuck, "go".parse().unwrap(), json("1"), None)
            .await
            .unwrap();
    }
    world.tick(neighbour, "\"stop\"", None).await;
    assert_eq!(world.result(neighbour).await, Ok(json("0")));
}

#[tokio::test(start_paused = true)]
async fn an_execution_with_a_full_journal_can_continue_as_new() {
    let world = World::new(100).await;
    let id = world.start("tireless", "0").await;
    assert_eq!(world.result(id).await, Ok(json("\"done\"")));
    assert_eq!(
        world.client.read_journal(id).await.unwrap().len(),
        101,
        "a hundred events and the terminal event"
    );
}
