//! Fixture for the tests of the task queue: a store, a node, scripted workflows and a worker.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use onward_api::finding::FindingCode as Found;
use onward_base::Payload;
use onward_diagnostics::doctor;
use onward_engine::client::{ClientError, EngineClient};
use onward_engine::node::{FunctionRegistry, NativeTaskRegistry, Node, NodeOptions};
use onward_engine::task_queue::{ClaimRequest, LeasedTask};
use onward_execution::ScriptedGuest;
use onward_journal::{DeliveryGuarantee, ExecutionError, ExecutionId, InvokeResult, RetryPolicy};
use onward_store::tables::TaskRow;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::script_runtime::{Scripts, deployed, json};

const FUNCTIONS: &[&str] = &[
    "pay",
    "once",
    "hurry",
    "race",
    "many",
    "clean",
    "once_hurry",
    "last",
    "long_name",
];

#[expect(
    clippy::too_many_lines,
    reason = "one scenario, or one list of cases, read from top to bottom"
)]
fn script(function: &str, input: Payload) -> ScriptedGuest {
    let twice = RetryPolicy {
        max_attempts: std::num::NonZeroU32::new(2),
        ..RetryPolicy::default()
    };
    match function {
        "pay" => ScriptedGuest::new(|host| async move {
            let promise = host
                .schedule_with_policy(
                    "charge",
                    input,
                    Some(Box::new(twice)),
                    DeliveryGuarantee::AtLeastOnce,
                )
                .await?;
            host.await_promise(promise).await
        }),
        "once" => ScriptedGuest::new(|host| async move {
            let promise = host
                .schedule_with_policy("charge", input, None, DeliveryGuarantee::AtMostOnce)
                .await?;
            host.await_promise(promise).await
        }),
        "hurry" => ScriptedGuest::new(|host| async move {
            let policy = RetryPolicy {
                timeout_ms: Some(10_000),
                ..twice
            };
            let promise = host
                .schedule_with_policy(
                    "charge",
                    input,
                    Some(Box::new(policy)),
                    DeliveryGuarantee::AtLeastOnce,
                )
                .await?;
            host.await_promise(promise).await
        }),
        "once_hurry" => ScriptedGuest::new(|host| async move {
            let policy = RetryPolicy {
                timeout_ms: Some(10_000),
                ..twice
            };
            let promise = host
                .schedule_with_policy(
                    "charge",
                    input,
                    Some(Box::new(policy)),
                    DeliveryGuarantee::AtMostOnce,
                )
                .await?;
            host.await_promise(promise).await
        }),
        "last" => ScriptedGuest::new(|host| async move {
            let policy = RetryPolicy {
                max_attempts: std::num::NonZeroU32::new(1),
                ..RetryPolicy::default()
            };
            let promise = host
                .schedule_with_policy(
                    "charge",
                    input,
                    Some(Box::new(policy)),
                    DeliveryGuarantee::AtMostOnce,
                )
                .await?;
            host.await_promise(promise).await
        }),
        "long_name" => ScriptedGuest::new(|host| async move {
            let policy = RetryPolicy {
                max_attempts: std::num::NonZeroU32::new(1),
                ..RetryPolicy::default()
            };
            let name = "x".repeat(600);
            let promise = host
                .schedule_with_policy(
                    &name,
                    input,
                    Some(Box::new(policy)),
                    DeliveryGuarantee::AtLeastOnce,
                )
                .await?;
            host.await_promise(promise).await
        }),
        "race" => ScriptedGuest::new(|host| async move {
            let set = host.create_join_set().await?;
            let promise = host.schedule_function("charge", input).await?;
            host.submit_to_join_set(set, promise).await?;
            host.next_result(set, Some(5_000)).await?;
            host.close_join_set(set).await?;
            host.await_signal("on", None).await?;
            Ok(json("\"enough\""))
        }),
        "many" => ScriptedGuest::new(|host| async move {
            let mut promises = Vec::new();
            for number in 0..input.as_str().parse::<u32>().unwrap() {
                promises.push(
                    host.schedule_function("charge", json(&number.to_string()))
                        .await?,
                );
            }
            let results = host.await_all(&promises).await?;
            Ok(json(&results.len().to_string()))
        }),
        "clean" => ScriptedGuest::new(|host| async move {
            let promise = host.schedule_function("charge", input).await?;
            match host.await_promise(promise).await {
                Ok(done) => Ok(done),
                Err(error) => {
                    host.invoke_function("refund", json("1")).await?;
                    Err(error)
                }
            }
        }),
        other => panic!("{other}"),
    }
}

