//! Tasks that workers perform: they are claimed once, end once, and are never lost with a worker or a node.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use onward_api::finding::FindingCode as Found;
use onward_base::{Payload, Scope};
use onward_engine::client::{ClientError, EngineClient, FunctionInfo, FunctionKind};
use onward_engine::node::{FunctionRegistry, NativeTaskRegistry, Node, NodeOptions};
use onward_engine::shard::AttemptId;
use onward_engine::task_queue::{ClaimRequest, LeasedTask, parse_task_name, task_name};
use onward_engine::{doctor, explain};
use onward_execution::ScriptedGuest;
use onward_journal::{
    DeliveryGuarantee, Event, ExecutionError, ExecutionId, InvokePerformer, InvokeResult,
    RetryPolicy,
};
use onward_store::tables::TaskRow;
use onward_store::{ColumnCodec as _, Commit, RecordReader as _, RowKey, TableScan};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::code::{Scripts, deployed, json};

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
struct Shop {
    asked: Asked,
    client: EngineClient,
    stop: watch::Sender<bool>,
    node: JoinHandle<Result<(), onward_store::Error>>,
}

const SOON: Duration = Duration::from_secs(2);

/// Which process workers ask.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Asked {
    /// The node's.
    Owner,
    /// One that owns nothing.
    Other,
}

