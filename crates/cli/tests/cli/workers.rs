//! What every client for workers has to show, by the one in Rust: the list is
//! examples/workers/scenarios.txt.

use std::collections::BTreeSet;
use std::future::pending;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_api::OnwardApi as _;
use onward_api::execution::{
    CancelExecutionRequest, SignalExecutionRequest, StartExecutionRequest,
};
use onward_api::task::{ClaimTasksRequest, CompleteTaskRequest, FailTaskRequest, TaskError};
use onward_worker::{ApiClient, ClientConfig, Code, TaskFailure, Worker, WorkerTaskContext};
use serde_json::{Value, json};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

use crate::clients::Served;

/// Nothing takes longer.
const LIMIT: Duration = Duration::from_secs(60);

/// A server, and somebody who may do everything.
struct Shop {
    served: Served,
    client: ApiClient,
}

/// A worker that goes on beside the test.
struct Running {
    stop: oneshot::Sender<()>,
    worker: JoinHandle<Result<(), onward_worker::Problem>>,
}

impl Running {
    async fn stop(self) {
        let was_there = self.stop.send(()).is_ok();
        tokio::time::timeout(LIMIT, self.worker)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(was_there, "it had stopped by itself");
    }
}

fn run(worker: Worker) -> Running {
    let (stop, stopped) = oneshot::channel();
    let worker = worker.with_poll_wait(Duration::from_millis(500));
    Running {
        stop,
        worker: tokio::spawn(worker.run(async { drop(stopped.await) })),
    }
}

impl Shop {
    fn open() -> Self {
        let served = Served::new();
        let client = ApiClient::new(&access(&served, &served.admin)).unwrap();
        Self { served, client }
    }

    fn worker(&self) -> Worker {
        Worker::new(&access(&self.served, &self.served.worker))
            .unwrap()
            .with_name("a test")
            .with_slots(4)
    }

    async fn start(&self, function: &str, input: Value) -> String {
        let start = StartExecutionRequest {
            function: function.to_owned(),
            input: as_json(&input),
            key: None,
            wait_ms: None,
        };
        self.client.start_execution(start).await.unwrap().execution
    }

    /// Has a task done by whoever does it; what it is called with, and how, in one.
    async fn relay(&self, errand: Value) -> Result<Value, (String, String)> {
        let execution = self.start("relay", errand).await;
        self.result(&execution).await
    }

    async fn result(&self, execution: &str) -> Result<Value, (String, String)> {
        let outcome = self
            .client
            .get_execution_result(execution, 60_000)
            .await
            .unwrap();
        match (outcome.result, outcome.error) {
            (Some(result), None) => Ok(serde_json::from_str(result.as_str()).unwrap()),
            (None, Some(error)) => Err((error.kind, error.message)),
            other => panic!("{other:?}"),
        }
    }
}

fn access(served: &Served, token: &str) -> ClientConfig {
    ClientConfig {
        url: served.server.url(),
        token: Some(token.to_owned()),
        scope: None,
    }
}

fn as_json(value: &Value) -> onward_api::RawJson {
    onward_api::RawJson::parse(&value.to_string()).unwrap()
}

fn failed<T>(code: &str, message: &str) -> Result<T, (String, String)> {
    Err((code.to_owned(), message.to_owned()))
}

#[tokio::test]
async fn a_task_succeeds() {
    let shop = Shop::open();
    let add = |numbers: Vec<u32>, _: WorkerTaskContext| async move {
        Ok::<u32, TaskFailure>(numbers.iter().sum())
    };
    let worker = run(shop.worker().register_task("add", add));
    assert_eq!(
        shop.relay(json!({"task": "add", "input": [1, 2, 3]})).await,
        Ok(json!(6))
    );
    worker.stop().await;
}

