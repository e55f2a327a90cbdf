//! A node on a store: starts, signals, cancellation, children, and another node that takes over.
//! Time is virtual.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use onward_base::Payload;
use onward_engine::client::{ClientError, EngineClient, TakeoverPolicy};
use onward_engine::node::{FunctionRegistry, NativeTaskRegistry, Node, NodeOptions};
use onward_engine::shard::TaskAttempt;
use onward_execution::{JoinSetNext, ScriptedGuest};
use onward_journal::{ErrorKind, ExecutionId, InvokeResult};
use onward_store::tables::InboxMessageRow;
use onward_store::{RecordReader as _, TableScan};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::script_runtime::{BROKEN, Scripts, deployed, json, workflows};

const FUNCTIONS: &[&str] = &["chain", "parent", "patient", "lost"];

fn script(function: &str, input: Payload) -> ScriptedGuest {
    match function {
        "chain" => ScriptedGuest::new(|host| async move {
            for _ in 0..input.as_str().parse::<u32>().unwrap() {
                host.invoke_function("count", json("1")).await?;
            }
            Ok(input)
        }),
        "parent" => ScriptedGuest::new(|host| async move {
            let set = host.create_join_set().await?;
            for _ in 0..3 {
                let child = host.schedule_function("chain", json("2")).await?;
                host.submit_to_join_set(set, child).await?;
            }
            let mut sum = 0;
            while let JoinSetNext::Result(_, result) = host.next_result(set, None).await? {
                sum += result?.as_str().parse::<u32>().unwrap();
            }
            Ok(json(&sum.to_string()))
        }),
        "patient" => ScriptedGuest::new(|host| async move {
            host.sleep(3_600_000).await?;
            Ok(host.await_signal("go", None).await?.unwrap())
        }),
        "lost" => {
            ScriptedGuest::new(
                |host| async move { host.invoke_function("nowhere", json("1")).await },
            )
        }
        other => panic!("{other}"),
    }
}

/// A store, and the number of times its task was performed.
struct World {
    client: EngineClient,
    counted: Arc<AtomicU32>,
}

impl World {
    async fn new() -> Self {
        let client = deployed(FUNCTIONS).await;
        Self {
            client,
            counted: Arc::default(),
        }
    }

    /// Starts a node that runs until the sender is dropped or sends `true`.
    fn node(
        &self,
    ) -> (
        watch::Sender<bool>,
        JoinHandle<Result<(), onward_store::Error>>,
    ) {
        let (stop, stopped) = watch::channel(false);
        (stop, tokio::spawn(self.idle().run(stopped)))
    }