impl Shop {
    async fn open(asked: Asked) -> Self {
        let client = deployed(FUNCTIONS).await;
        let (nearby, stop, node) = run(&client);
        let client = if asked == Asked::Owner {
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

    async fn claim(&self, most: usize, lease_ms: u32, wait: Duration) -> Vec<LeasedTask> {
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

    async fn claim_one(&self, lease_ms: u32) -> LeasedTask {
        let mut held = self.claim(1, lease_ms, SOON).await;
        assert_eq!(held.len(), 1);
        held.remove(0)
    }

    async fn start(&self, function: &str, input: &str) -> ExecutionId {
        self.client
            .start_execution(function, json(input), None)
            .await
            .unwrap()
            .execution
    }

    async fn outcome(&self, id: ExecutionId) -> InvokeResult {
        tokio::time::timeout(Duration::from_secs(600), self.client.wait_for_result(id))
            .await
            .unwrap()
            .unwrap()
    }

    async fn end(&self, held: &LeasedTask, result: InvokeResult) -> Result<(), ClientError> {
        self.client
            .complete_task(held.id, &held.claim_token, result)
            .await
    }

    async fn tasks(&self) -> Vec<TaskRow> {
        self.client.list_tasks(None, 100).await.unwrap()
    }

    async fn findings(&self) -> Vec<(Found, String)> {
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

    /// The node is gone without a word, and another takes over.
    async fn crash(&mut self) {
        self.node.abort();
        assert!((&mut self.node).await.is_err());
        let nearby;
        (nearby, self.stop, self.node) = run(&self.client);
        if self.asked == Asked::Owner {
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

fn declined() -> ExecutionError {
    ExecutionError::from_kind_name("declined", "no money")
}

async fn a_worker_performs_a_task_and_the_journal_says_so(shop: Shop) {
    let id = shop.start("pay", "{\"amount\":7}").await;
    let held = shop.claim_one(5_000).await;
    assert_eq!(
        (&*held.function, held.input.as_str(), held.id.attempt),
        ("charge", "{\"amount\":7}", 1)
    );
    assert_eq!(
        (held.delivery, held.timeout_ms),
        (DeliveryGuarantee::AtLeastOnce, None)
    );
    assert_eq!(held.promise_id(), id.child_promise(0));
    assert_eq!(
        shop.claim(1, 5_000, Duration::ZERO).await,
        [],
        "it has one worker"
    );
    assert_eq!(shop.findings().await, []);
    shop.end(&held, Ok(json("\"paid\""))).await.unwrap();
    assert_eq!(shop.outcome(id).await, Ok(json("\"paid\"")));
    let journal = shop.client.read_journal(id).await.unwrap();
    let is_start = |event: &Event| {
        matches!(
            event,
            Event::InvokeStarted {
                performer: InvokePerformer::Worker,
                attempt: 1,
                ..
            }
        )
    };
    assert_eq!(journal.iter().filter(|it| is_start(&it.event)).count(), 1);
    assert_eq!(
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
}

async fn a_worker_that_waits_is_given_a_task_at_once(shop: Shop) {
    let client = shop.client.clone();
    let claim = ClaimRequest {
        worker: "ben".into(),
        functions: vec!["charge".into()],
        max_tasks: 5,
        lease_ms: 5_000,
    };
    let waiting = tokio::spawn(async move {
        client
            .claim_tasks(&claim, Duration::from_secs(60), pending())
            .await
    });
    tokio::time::sleep(Duration::from_secs(20)).await;
    shop.start("pay", "1").await;
    let held = tokio::time::timeout(SOON, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(held.len(), 1);
}

async fn nobody_gets_what_another_has_however_many_ask_at_once(shop: Shop) {
    let id = shop.start("many", "50").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut workers = Vec::new();
    for number in 0..20_u32 {
        let client = shop.client.clone();
        workers.push(tokio::spawn(async move {
            let functions = vec!["charge".into()];
            let worker = format!("worker {number}").as_str().into();
            let claim = ClaimRequest {
                worker,
                functions,
                max_tasks: 3,
                lease_ms: 5_000,
            };
            let mut done = Vec::new();
            loop {
                let held = client
                    .claim_tasks(&claim, Duration::from_millis(100), pending())
                    .await
                    .unwrap();
                if held.is_empty() {
                    return done;
                }
                for held in held {
                    client
                        .complete_task(held.id, &held.claim_token, Ok(held.input.clone()))
                        .await
                        .unwrap();
                    done.push(held.id);
                }
            }
        }));
    }
    let mut done: Vec<AttemptId> = Vec::new();
    for worker in workers {
        done.extend(worker.await.unwrap());
    }
    done.sort_unstable();
    let all: Vec<AttemptId> = (0..50)
        .map(|number| AttemptId {
            execution: id,
            number,
            attempt: 1,
        })
        .collect();
    assert_eq!(done, all);
    assert_eq!(shop.outcome(id).await, Ok(json("50")));
}

async fn a_task_that_is_given_back_costs_no_attempt_and_goes_to_the_next(shop: Shop) {
    let id = shop.start("once", "1").await;
    let first = shop.claim_one(5_000).await;
    shop.client
        .release_task(first.id, &first.claim_token)
        .await
        .unwrap();
    assert_eq!(
        shop.client.release_task(first.id, &first.claim_token).await,
        Err(ClientError::LeaseLost)
    );
    let second = shop.claim_one(5_000).await;
    assert_eq!(second.id, first.id);
    assert_eq!(
        shop.end(&first, Ok(json("0"))).await,
        Err(ClientError::LeaseLost)
    );
    shop.end(&second, Ok(json("1"))).await.unwrap();
    assert_eq!(shop.outcome(id).await, Ok(json("1")));
}

async fn who_stops_waiting_claims_nothing(shop: Shop) {
    let claim = ClaimRequest {
        worker: "ben".into(),
        functions: vec!["charge".into()],
        max_tasks: 5,
        lease_ms: 5_000,
    };
    let gone = tokio::time::sleep(Duration::from_secs(3));
    let held = tokio::time::timeout(
        SOON * 2,
        shop.client
            .claim_tasks(&claim, Duration::from_secs(60), gone),
    )
    .await;
    assert_eq!(held.unwrap().unwrap(), []);
}

async fn a_failure_is_tried_again_unless_it_is_final(shop: Shop) {
    let id = shop.start("pay", "1").await;
    let first = shop.claim_one(5_000).await;
    shop.end(&first, Err(declined())).await.unwrap();
    let second = shop.claim_one(5_000).await;
    assert_eq!(
        (second.id.attempt, second.promise_id()),
        (2, first.promise_id())
    );
    assert_ne!(second.claim_token, first.claim_token);
    shop.end(&second, Err(declined().into_permanent()))
        .await
        .unwrap();
    assert_eq!(
        shop.outcome(id).await.unwrap_err().message,
        declined().message
    );
    let other = shop.start("pay", "1").await;
    let only = shop.claim_one(5_000).await;
    shop.end(&only, Err(declined().into_permanent()))
        .await
        .unwrap();
    assert!(shop.outcome(other).await.is_err());
    assert_eq!(
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
}

async fn a_lost_worker_is_replaced_and_what_it_says_then_is_refused(shop: Shop) {
    let id = shop.start("pay", "1").await;
    let lost = shop.claim_one(5_000).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(shop.tasks().await.len(), 1, "its time is not over");
    tokio::time::sleep(Duration::from_secs(4)).await;
    let next = shop.claim_one(5_000).await;
    assert_eq!((next.id.attempt, next.promise_id()), (2, lost.promise_id()));
    assert_eq!(
        shop.end(&lost, Ok(json("0"))).await,
        Err(ClientError::LeaseLost)
    );
    assert_eq!(
        shop.client.heartbeat_task(lost.id, &lost.claim_token).await,
        Err(ClientError::LeaseLost)
    );
    assert_eq!(
        shop.client
            .complete_task(next.id, &lost.claim_token, Ok(json("0")))
            .await,
        Err(ClientError::LeaseLost)
    );
    shop.end(&next, Ok(json("2"))).await.unwrap();
    assert_eq!(shop.outcome(id).await, Ok(json("2")));
    assert_eq!(
        shop.end(&next, Ok(json("3"))).await,
        Err(ClientError::LeaseLost),
        "it is over"
    );
    let reasons: Vec<String> = shop
        .client
        .read_journal(id)
        .await
        .unwrap()
        .iter()
        .filter_map(reason)
        .collect();
    assert_eq!(reasons, ["worker anna was not heard of for 5000 ms"]);
}

fn reason(recorded: &onward_journal::JournalEvent) -> Option<String> {
    match &recorded.event {
        Event::InvokeRetrying { error, .. } => Some(error.message.to_string()),
        _ => None,
    }
}

async fn a_sign_of_life_keeps_a_task(shop: Shop) {
    let id = shop.start("pay", "1").await;
    let held = shop.claim_one(5_000).await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(4)).await;
        let until = shop
            .client
            .heartbeat_task(held.id, &held.claim_token)
            .await
            .unwrap();
        assert_eq!(
            until,
            shop.client.store().now().await.unwrap().plus_ms(5_000)
        );
    }
    shop.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(shop.outcome(id).await, Ok(json("1")));
}

async fn what_must_not_be_repeated_is_in_doubt_when_its_worker_is_lost(shop: Shop) {
    let id = shop.start("once", "1").await;
    let held = shop.claim_one(5_000).await;
    assert_eq!(held.delivery, DeliveryGuarantee::AtMostOnce);
    let error = shop.outcome(id).await.unwrap_err();
    assert_eq!(error.kind.to_string(), "in_doubt", "{error}");
    assert_eq!(shop.claim(1, 5_000, SOON).await, []);
    assert_eq!(
        shop.end(&held, Ok(json("1"))).await,
        Err(ClientError::LeaseLost)
    );
}

async fn what_no_worker_has_claimed_waits_for_one_however_long(shop: Shop) {
    let id = shop.start("once", "1").await;
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    assert_eq!(shop.findings().await, []);
    let held = shop.claim_one(5_000).await;
    shop.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(shop.outcome(id).await, Ok(json("1")));
}

async fn an_attempt_that_takes_too_long_is_withdrawn_whether_a_worker_has_it_or_none(shop: Shop) {
    let id = shop.start("hurry", "1").await;
    let slow = shop.claim_one(60_000).await;
    assert_eq!(slow.timeout_ms, Some(10_000));
    tokio::time::sleep(Duration::from_secs(13)).await;
    assert_eq!(
        shop.client.heartbeat_task(slow.id, &slow.claim_token).await,
        Err(ClientError::LeaseLost)
    );
    let queued = shop.tasks().await;
    assert_eq!(
        queued.iter().map(|task| task.attempt).collect::<Vec<_>>(),
        [2],
        "nobody has the second"
    );
    let error = shop.outcome(id).await.unwrap_err();
    assert_eq!(error.kind, onward_journal::ErrorKind::Timeout);
    assert_eq!(
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
    assert_eq!(shop.claim(1, 5_000, Duration::ZERO).await, []);
}

async fn a_task_that_is_no_longer_wanted_is_withdrawn(shop: Shop) {
    for is_claimed in [false, true] {
        let id = shop.start("race", "1").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let held = if is_claimed {
            Some(shop.claim_one(60_000).await)
        } else {
            None
        };
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(
            (shop.tasks().await, shop.findings().await),
            (vec![], vec![])
        );
        if let Some(held) = held {
            assert_eq!(
                shop.end(&held, Ok(json("1"))).await,
                Err(ClientError::LeaseLost)
            );
        }
        shop.client
            .send_signal(id, "on".parse().unwrap(), json("1"), None)
            .await
            .unwrap();
        assert_eq!(shop.outcome(id).await, Ok(json("\"enough\"")));
    }
}

async fn a_cancelled_workflow_takes_its_tasks_back(shop: Shop) {
    let id = shop.start("clean", "1").await;
    let held = shop.claim_one(60_000).await;
    shop.client.request_cancel(id, "stop").await.unwrap();
    let refund = shop.claim_one(60_000).await;
    assert_eq!(&*refund.function, "refund");
    shop.end(&refund, Ok(json("1"))).await.unwrap();
    assert!(shop.outcome(id).await.is_err());
    assert_eq!(
        shop.client.heartbeat_task(held.id, &held.claim_token).await,
        Err(ClientError::LeaseLost)
    );
    assert_eq!(
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
}

async fn a_task_outlives_the_node_that_queued_it(mut shop: Shop) {
    let (first, second) = (shop.start("once", "1").await, shop.start("pay", "2").await);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let held = shop.claim(5, 60_000, SOON).await;
    assert_eq!(held.len(), 2);
    shop.crash().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(shop.findings().await, []);
    assert_eq!(
        shop.claim(5, 5_000, Duration::ZERO).await,
        [],
        "they have their workers"
    );
    for held in &held {
        shop.end(held, Ok(held.input.clone())).await.unwrap();
    }
    assert_eq!(
        (shop.outcome(first).await, shop.outcome(second).await),
        (Ok(json("1")), Ok(json("2")))
    );
}

async fn the_end_of_a_task_that_nobody_heard_of_is_not_lost_with_the_node(mut shop: Shop) {
    let id = shop.start("pay", "1").await;
    let held = shop.claim_one(60_000).await;
    shop.node.abort();
    shop.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(shop.findings().await, []);
    shop.crash().await;
    assert_eq!(shop.outcome(id).await, Ok(json("1")));
}

async fn others_see_and_get_nothing(shop: Shop) {
    shop.start("pay", "1").await;
    let held = shop.claim_one(60_000).await;
    shop.start("pay", "2").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let scope = Scope {
        tenant: "others".parse().unwrap(),
        ..shop.client.scope().clone()
    };
    let others = shop.client.with_scope(scope);
    let claim = ClaimRequest {
        worker: "eve".into(),
        functions: vec!["charge".into()],
        max_tasks: 5,
        lease_ms: 5_000,
    };
    assert_eq!(
        others
            .claim_tasks(&claim, Duration::ZERO, pending())
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        others.heartbeat_task(held.id, &held.claim_token).await,
        Err(ClientError::LeaseLost)
    );
    assert_eq!(
        others
            .complete_task(held.id, &held.claim_token, Ok(json("1")))
            .await,
        Err(ClientError::LeaseLost)
    );
    assert_eq!(others.list_tasks(None, 10).await.unwrap(), []);
}

async fn a_result_that_is_too_large_and_a_function_of_a_component_are_refused(shop: Shop) {
    let id = shop.start("pay", "1").await;
    let held = shop.claim_one(5_000).await;
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    assert!(matches!(
        shop.end(&held, Ok(json(&large))).await,
        Err(ClientError::PayloadTooLarge { .. })
    ));
    shop.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(shop.outcome(id).await, Ok(json("1")));
    let claim = ClaimRequest {
        worker: "anna".into(),
        functions: vec!["pay".into()],
        max_tasks: 1,
        lease_ms: 5_000,
    };
    assert_eq!(
        shop.client
            .claim_tasks(&claim, Duration::ZERO, pending())
            .await,
        Err(ClientError::FunctionDeployed("pay".to_owned()))
    );
}

async fn a_workflow_that_waits_for_a_worker_is_explained_and_needs_no_memory(shop: Shop) {
    let id = shop.start("pay", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let said = explain::explain_execution(&shop.client, id).await.unwrap();
    assert_eq!(
        said.waits.waits_for[0].target_name(),
        "charge by a worker, attempt 1 of 2"
    );
    let next = "it goes on when a worker has asked for charge and ended it; none has ever asked for such a task: \
                is the name right?";
    assert_eq!(said.next, [next]);
    shop.claim_one(5_000).await;
    let said = explain::explain_execution(&shop.client, id).await.unwrap();
    assert_eq!(
        said.waits.waits_for[0].target_name(),
        "charge by anna, attempt 1 of 2"
    );
    let next =
        "it goes on when worker anna ends charge; unless that one is heard of, it is lost in 5 s";
    assert_eq!(said.next, [next]);
    let (row, _): (onward_store::tables::ExecutionRow, u64) = shop
        .client
        .store()
        .read_record(RowKey(vec![id.to_value()]))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (&*row.state, row.wake_at),
        ("Blocked", onward_base::Timestamp::MAX)
    );
}

async fn a_task_that_waits_for_a_worker_goes_to_a_component_that_is_deployed_meanwhile(shop: Shop) {
    let id = shop.start("clean", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(shop.tasks().await.len(), 1);
    let task = FunctionInfo {
        name: "charge".to_owned(),
        kind: FunctionKind::Task,
        schema: None,
    };
    shop.client
        .deploy_component(b"tasks", &[task], &[])
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
    let journal = shop.client.read_journal(id).await.unwrap();
    let is_own = |event: &Event| {
        matches!(
            event,
            Event::InvokeStarted {
                performer: InvokePerformer::Owner,
                attempt: 2,
                ..
            }
        )
    };
    assert!(journal.iter().any(|it| is_own(&it.event)), "{journal:?}");
}

/// A component has the function from now on.
async fn deploy_charge(shop: &Shop) {
    let task = FunctionInfo {
        name: "charge".to_owned(),
        kind: FunctionKind::Task,
        schema: None,
    };
    shop.client
        .deploy_component(b"tasks", &[task], &[])
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
}

async fn what_must_not_be_repeated_is_in_doubt_when_it_takes_too_long(shop: Shop) {
    let id = shop.start("once_hurry", "1").await;
    shop.claim_one(60_000).await;
    assert_eq!(
        shop.outcome(id).await.unwrap_err().kind.to_string(),
        "in_doubt"
    );
    assert_eq!(shop.claim(1, 60_000, SOON).await, []);
}

async fn a_task_that_is_given_back_after_a_deployment_goes_to_the_component(shop: Shop) {
    let id = shop.start("pay", "1").await;
    let held = shop.claim_one(60_000).await;
    deploy_charge(&shop).await;
    shop.client
        .release_task(held.id, &held.claim_token)
        .await
        .unwrap();
    assert_eq!(
        &*shop.outcome(id).await.unwrap_err().message,
        "scripts have no tasks"
    );
    assert_eq!(
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
}

async fn a_worker_of_several_functions_goes_on_when_one_is_deployed(shop: Shop) {
    deploy_charge(&shop).await;
    assert_eq!(shop.claim(1, 5_000, Duration::ZERO).await, []);
    let only = ClaimRequest {
        worker: "anna".into(),
        functions: vec!["charge".into()],
        max_tasks: 1,
        lease_ms: 5_000,
    };
    let refused = shop
        .client
        .claim_tasks(&only, Duration::ZERO, pending())
        .await;
    assert_eq!(
        refused,
        Err(ClientError::FunctionDeployed("charge".to_owned()))
    );
}

async fn a_deployment_takes_nothing_from_workers_that_has_no_other_attempt(shop: Shop) {
    let id = shop.start("last", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    deploy_charge(&shop).await;
    let held = shop.claim_one(5_000).await;
    shop.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(shop.outcome(id).await, Ok(json("1")));
}

async fn who_asks_for_the_same_twice_gets_it_once(shop: Shop) {
    shop.start("pay", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let functions = vec!["charge".into(), "charge".into()];
    let claim = ClaimRequest {
        worker: "anna".into(),
        functions,
        max_tasks: 5,
        lease_ms: 5_000,
    };
    assert_eq!(
        shop.client
            .claim_tasks(&claim, Duration::ZERO, pending())
            .await
            .unwrap()
            .len(),
        1
    );
}

async fn tasks_of_a_lost_worker_are_taken_back_together(shop: Shop) {
    shop.start("many", "500").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut held = 0;
    while held < 500 {
        held += shop.claim(100, 5_000, SOON).await.len();
    }
    tokio::time::sleep(Duration::from_secs(8)).await;
    let left = shop.client.list_tasks(None, 1_000).await.unwrap();
    assert_eq!(left.iter().filter(|task| task.claim.is_some()).count(), 0);
}

async fn a_name_that_no_task_can_be_found_by_is_nobodys(shop: Shop) {
    let id = shop.start("long_name", "1").await;
    assert_eq!(
        shop.outcome(id).await.unwrap_err().kind.to_string(),
        "unknown_function"
    );
}

async fn tasks_that_are_missing_or_left_over_are_found(shop: Shop) {
    let id = shop.start("pay", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let store = shop.client.store();
    let (task, version): (TaskRow, u64) = store
        .list_records(TableScan::all_rows::<TaskRow>())
        .await
        .unwrap()
        .remove(0);
    store
        .commit(Commit::new().delete(&task, version))
        .await
        .unwrap();
    assert_eq!(
        shop.findings()
            .await
            .iter()
            .map(|(code, _)| *code)
            .collect::<Vec<_>>(),
        [Found::TaskMissing]
    );
    store.commit(Commit::new().insert(&task)).await.unwrap();
    assert_eq!(shop.findings().await, []);
    let held = shop.claim_one(5_000).await;
    shop.end(&held, Ok(json("1"))).await.unwrap();
    shop.outcome(id).await.unwrap();
    store.commit(Commit::new().insert(&task)).await.unwrap();
    assert_eq!(
        shop.findings()
            .await
            .iter()
            .map(|(code, _)| *code)
            .collect::<Vec<_>>(),
        [Found::TaskOrphan]
    );
}

#[test]
fn a_task_is_found_by_its_name_and_by_nothing_else() {
    let id = AttemptId {
        execution: ExecutionId::from_bytes([7; 32]),
        number: 3,
        attempt: 2,
    };
    assert_eq!(parse_task_name(&task_name(id)), Some(id));
    for wrong in [
        "",
        "1.2.3",
        &format!("{}.1", id.execution),
        &format!("{}.1.2.3", id.execution),
        "…",
    ] {
        assert_eq!(parse_task_name(wrong), None, "{wrong}");
    }
}

/// Each of them with workers that ask the process of the node, and with workers that ask another.
macro_rules! either_way {
    ($($name:ident)*) => {
        mod owner {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(super::Shop::open(super::Asked::Owner).await).await;
            })*
        }

        mod other {
            $(#[tokio::test(start_paused = true)]
            async fn $name() {
                super::$name(super::Shop::open(super::Asked::Other).await).await;
            })*
        }
    };
}

either_way! {
    a_worker_performs_a_task_and_the_journal_says_so
    a_worker_that_waits_is_given_a_task_at_once
    nobody_gets_what_another_has_however_many_ask_at_once
    a_task_that_is_given_back_costs_no_attempt_and_goes_to_the_next
    who_stops_waiting_claims_nothing
    a_failure_is_tried_again_unless_it_is_final
    a_lost_worker_is_replaced_and_what_it_says_then_is_refused
    a_sign_of_life_keeps_a_task
    what_must_not_be_repeated_is_in_doubt_when_its_worker_is_lost
    what_no_worker_has_claimed_waits_for_one_however_long
    an_attempt_that_takes_too_long_is_withdrawn_whether_a_worker_has_it_or_none
    a_task_that_is_no_longer_wanted_is_withdrawn
    a_cancelled_workflow_takes_its_tasks_back
    a_task_outlives_the_node_that_queued_it
    the_end_of_a_task_that_nobody_heard_of_is_not_lost_with_the_node
    others_see_and_get_nothing
    a_result_that_is_too_large_and_a_function_of_a_component_are_refused
    a_workflow_that_waits_for_a_worker_is_explained_and_needs_no_memory
    a_task_that_waits_for_a_worker_goes_to_a_component_that_is_deployed_meanwhile
    what_must_not_be_repeated_is_in_doubt_when_it_takes_too_long
    a_task_that_is_given_back_after_a_deployment_goes_to_the_component
    a_worker_of_several_functions_goes_on_when_one_is_deployed
    a_deployment_takes_nothing_from_workers_that_has_no_other_attempt
    who_asks_for_the_same_twice_gets_it_once
    tasks_of_a_lost_worker_are_taken_back_together
    a_name_that_no_task_can_be_found_by_is_nobodys
    tasks_that_are_missing_or_left_over_are_found
}