#[tokio::test]
async fn input_and_result_can_be_any_json() {
    let shop = Shop::open();
    let worker = run(shop
        .worker()
        .register_task("repeat", |value: Value, _: WorkerTaskContext| async move {
            Ok::<_, TaskFailure>(value)
        }));
    let deep =
        json!({"null": null, "deep": {"a": {"b": [{"c": null}]}}, "": {"é": [1, "2", false]}});
    let odd = json!("ünïcödé, 日本語, 🎈, \u{0}, \" and \\, \n");
    for shape in [
        json!(null),
        json!(true),
        json!(-1),
        json!(9_007_199_254_740_991_i64),
        json!(0.1),
        json!(""),
        odd,
        deep,
    ] {
        assert_eq!(
            shop.relay(json!({"task": "repeat", "input": shape})).await,
            Ok(shape.clone())
        );
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_large_value_goes_through() {
    let shop = Shop::open();
    let worker = run(shop
        .worker()
        .register_task("repeat", |value: Value, _: WorkerTaskContext| async move {
            Ok::<_, TaskFailure>(value)
        }));
    let large = json!({"text": "é".repeat(250_000)});
    assert_eq!(
        shop.relay(json!({"task": "repeat", "input": large})).await,
        Ok(large)
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_final_failure_reaches_the_workflow() {
    let shop = Shop::open();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let worker =
        run(shop
            .worker()
            .register_task("charge", move |_: Value, _: WorkerTaskContext| {
                counted.fetch_add(1, Ordering::Relaxed);
                async {
                    Err::<(), _>(
                        TaskFailure::with_code("card_declined", "the bank said no").non_retryable(),
                    )
                }
            }));
    assert_eq!(
        shop.relay(json!({"task": "charge", "attempts": 5})).await,
        failed("card_declined", "the bank said no")
    );
    assert_eq!(attempts.load(Ordering::Relaxed), 1);
    worker.stop().await;
}

#[tokio::test]
async fn a_retried_failure_is_the_same_call_at_the_next_attempt() {
    let shop = Shop::open();
    let seen: Arc<Mutex<Vec<(u32, String, String)>>> = Arc::default();
    let noted = Arc::clone(&seen);
    let worker =
        run(shop
            .worker()
            .register_task("charge", move |_: Value, task: WorkerTaskContext| {
                noted.lock().unwrap().push((
                    task.attempt(),
                    task.promise_id().to_owned(),
                    task.execution_id().to_owned(),
                ));
                async move {
                    if task.attempt() < 3 {
                        Err(TaskFailure::with_code("busy", "the bank is busy"))
                    } else {
                        Ok(task.attempt())
                    }
                }
            }));
    let execution = shop
        .start(
            "relay",
            json!({"task": "charge", "attempts": 5, "wait_ms": 20}),
        )
        .await;
    assert_eq!(shop.result(&execution).await, Ok(json!(3)));
    let seen = seen.lock().unwrap().clone();
    assert_eq!(
        seen.iter()
            .map(|(attempt, ..)| *attempt)
            .collect::<Vec<_>>(),
        [1, 2, 3]
    );
    assert_eq!(
        seen.iter()
            .map(|(_, promise, _)| promise)
            .collect::<BTreeSet<_>>()
            .len(),
        1
    );
    assert!(seen.iter().all(|(.., of)| *of == execution));
    worker.stop().await;
}

#[tokio::test]
async fn an_exception_is_a_failure_of_its_type() {
    let shop = Shop::open();
    let parse = |text: String, _: WorkerTaskContext| async move { text.parse::<u8>() };
    let panic = |text: String, _: WorkerTaskContext| async move {
        if text.is_empty() {
            Ok::<_, TaskFailure>(1)
        } else {
            panic!("{text}")
        }
    };
    let worker = run(shop
        .worker()
        .register_task("parse", parse)
        .register_task("panic", panic));
    let error = failed("ParseIntError", "invalid digit found in string");
    assert_eq!(
        shop.relay(json!({"task": "parse", "input": "x"})).await,
        error
    );
    assert_eq!(
        shop.relay(json!({"task": "panic", "input": "x"})).await,
        failed("panic", "the task panicked")
    );
    assert_eq!(
        shop.relay(json!({"task": "parse", "input": "7"})).await,
        Ok(json!(7)),
        "nobody else notices"
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_result_that_is_not_json_is_a_final_failure() {
    let shop = Shop::open();
    let odd = |_: Value, _: WorkerTaskContext| async {
        Ok::<_, TaskFailure>(
            [((1, 2), 3)]
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>(),
        )
    };
    let worker = run(shop
        .worker()
        .register_task("odd", odd)
        .register_task("number", |n: u8, _: WorkerTaskContext| async move {
            Ok::<_, TaskFailure>(n)
        }));
    for errand in [
        json!({"task": "odd", "attempts": 5}),
        json!({"task": "number", "input": "x", "attempts": 5}),
    ] {
        assert_eq!(shop.relay(errand).await.unwrap_err().0, "invalid_payload");
    }
    worker.stop().await;
}

#[tokio::test]
async fn many_tasks_share_a_few_slots() {
    let shop = Shop::open();
    let (busy, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (Arc::clone(&busy), Arc::clone(&most));
    let worker = run(shop.worker().with_slots(8).register_task(
        "greet",
        move |name: String, _: WorkerTaskContext| {
            let (busy, most) = counted.clone();
            async move {
                most.fetch_max(busy.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(10)).await;
                busy.fetch_sub(1, Ordering::Relaxed);
                Ok::<_, TaskFailure>(format!("hello {name}"))
            }
        },
    ));
    let names: Vec<String> = (0..200).map(|number| format!("number {number}")).collect();
    let execution = shop.start("greetings", json!(names)).await;
    let greetings: Vec<String> = names.iter().map(|name| format!("hello {name}")).collect();
    assert_eq!(shop.result(&execution).await, Ok(json!(greetings)));
    let most = most.load(Ordering::Relaxed);
    assert!((2..=8).contains(&most), "{most} at a time");
    worker.stop().await;
}

#[tokio::test]
async fn a_long_task_keeps_its_lease() {
    let shop = Shop::open();
    let slow = |_: Value, task: WorkerTaskContext| async move {
        let is_lost = tokio::time::timeout(Duration::from_secs(3), task.wait_until_lost())
            .await
            .is_ok();
        Ok::<_, TaskFailure>(json!({"attempt": task.attempt(), "lost": is_lost}))
    };
    let worker = run(shop
        .worker()
        .with_lease(Duration::from_secs(1))
        .register_task("slow", slow));
    let result = shop.relay(json!({"task": "slow", "attempts": 5})).await;
    assert_eq!(result, Ok(json!({"attempt": 1, "lost": false})));
    worker.stop().await;
}

#[tokio::test]
async fn a_lost_worker_is_replaced_and_its_result_refused() {
    let shop = Shop::open();
    let execution = shop
        .start("relay", json!({"task": "charge", "attempts": 5}))
        .await;
    let functions = vec!["charge".to_owned()];
    let claim = ClaimTasksRequest {
        worker: "lost".to_owned(),
        functions,
        max: 1,
        lease_ms: 1_000,
        wait_ms: 60_000,
    };
    let lost = shop.client.claim_tasks(&claim).await.unwrap().remove(0);
    let charge = |_: Value, task: WorkerTaskContext| async move {
        Ok::<_, TaskFailure>(json!([task.attempt(), task.promise_id()]))
    };
    let worker = run(shop.worker().register_task("charge", charge));
    assert_eq!(
        shop.result(&execution).await,
        Ok(json!([lost.attempt + 1, lost.promise]))
    );
    let (task, token) = (&lost.task, lost.token.clone());
    let error = TaskError {
        message: "late".to_owned(),
        code: None,
        retryable: true,
    };
    let late = [
        shop.client.heartbeat_task(task, &token).await.unwrap_err(),
        shop.client.release_task(task, &token).await.unwrap_err(),
        shop.client
            .complete_task(
                task,
                &CompleteTaskRequest {
                    token: token.clone(),
                    result: as_json(&json!(1)),
                    next: None,
                },
            )
            .await
            .unwrap_err(),
        shop.client
            .fail_task(
                task,
                &FailTaskRequest {
                    token,
                    error,
                    next: None,
                },
            )
            .await
            .unwrap_err(),
    ];
    assert!(
        late.iter()
            .all(|problem| (problem.status, problem.code) == (409, Code::LeaseLost)),
        "{late:?}"
    );
    worker.stop().await;
}

type Told = Pin<Box<dyn Future<Output = Result<(), TaskFailure>> + Send>>;

/// A task that ends when it is told that it is lost, and says when it begins and when it is told.
fn until_lost(
    begun: &Arc<Notify>,
    told: &Arc<Notify>,
) -> impl Fn(Value, WorkerTaskContext) -> Told + use<> {
    let both = (Arc::clone(begun), Arc::clone(told));
    move |_, task| {
        let (begun, told) = both.clone();
        Box::pin(async move {
            begun.notify_one();
            task.wait_until_lost().await;
            told.notify_one();
            Ok(())
        })
    }
}

async fn soon(notified: &Notify) {
    tokio::time::timeout(LIMIT, notified.notified())
        .await
        .expect("it happens soon");
}

#[tokio::test]
async fn a_cancelled_execution_stops_its_task() {
    let shop = Shop::open();
    let (begun, told) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let worker = run(shop
        .worker()
        .with_lease(Duration::from_secs(1))
        .register_task("slow", until_lost(&begun, &told)));
    let execution = shop.start("relay", json!({"task": "slow"})).await;
    soon(&begun).await;
    shop.client
        .cancel_execution(
            &execution,
            CancelExecutionRequest {
                reason: "nobody wants it".to_owned(),
            },
        )
        .await
        .unwrap();
    soon(&told).await;
    assert_eq!(shop.result(&execution).await.unwrap_err().0, "cancelled");
    worker.stop().await;
}

#[tokio::test]
async fn a_task_that_takes_too_long_is_told_to_stop() {
    let shop = Shop::open();
    let (begun, told) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let worker = run(shop
        .worker()
        .with_lease(Duration::from_secs(1))
        .register_task("slow", until_lost(&begun, &told)));
    let result = shop.relay(json!({"task": "slow", "timeout_ms": 500})).await;
    assert_eq!(result.unwrap_err().0, "timeout");
    soon(&told).await;
    worker.stop().await;
}

#[tokio::test]
async fn a_key_starts_one_execution_and_a_signal_reaches_it() {
    let shop = Shop::open();
    let start = || StartExecutionRequest {
        function: "listen".to_owned(),
        input: as_json(&json!("go")),
        key: Some("k".to_owned()),
        wait_ms: None,
    };
    let first = shop.client.start_execution(start()).await.unwrap();
    let second = shop.client.start_execution(start()).await.unwrap();
    assert_eq!(
        (first.existed, second.existed, &first.execution),
        (false, true, &second.execution)
    );
    assert!(
        !shop
            .client
            .get_execution_result(&first.execution, 200)
            .await
            .unwrap()
            .has_ended()
    );
    for _ in 0..2 {
        let payload = as_json(&json!({"by": "Grace"}));
        let signal = SignalExecutionRequest {
            name: "go".to_owned(),
            payload,
            key: Some("once".to_owned()),
        };
        shop.client
            .signal_execution(&first.execution, signal)
            .await
            .unwrap();
    }
    assert_eq!(
        shop.result(&first.execution).await,
        Ok(json!({"by": "Grace"}))
    );
}

#[tokio::test]
async fn a_stopping_worker_finishes_what_it_has() {
    let shop = Shop::open();
    let (begun, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let shared = (Arc::clone(&begun), Arc::clone(&may_end));
    let worker = run(shop
        .worker()
        .register_task("slow", move |_: Value, _: WorkerTaskContext| {
            let (begun, may_end) = shared.clone();
            async move {
                begun.notify_one();
                may_end.notified().await;
                Ok::<_, TaskFailure>("done")
            }
        }));
    let execution = shop.start("relay", json!({"task": "slow"})).await;
    soon(&begun).await;
    worker.stop.send(()).unwrap();
    let mut ending = worker.worker;
    assert!(
        tokio::time::timeout(Duration::from_secs(1), &mut ending)
            .await
            .is_err(),
        "it has something to finish"
    );
    may_end.notify_one();
    tokio::time::timeout(LIMIT, ending)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(shop.result(&execution).await, Ok(json!("done")));
}

#[tokio::test]
async fn a_worker_out_of_patience_leaves_its_task_to_others() {
    let shop = Shop::open();
    let begun = Arc::new(Notify::new());
    let noted = Arc::clone(&begun);
    let hasty = shop
        .worker()
        .with_lease(Duration::from_secs(1))
        .with_grace_period(Duration::from_millis(100));
    let hasty = run(
        hasty.register_task("slow", move |_: Value, _: WorkerTaskContext| {
            noted.notify_one();
            pending::<Result<(), TaskFailure>>()
        }),
    );
    let execution = shop
        .start("relay", json!({"task": "slow", "attempts": 5}))
        .await;
    soon(&begun).await;
    hasty.stop().await;
    let patient =
        |_: Value, task: WorkerTaskContext| async move { Ok::<_, TaskFailure>(task.attempt()) };
    let worker = run(shop.worker().register_task("slow", patient));
    assert_eq!(shop.result(&execution).await, Ok(json!(2)));
    worker.stop().await;
}

#[tokio::test]
async fn a_worker_with_a_wrong_token_says_so() {
    let shop = Shop::open();
    let worker = Worker::new(&access(&shop.served, "onward_wrong")).unwrap();
    let worker = worker.register_task("nothing", |_: Value, _: WorkerTaskContext| async {
        Ok::<_, TaskFailure>(())
    });
    let problem = worker.run(pending()).await.unwrap_err();
    assert_eq!((problem.status, problem.code), (401, Code::Unauthenticated));
}

#[test]
fn every_scenario_has_a_test() {
    let list = include_str!("../../../../examples/workers/scenarios.txt");
    let here = include_str!("workers.rs");
    for scenario in list.lines() {
        assert!(
            here.contains(&format!("async fn {}() {{", scenario.replace(' ', "_"))),
            "{scenario}"
        );
    }
}