    /// A node that is not running yet.
    fn idle(&self) -> Arc<Node> {
        let counted = Arc::clone(&self.counted);
        let native =
            NativeTaskRegistry::default().with_task("count", move |attempt: TaskAttempt| {
                counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
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
        Arc::new(Node::new(
            Arc::clone(self.client.store()),
            library,
            NodeOptions::default(),
        ))
    }

    async fn start(&self, function: &str, input: &str) -> ExecutionId {
        self.client
            .start_execution(function, json(input), None)
            .await
            .unwrap()
            .execution
    }

    async fn result(&self, id: ExecutionId) -> InvokeResult {
        for _ in 0..100_000 {
            if let Some(result) = self.client.execution_result(id).await.unwrap() {
                return result;
            }
            tokio::time::sleep(std::time::Duration::from_millis(500)).await;
        }
        panic!(
            "the execution does not end: {:?}",
            self.client.read_journal(id).await.unwrap().last()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_starts_and_waits_gets_the_result() {
    let world = World::new().await;
    let node = world.idle();
    let local_client = world.client.clone().with_local_node(&node);
    let (_stop, stopped) = watch::channel(false);
    let _working = tokio::spawn(node.run(stopped));
    let long = std::time::Duration::from_secs(60);
    for client in [&local_client, &world.client] {
        for input in ["0", "3"] {
            let (started, result) = client
                .start_and_wait("chain", json(input), None, tokio::time::sleep(long))
                .await
                .unwrap();
            assert_eq!(
                (started.already_existed, result),
                (false, Some(Ok(json(input))))
            );
        }
        // The second time it has ended before the client waits.
        let first = client
            .start_and_wait("chain", json("1"), Some("key"), tokio::time::sleep(long))
            .await
            .unwrap();
        let again = client
            .start_and_wait("chain", json("1"), Some("key"), tokio::time::sleep(long))
            .await
            .unwrap();
        assert_eq!(
            (again.0.execution, again.0.already_existed, again.1),
            (first.0.execution, true, Some(Ok(json("1"))))
        );
        let (_, none) = client
            .start_and_wait("patient", json("1"), None, tokio::time::sleep(long))
            .await
            .unwrap();
        assert_eq!(none, None);
        let refused = client
            .start_and_wait("nothing", json("1"), None, tokio::time::sleep(long))
            .await;
        assert!(matches!(refused, Err(ClientError::FunctionNotFound(_))));
    }
}

#[tokio::test(start_paused = true)]
async fn workflows_run_to_completion() {
    let world = World::new().await;
    let (_stop, _node) = world.node();
    let (chain, parent) = (
        world.start("chain", "5").await,
        world.start("parent", "null").await,
    );
    assert_eq!(world.result(chain).await, Ok(json("5")));
    assert_eq!(world.result(parent).await, Ok(json("6")));
    assert_eq!(world.counted.load(Ordering::SeqCst), 5 + 3 * 2);
}

#[tokio::test(start_paused = true)]
async fn an_execution_waits_for_its_signal_for_hours() {
    let world = World::new().await;
    let (_stop, _node) = world.node();
    let id = world.start("patient", "null").await;
    tokio::time::sleep(std::time::Duration::from_secs(3_700)).await;
    assert_eq!(world.client.execution_result(id).await.unwrap(), None);
    world
        .client
        .send_signal(id, "go".parse().unwrap(), json("\"at last\""), Some("once"))
        .await
        .unwrap();
    assert_eq!(world.result(id).await, Ok(json("\"at last\"")));
    let again = world
        .client
        .send_signal(id, "go".parse().unwrap(), json("1"), None)
        .await;
    assert_eq!(again, Err(ClientError::ExecutionEnded(id)));
    let other = world
        .client
        .send_signal(id, "go".parse().unwrap(), json("1"), Some("another"))
        .await;
    assert_eq!(other, Err(ClientError::ExecutionEnded(id)));
    let same = world
        .client
        .send_signal(id, "go".parse().unwrap(), json("\"at last\""), Some("once"))
        .await;
    assert_eq!(same, Ok(()), "a signal with the same key may be repeated");
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let left: Vec<(InboxMessageRow, u64)> = world
        .client
        .store()
        .list_records(TableScan::all_rows::<InboxMessageRow>())
        .await
        .unwrap();
    assert_eq!(left.len(), 1, "the key of the consumed signal");
}

#[tokio::test(start_paused = true)]
async fn cancellation_reaches_an_execution_that_waits() {
    let world = World::new().await;
    let (_stop, _node) = world.node();
    let id = world.start("patient", "null").await;
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    world.client.request_cancel(id, "enough").await.unwrap();
    assert_eq!(
        world.result(id).await.unwrap_err().kind,
        ErrorKind::Cancelled
    );
}

#[tokio::test(start_paused = true)]
async fn a_key_starts_one_execution_even_after_a_new_deployment() {
    let world = World::new().await;
    let start = || {
        world
            .client
            .start_execution("chain", json("1"), Some("order-42"))
    };
    let first = start().await.unwrap();
    let again = start().await.unwrap();
    world
        .client
        .deploy_component(
            b"newer scripts",
            &workflows(FUNCTIONS),
            &[],
            TakeoverPolicy::Refuse,
        )
        .await
        .unwrap();
    let later = start().await.unwrap();
    assert_eq!(
        (
            first.already_existed,
            again.already_existed,
            later.already_existed
        ),
        (false, true, true)
    );
    assert!(first.execution == again.execution && first.execution == later.execution);
    let spaced = world
        .client
        .start_execution("chain", json(" 1 "), Some("order-42"))
        .await
        .unwrap();
    assert_eq!(
        (spaced.execution, spaced.already_existed),
        (first.execution, true)
    );
    let other = world
        .client
        .start_execution("chain", json("2"), Some("order-42"))
        .await;
    assert_eq!(
        other,
        Err(ClientError::IdempotencyKeyConflict(first.execution))
    );
    assert_eq!(
        world
            .client
            .start_execution("nothing", json("1"), None)
            .await,
        Err(ClientError::FunctionNotFound("nothing".to_owned()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_stopped_node_hands_over_its_executions() {
    let world = World::new().await;
    let (stop, node) = world.node();
    let id = world.start("chain", "50").await;
    while world.counted.load(Ordering::SeqCst) < 5 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    stop.send(true).unwrap();
    node.await.unwrap().unwrap();
    assert_eq!(world.client.execution_result(id).await.unwrap(), None);
    let (_stop, _node) = world.node();
    assert_eq!(world.result(id).await, Ok(json("50")));
}

#[tokio::test(start_paused = true)]
async fn a_killed_node_is_replaced_when_its_lease_expires() {
    let world = World::new().await;
    let (_stop, node) = world.node();
    let id = world.start("chain", "50").await;
    while world.counted.load(Ordering::SeqCst) < 5 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    node.abort();
    let (_stop, _node) = world.node();
    assert_eq!(world.result(id).await, Ok(json("50")));
    assert!(
        world.counted.load(Ordering::SeqCst) <= 51,
        "at most the running task is repeated"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_function_is_retried_as_its_policy_allows() {
    let world = World::new().await;
    let (_stop, _node) = world.node();
    let id = world.start("lost", "null").await;
    assert_eq!(
        world.result(id).await.unwrap_err().kind.as_str(),
        "unknown_function"
    );
}

#[tokio::test(start_paused = true)]
async fn a_broken_component_does_not_affect_others() {
    let world = World::new().await;
    world
        .client
        .deploy_component(BROKEN, &workflows(&["other"]), &[], TakeoverPolicy::Refuse)
        .await
        .unwrap();
    let (_stop, _node) = world.node();
    let id = world.start("chain", "2").await;
    assert_eq!(world.result(id).await, Ok(json("2")));
}
