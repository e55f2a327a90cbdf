//! The engine as a library: workflows in WASM, tasks in Rust, inside another program.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onward_embed::{
    Engine, EngineBuilder, EngineClient, EngineError, ErrorKind, ExecutionError, ExecutionId,
    NativeTaskContext, Payload, WasmComponentRuntime,
};
use onward_journal::{Event, ExecutionState};
use onward_store::Store;
use onward_store_postgres::PostgresStore;
use onward_testing::{ClusterDurability, PostgresCluster};
use onward_wasm::{Config, HttpConfig};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::world::{built, cache, scope};

/// Longer than any test should take.
const LEASE: Duration = Duration::from_secs(3_600);

/// Far longer than any step of a test.
const HANGS: Duration = Duration::from_secs(20);

fn builder(folder: &Path) -> EngineBuilder {
    let url = format!("sqlite:{}", folder.join("store.db").display());
    Engine::builder(&url)
        .with_cache_folder(Some(cache()))
        .with_lease(LEASE)
}

async fn deployed(builder: EngineBuilder) -> Engine {
    let engine = builder.open().await.unwrap();
    engine
        .deploy_component(&built("journals.wasm"), &[])
        .await
        .unwrap();
    engine
}

/// Runs a workflow that calls a task of this process.
async fn start(engine: &Engine, task: &str, input: Value) -> ExecutionId {
    engine
        .start_execution(
            "call_native",
            &json!({"function": task, "input": input}),
            None,
        )
        .await
        .unwrap()
        .execution
}

async fn call(
    engine: &Engine,
    task: &str,
    input: Value,
) -> (ExecutionId, Result<Value, ExecutionError>) {
    let id = start(engine, task, input).await;
    match tokio::time::timeout(HANGS, engine.wait_for_output(id)).await {
        Ok(ended) => (id, ended.unwrap()),
        Err(_) => panic!("{task} never ends"),
    }
}

async fn attempts(engine: &Engine, id: ExecutionId) -> usize {
    let events = engine.client().read_journal(id).await.unwrap();
    events
        .iter()
        .filter(|it| matches!(it.event, Event::InvokeStarted { .. }))
        .count()
}

