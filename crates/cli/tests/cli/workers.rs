//! The Rust client for workers passes the scenarios that every client must pass, listed in
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
use onward_worker::{Code, TaskFailure, Worker, WorkerTaskContext};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::worker_setup::{TIMEOUT, WorkerScenario, as_json, client_config, run};

fn failed<T>(code: &str, message: &str) -> Result<T, (String, String)> {
    Err((code.to_owned(), message.to_owned()))
}

#[tokio::test]
async fn a_task_succeeds() {
    let setup = WorkerScenario::start_server();
    let add = |numbers: Vec<u32>, _: WorkerTaskContext| async move {
        Ok::<u32, TaskFailure>(numbers.iter().sum())
    };
    let worker = run(setup.worker().register_task("add", add));
    assert_eq!(
        setup
            .relay(json!({"task": "add", "input": [1, 2, 3]}))
            .await,
        Ok(json!(6))
    );
    worker.stop().await;
}

#[tokio::test]
async fn input_and_result_can_be_any_json() {
    let setup = WorkerScenario::start_server();
    let worker = run(setup
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
            setup.relay(json!({"task": "repeat", "input": shape})).await,
            Ok(shape.clone())
        );
    }
    worker.stop().await;
}

#[tokio::test]
async fn a_large_value_is_passed_unchanged() {
    let setup = WorkerScenario::start_server();
    let worker = run(setup
        .worker()
        .register_task("repeat", |value: Value, _: WorkerTaskContext| async move {
            Ok::<_, TaskFailure>(value)
        }));
    let large = json!({"text": "é".repeat(250_000)});
    assert_eq!(
        setup.relay(json!({"task": "repeat", "input": large})).await,
        Ok(large)
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_non_retryable_failure_reaches_the_workflow() {
    let setup = WorkerScenario::start_server();
    let attempts = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&attempts);
    let worker =
        run(setup
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
        setup
            .relay(json!({"task": "charge", "max_attempts": 5}))
            .await,
        failed("card_declined", "the bank said no")
    );
    assert_eq!(attempts.load(Ordering::Relaxed), 1);
    worker.stop().await;
}

#[tokio::test]
async fn a_retry_has_the_same_promise_and_the_next_attempt_number() {
    let setup = WorkerScenario::start_server();
    let seen: Arc<Mutex<Vec<(u32, String, String)>>> = Arc::default();
    let observed = Arc::clone(&seen);
    let worker =
        run(setup
            .worker()
            .register_task("charge", move |_: Value, task: WorkerTaskContext| {
                observed.lock().unwrap().push((
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
    let execution = setup
        .start(
            "relay",
            json!({"task": "charge", "max_attempts": 5, "interval_ms": 20}),
        )
        .await;
    assert_eq!(setup.wait_for_result(&execution).await, Ok(json!(3)));
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
async fn an_exception_is_a_failure_with_its_type_as_the_code() {
    let setup = WorkerScenario::start_server();
    let parse = |text: String, _: WorkerTaskContext| async move { text.parse::<u8>() };
    let panic = |text: String, _: WorkerTaskContext| async move {
        if text.is_empty() {
            Ok::<_, TaskFailure>(1)
        } else {
            panic!("{text}")
        }
    };
    let worker = run(setup
        .worker()
        .register_task("parse", parse)
        .register_task("panic", panic));
    let error = failed("ParseIntError", "invalid digit found in string");
    assert_eq!(
        setup.relay(json!({"task": "parse", "input": "x"})).await,
        error
    );
    assert_eq!(
        setup.relay(json!({"task": "panic", "input": "x"})).await,
        failed("panic", "the task panicked")
    );
    assert_eq!(
        setup.relay(json!({"task": "parse", "input": "7"})).await,
        Ok(json!(7)),
        "the other task is not affected"
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_result_that_is_not_json_is_a_non_retryable_failure() {
    let setup = WorkerScenario::start_server();
    let odd = |_: Value, _: WorkerTaskContext| async {
        Ok::<_, TaskFailure>(
            [((1, 2), 3)]
                .into_iter()
                .collect::<std::collections::BTreeMap<_, _>>(),
        )
    };
    let worker = run(setup
        .worker()
        .register_task("odd", odd)
        .register_task("number", |n: u8, _: WorkerTaskContext| async move {
            Ok::<_, TaskFailure>(n)
        }));
    for call in [
        json!({"task": "odd", "max_attempts": 5}),
        json!({"task": "number", "input": "x", "max_attempts": 5}),
    ] {
        assert_eq!(setup.relay(call).await.unwrap_err().0, "invalid_payload");
    }
    worker.stop().await;
}

#[tokio::test]
async fn concurrent_tasks_do_not_exceed_the_limit() {
    let setup = WorkerScenario::start_server();
    let (active, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counted = (Arc::clone(&active), Arc::clone(&most));
    let worker = run(setup.worker().with_slots(8).register_task(
        "greet",
        move |name: String, _: WorkerTaskContext| {
            let (active, most) = counted.clone();
            async move {
                most.fetch_max(
                    active.fetch_add(1, Ordering::Relaxed) + 1,
                    Ordering::Relaxed,
                );
                tokio::time::sleep(Duration::from_millis(10)).await;
                active.fetch_sub(1, Ordering::Relaxed);
                Ok::<_, TaskFailure>(format!("hello {name}"))
            }
        },
    ));
    let names: Vec<String> = (0..200).map(|number| format!("number {number}")).collect();
    let execution = setup.start("greetings", json!(names)).await;
    let greetings: Vec<String> = names.iter().map(|name| format!("hello {name}")).collect();
    assert_eq!(
        setup.wait_for_result(&execution).await,
        Ok(json!(greetings))
    );
    let most = most.load(Ordering::Relaxed);
    assert!((2..=8).contains(&most), "{most} at a time");
    worker.stop().await;
}

#[tokio::test]
async fn heartbeats_keep_the_lease_of_a_long_task() {
    let setup = WorkerScenario::start_server();
    let slow = |_: Value, task: WorkerTaskContext| async move {
        let is_lost = tokio::time::timeout(Duration::from_secs(3), task.wait_until_lost())
            .await
            .is_ok();
        Ok::<_, TaskFailure>(json!({"attempt": task.attempt(), "lost": is_lost}))
    };
    let worker = run(setup
        .worker()
        .with_lease(Duration::from_secs(1))
        .register_task("slow", slow));
    let result = setup
        .relay(json!({"task": "slow", "max_attempts": 5}))
        .await;
    assert_eq!(result, Ok(json!({"attempt": 1, "lost": false})));
    worker.stop().await;
}

#[tokio::test]
async fn an_expired_lease_is_reassigned_and_the_late_result_rejected() {
    let setup = WorkerScenario::start_server();
    let execution = setup
        .start("relay", json!({"task": "charge", "max_attempts": 5}))
        .await;
    let functions = vec!["charge".to_owned()];
    let claim = ClaimTasksRequest {
        worker: "lost".to_owned(),
        functions,
        max: 1,
        lease_ms: 1_000,
        wait_ms: 60_000,
    };
    let lost = setup.client.claim_tasks(&claim).await.unwrap().remove(0);
    let charge = |_: Value, task: WorkerTaskContext| async move {
        Ok::<_, TaskFailure>(json!([task.attempt(), task.promise_id()]))
    };
    let worker = run(setup.worker().register_task("charge", charge));
    assert_eq!(
        setup.wait_for_result(&execution).await,
        Ok(json!([lost.attempt + 1, lost.promise]))
    );
    let (task, token) = (&lost.task, lost.token.clone());
    let error = TaskError {
        message: "late".to_owned(),
        code: None,
        retryable: true,
    };
    let late = [
        setup.client.heartbeat_task(task, &token).await.unwrap_err(),
        setup.client.release_task(task, &token).await.unwrap_err(),
        setup
            .client
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
        setup
            .client
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

type TaskFuture = Pin<Box<dyn Future<Output = Result<(), TaskFailure>> + Send>>;

/// A task that runs until its lease is lost, and notifies when it starts and when it learns that.
fn run_until_lost(
    started: &Arc<Notify>,
    lost: &Arc<Notify>,
) -> impl Fn(Value, WorkerTaskContext) -> TaskFuture + use<> {
    let both = (Arc::clone(started), Arc::clone(lost));
    move |_, task| {
        let (started, lost) = both.clone();
        Box::pin(async move {
            started.notify_one();
            task.wait_until_lost().await;
            lost.notify_one();
            Ok(())
        })
    }
}

async fn wait_for(notified: &Notify) {
    tokio::time::timeout(TIMEOUT, notified.notified())
        .await
        .expect("notified before the timeout");
}

#[tokio::test]
async fn a_cancelled_execution_cancels_its_task() {
    let setup = WorkerScenario::start_server();
    let (started, lost) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let worker = run(setup
        .worker()
        .with_lease(Duration::from_secs(1))
        .register_task("slow", run_until_lost(&started, &lost)));
    let execution = setup.start("relay", json!({"task": "slow"})).await;
    wait_for(&started).await;
    setup
        .client
        .cancel_execution(
            &execution,
            CancelExecutionRequest {
                reason: "no longer needed".to_owned(),
            },
        )
        .await
        .unwrap();
    wait_for(&lost).await;
    assert_eq!(
        setup.wait_for_result(&execution).await.unwrap_err().0,
        "cancelled"
    );
    worker.stop().await;
}

#[tokio::test]
async fn a_task_that_no_worker_has_claimed_does_not_time_out() {
    let setup = WorkerScenario::start_server();
    let call = json!({"task": "later", "timeout_ms": 100, "at_most_once": true});
    let execution = setup.start("relay", call).await;
    let ended = setup.client.get_execution_result(&execution, 1_500).await;
    assert!(!ended.unwrap().has_ended());
    let worker = run(setup
        .worker()
        .register_task("later", |_: Value, _: WorkerTaskContext| async {
            Ok::<_, TaskFailure>(json!(7))
        }));
    assert_eq!(setup.wait_for_result(&execution).await, Ok(json!(7)));
    worker.stop().await;
}

#[tokio::test]
async fn a_task_that_exceeds_its_timeout_is_cancelled() {
    let setup = WorkerScenario::start_server();
    let (started, lost) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let worker = run(setup
        .worker()
        .with_lease(Duration::from_secs(1))
        .register_task("slow", run_until_lost(&started, &lost)));
    let result = setup
        .relay(json!({"task": "slow", "timeout_ms": 500}))
        .await;
    assert_eq!(result.unwrap_err().0, "timeout");
    wait_for(&lost).await;
    worker.stop().await;
}

#[tokio::test]
async fn an_idempotency_key_starts_one_execution_and_delivers_one_signal() {
    let setup = WorkerScenario::start_server();
    let start = || StartExecutionRequest {
        function: "listen".to_owned(),
        input: as_json(&json!("go")),
        key: Some("k".to_owned()),
        wait_ms: None,
    };
    let first = setup.client.start_execution(start()).await.unwrap();
    let second = setup.client.start_execution(start()).await.unwrap();
    assert_eq!(
        (first.existed, second.existed, &first.execution),
        (false, true, &second.execution)
    );
    assert!(
        !setup
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
        setup
            .client
            .signal_execution(&first.execution, signal)
            .await
            .unwrap();
    }
    assert_eq!(
        setup.wait_for_result(&first.execution).await,
        Ok(json!({"by": "Grace"}))
    );
}

#[tokio::test]
async fn a_stopping_worker_finishes_its_tasks_in_flight() {
    let setup = WorkerScenario::start_server();
    let (started, may_end) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let shared = (Arc::clone(&started), Arc::clone(&may_end));
    let worker =
        run(setup
            .worker()
            .register_task("slow", move |_: Value, _: WorkerTaskContext| {
                let (started, may_end) = shared.clone();
                async move {
                    started.notify_one();
                    may_end.notified().await;
                    Ok::<_, TaskFailure>("done")
                }
            }));
    let execution = setup.start("relay", json!({"task": "slow"})).await;
    wait_for(&started).await;
    worker.stop.send(()).unwrap();
    let mut ending = worker.worker;
    assert!(
        tokio::time::timeout(Duration::from_secs(1), &mut ending)
            .await
            .is_err(),
        "the worker waits for its task"
    );
    may_end.notify_one();
    tokio::time::timeout(TIMEOUT, ending)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(setup.wait_for_result(&execution).await, Ok(json!("done")));
}

#[tokio::test]
async fn a_task_unfinished_after_the_grace_period_is_reassigned() {
    let setup = WorkerScenario::start_server();
    let started = Arc::new(Notify::new());
    let observed = Arc::clone(&started);
    let stopping = setup
        .worker()
        .with_lease(Duration::from_secs(1))
        .with_grace_period(Duration::from_millis(100));
    let stopping = run(
        stopping.register_task("slow", move |_: Value, _: WorkerTaskContext| {
            observed.notify_one();
            pending::<Result<(), TaskFailure>>()
        }),
    );
    let execution = setup
        .start("relay", json!({"task": "slow", "max_attempts": 5}))
        .await;
    wait_for(&started).await;
    stopping.stop().await;
    let immediate =
        |_: Value, task: WorkerTaskContext| async move { Ok::<_, TaskFailure>(task.attempt()) };
    let worker = run(setup.worker().register_task("slow", immediate));
    assert_eq!(setup.wait_for_result(&execution).await, Ok(json!(2)));
    worker.stop().await;
}

#[tokio::test]
async fn an_invalid_token_stops_the_worker_with_an_error() {
    let setup = WorkerScenario::start_server();
    let worker = Worker::new(&client_config(&setup.served, "onward_wrong")).unwrap();
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