/// A store, a node on it, and a worker beside the node.
pub(crate) struct TaskFixture {
    asked: WorkerAccess,
    pub(crate) client: EngineClient,
    stop: watch::Sender<bool>,
    pub(crate) node: JoinHandle<Result<(), onward_store::Error>>,
}

pub(crate) const SOON: Duration = Duration::from_secs(2);

/// The process that workers send their requests to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum WorkerAccess {
    /// The process of the node.
    Owner,
    /// A process that owns no shard.
    Other,
}

impl TaskFixture {
    pub(crate) async fn open(asked: WorkerAccess) -> Self {
        let client = deployed(FUNCTIONS).await;
        let (nearby, stop, node) = run(&client);
        let client = if asked == WorkerAccess::Owner {
            nearby
        } else {
            client
        };
        Self {
            asked,
            client,
            stop,
            node,
        }
    }

    pub(crate) async fn claim(
        &self,
        most: usize,
        lease_ms: u32,
        wait: Duration,
    ) -> Vec<LeasedTask> {
        let functions = vec!["charge".into(), "refund".into()];
        let claim = ClaimRequest {
            worker: "anna".into(),
            functions,
            max_tasks: most,
            lease_ms,
        };
        self.client
            .claim_tasks(&claim, wait, pending())
            .await
            .unwrap()
    }

    pub(crate) async fn claim_one(&self, lease_ms: u32) -> LeasedTask {
        let mut held = self.claim(1, lease_ms, SOON).await;
        assert_eq!(held.len(), 1);
        held.remove(0)
    }

    pub(crate) async fn start(&self, function: &str, input: &str) -> ExecutionId {
        self.client
            .start_execution(function, json(input), None)
            .await
            .unwrap()
            .execution
    }

    pub(crate) async fn outcome(&self, id: ExecutionId) -> InvokeResult {
        tokio::time::timeout(Duration::from_secs(600), self.client.wait_for_result(id))
            .await
            .unwrap()
            .unwrap()
    }

    pub(crate) async fn end(
        &self,
        held: &LeasedTask,
        result: InvokeResult,
    ) -> Result<(), ClientError> {
        self.client
            .complete_task(held.id, &held.claim_token, result)
            .await
    }

    pub(crate) async fn tasks(&self) -> Vec<TaskRow> {
        self.client.list_tasks(None, 100).await.unwrap()
    }

    pub(crate) async fn findings(&self) -> Vec<(Found, String)> {
        let mut found = Vec::new();
        let mut report = |finding: &onward_api::finding::DoctorFinding| {
            found.push((finding.code, finding.message.clone()));
            Ok(())
        };
        doctor::examine_store(&**self.client.store(), None, &mut report, |_| ())
            .await
            .unwrap();
        found
    }

    /// Kills the node without a shutdown, and starts another that takes over.
    pub(crate) async fn crash(&mut self) {
        self.node.abort();
        assert!((&mut self.node).await.is_err());
        let nearby;
        (nearby, self.stop, self.node) = run(&self.client);
        if self.asked == WorkerAccess::Owner {
            self.client = nearby;
        }
    }
}

fn run(
    client: &EngineClient,
) -> (
    EngineClient,
    watch::Sender<bool>,
    JoinHandle<Result<(), onward_store::Error>>,
) {
    let library = FunctionRegistry::new(
        Arc::new(Scripts {
            functions: FUNCTIONS,
            script,
        }),
        NativeTaskRegistry::default(),
    )
    .with_workers();
    let node = Arc::new(Node::new(
        Arc::clone(client.store()),
        library,
        NodeOptions::default(),
    ));
    let (stop, stopped) = watch::channel(false);
    (
        client.clone().with_local_node(&node),
        stop,
        tokio::spawn(node.run(stopped)),
    )
}

pub(crate) fn declined() -> ExecutionError {
    ExecutionError::from_kind_name("declined", "no money")
}

/// Declares each test twice: with workers that call the process of the node, and with workers that
/// call another process.
macro_rules! with_either_access {
    ($($name:ident)*) => {
        mod owner {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name($crate::task_fixture::TaskFixture::open($crate::task_fixture::WorkerAccess::Owner).await).await;
            })*
        }

        mod other {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name($crate::task_fixture::TaskFixture::open($crate::task_fixture::WorkerAccess::Other).await).await;
            })*
        }
    };
}
pub(crate) use with_either_access;