fn kind(text: &str) -> ErrorKind {
    text.parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_workflow_calls_a_function_of_the_process() {
    let folder = tempfile::tempdir().unwrap();
    let calls = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&calls);
    let engine = deployed(builder(folder.path()).with_task(
        "double",
        move |n: u64, call: NativeTaskContext| {
            noted.lock().unwrap().push((
                call.execution_id(),
                call.idempotency_key(),
                call.attempt_number(),
            ));
            async move {
                if call.attempt_number() < 3 {
                    Err(ExecutionError::from_kind_name("busy", "not yet"))
                } else {
                    Ok(2 * n)
                }
            }
        },
    ));
    let engine = engine.await;
    let (id, result) = call(&engine, "double", json!(21)).await;
    assert_eq!(result, Ok(json!(42)));
    let key = id.child_promise(0).to_string();
    let expected: Vec<_> = (1..=3).map(|attempt| (id, key.clone(), attempt)).collect();
    assert_eq!(
        *calls.lock().unwrap(),
        expected,
        "the key is the same for every attempt"
    );
    let wrong: Result<Result<String, _>, _> = engine.wait_for_output(id).await;
    assert!(
        matches!(
            wrong,
            Err(EngineError::InvalidValue {
                what: "the result",
                ..
            })
        ),
        "{wrong:?}"
    );
    engine.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_payload_is_not_retried() {
    let folder = tempfile::tempdir().unwrap();
    let engine = builder(folder.path())
        .with_task(
            "double",
            |n: u64, _: NativeTaskContext| async move { Ok(2 * n) },
        )
        .with_task("map", |(): (), _: NativeTaskContext| async move {
            Ok(BTreeMap::from([((1, 2), 3)]))
        });
    let engine = deployed(engine).await;
    for (task, input, expected) in [
        ("double", json!("many"), "input"),
        ("map", json!(null), "result"),
    ] {
        let (id, result) = call(&engine, task, input).await;
        let error = result.unwrap_err();
        assert_eq!(error.kind, kind(expected), "{error}");
        assert_eq!(attempts(&engine, id).await, 1, "{task}");
    }
    engine.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_retried_unless_it_is_permanent() {
    let folder = tempfile::tempdir().unwrap();
    let refuse = |is_permanent: bool, _: NativeTaskContext| async move {
        let error = ExecutionError::from_kind_name("card_declined", "no");
        Err::<(), _>(if is_permanent {
            error.into_permanent()
        } else {
            error
        })
    };
    let engine = deployed(builder(folder.path()).with_task("refuse", refuse)).await;
    for (is_permanent, expected) in [(true, 1), (false, 3)] {
        let (id, result) = call(&engine, "refuse", json!(is_permanent)).await;
        assert_eq!(result.unwrap_err().kind, kind("card_declined"));
        assert_eq!(attempts(&engine, id).await, expected);
    }
    engine.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_function_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let engine = deployed(builder(folder.path())).await;
    let (_, result) = call(&engine, "nobody_has_this", json!(1)).await;
    assert_eq!(result.unwrap_err().kind, kind("unknown_function"));
    engine.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_in_a_task_affects_only_its_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let engine = builder(folder.path())
        .with_task(
            "broken",
            |message: String, _: NativeTaskContext| async move {
                if message.is_empty() {
                    Ok(1)
                } else {
                    panic!("{message}")
                }
            },
        )
        .with_task(
            "double",
            |n: u64, _: NativeTaskContext| async move { Ok(2 * n) },
        );
    let engine = deployed(engine).await;
    let (_, result) = call(&engine, "broken", json!("this task is broken")).await;
    let error = result.unwrap_err();
    assert!(error.message.contains("this task is broken"), "{error}");
    assert_eq!(
        call(&engine, "broken", json!("")).await.1,
        Ok(json!(1)),
        "the task continues"
    );
    assert_eq!(
        call(&engine, "double", json!(2)).await.1,
        Ok(json!(4)),
        "and so do the others"
    );
    engine.stop().await.unwrap();
}

/// Waiting for the lease would take an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_engine_hands_over_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let first = deployed(builder(folder.path())).await;
    let waits = first
        .start_execution("waiter", &json!({"timeout_ms": null}), Some("one"))
        .await
        .unwrap()
        .execution;
    while first.client().read_journal(waits).await.unwrap().len() < 2 {
        tokio::task::yield_now().await;
    }
    first.stop().await.unwrap();
    let second = builder(folder.path()).open().await.unwrap();
    let again = second
        .start_execution("waiter", &json!({"timeout_ms": null}), Some("one"))
        .await
        .unwrap();
    assert_eq!((again.execution, again.already_existed), (waits, true));
    second.send_signal(waits, "go", &"now", None).await.unwrap();
    let ended: Result<Value, _> = tokio::time::timeout(HANGS, second.wait_for_output(waits))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(ended, Ok(json!("now")));
    second.stop().await.unwrap();
}

/// Also when the first one was consumed long ago: a sender without an answer cannot know.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_under_a_key_is_delivered_once() {
    let folder = tempfile::tempdir().unwrap();
    let engine = deployed(builder(folder.path())).await;
    let id = engine
        .start_execution("saga", &"seat", None)
        .await
        .unwrap()
        .execution;
    let delivered = async |name: &str| {
        let events = engine.client().read_journal(id).await.unwrap();
        events
            .iter()
            .filter(|it| matches!(&it.event, Event::SignalDelivered { signal_name, .. } if **signal_name == *name))
            .count()
    };
    for last in ["first", "second"] {
        engine
            .send_signal(id, "noise", &1, Some("key"))
            .await
            .unwrap();
        engine.send_signal(id, last, &1, Some(last)).await.unwrap();
        while delivered(last).await == 0 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(delivered("noise").await, 1);
    engine.stop().await.unwrap();
}

/// Work that holds a connection must continue while other work waits for one. The executions exist
/// before the engine starts, so that it loads all of them at once.
#[tokio::test(flavor = "multi_thread")]
async fn few_connections_are_enough() {
    let cluster = PostgresCluster::start_with_durability(ClusterDurability::Unsynced).unwrap();
    let few = onward_store_postgres::Options {
        readers: 1,
        ..Default::default()
    };
    let store: Arc<dyn Store> = Arc::new(
        PostgresStore::open(&cluster.create_database().unwrap(), few)
            .await
            .unwrap(),
    );
    let builder = || Engine::on_store(Arc::clone(&store)).with_cache_folder(Some(cache()));
    deployed(builder()).await.stop().await.unwrap();
    let client = EngineClient::new(Arc::clone(&store), scope());
    let mut started = Vec::new();
    for _ in 0..24 {
        let load = Payload::from_value(&json!({"steps": 3})).unwrap();
        started.push(
            client
                .start_execution("chain", load, None)
                .await
                .unwrap()
                .execution,
        );
    }
    let engine = builder().open().await.unwrap();
    let run = async {
        for id in started {
            assert_eq!(engine.wait_for_output::<u32>(id).await.unwrap(), Ok(3));
        }
    };
    tokio::time::timeout(HANGS, run)
        .await
        .expect("no wait blocks another");
    engine.stop().await.unwrap();
}

/// Each process has its own folder in the cache while it runs. A folder that disappears during a
/// scan must not fail the scanning process.
#[test]
fn a_cache_is_shared_by_processes_that_start_and_stop() {
    let folder = tempfile::tempdir().unwrap();
    let is_over = AtomicBool::new(false);
    let come_and_go = || {
        while !is_over.load(Ordering::SeqCst) {
            let stage = || {
                tempfile::Builder::new()
                    .prefix("stage-")
                    .tempdir_in(folder.path())
                    .unwrap()
            };
            let stages: Vec<TempDir> = std::iter::repeat_with(stage).take(100).collect();
            drop(stages);
        }
    };
    let opened: Vec<_> = std::thread::scope(|scope| {
        (0..2).for_each(|_| drop(scope.spawn(come_and_go)));
        let config = || Config {
            cache_folder: Some(folder.path().to_owned()),
            ..Config::default()
        };
        let opened = (0..20)
            .map(|_| WasmComponentRuntime::new(config(), HttpConfig::default()).err())
            .collect();
        is_over.store(true, Ordering::SeqCst);
        opened
    });
    assert!(opened.iter().all(Option::is_none), "{opened:?}");
}

/// Waits until an execution waits for something.
async fn wait_until_blocked(engine: &Engine, id: ExecutionId) {
    let blocked = async {
        while engine
            .client()
            .find_execution(id)
            .await
            .unwrap()
            .is_none_or(|row| row.state != ExecutionState::Blocked)
        {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANGS, blocked).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn evicted_code_is_loaded_again_when_needed() {
    let folder = tempfile::tempdir().unwrap();
    let engine = deployed(builder(folder.path()).with_components_in_memory(1)).await;
    let id = engine
        .start_execution("saga", &"trip", None)
        .await
        .unwrap()
        .execution;
    wait_until_blocked(&engine, id).await;
    engine
        .deploy_component_replacing(&built("orders.wasm"), &[])
        .await
        .unwrap();
    engine.request_cancel(id, "enough").await.unwrap();
    let ended = tokio::time::timeout(HANGS, engine.wait_for_result(id))
        .await
        .expect("it never ends")
        .unwrap();
    assert_eq!(ended.unwrap_err().kind, ErrorKind::Cancelled);
    assert_eq!(
        attempts(&engine, id).await,
        2,
        "each of its two tasks was performed at the first attempt"
    );
    engine.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_deployments_all_succeed() {
    let folder = tempfile::tempdir().unwrap();
    let first = Arc::new(builder(folder.path()).open().await.unwrap());
    let second = Arc::new(builder(folder.path()).open().await.unwrap());
    let mut deploying = tokio::task::JoinSet::new();
    for (place, engine) in [&first, &second].into_iter().cycle().take(10).enumerate() {
        let (engine, code) = (
            Arc::clone(engine),
            built(if place % 3 == 0 {
                "orders.wasm"
            } else {
                "journals.wasm"
            }),
        );
        deploying.spawn(async move {
            engine
                .deploy_component_replacing(&code, &[format!("host-{place}.example")])
                .await
        });
    }
    while let Some(deployed) = deploying.join_next().await {
        deployed.unwrap().unwrap();
    }
    let started = second
        .start_execution("chain", &json!({"steps": 1}), None)
        .await
        .unwrap();
    assert_eq!(
        second.wait_for_output(started.execution).await.unwrap(),
        Ok(1)
    );
}
