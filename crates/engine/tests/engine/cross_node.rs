//! Nodes notify each other of work, so that none waits for the next poll. Time is virtual.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use onward_base::Payload;
use onward_engine::client::{EngineClient, shard_of};
use onward_engine::node::{FunctionRegistry, NativeTaskRegistry, Node, NodeOptions};
use onward_engine::task_queue::ClaimRequest;
use onward_execution::ScriptedGuest;
use onward_store::ShardId;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::script_runtime::{Scripts, deployed, json};

const FUNCTIONS: &[&str] = &["echo", "again", "wait", "far"];

/// Number of executions that puts at least one into every shard.
const EVERYWHERE: u32 = 64;

/// Less than any poll interval.
const AT_ONCE: Duration = Duration::from_millis(20);

fn script(function: &str, input: Payload) -> ScriptedGuest {
    match function {
        "echo" => ScriptedGuest::new(|_| async move { Ok(input) }),
        // Continues as new, once.
        "again" => ScriptedGuest::new(|host| async move {
            host.sleep(1_000).await?;
            if input == json("\"over\"") {
                return Ok(input);
            }
            host.continue_as_new(json("\"over\""))
                .await
                .map(|()| json("null"))
        }),
        "wait" => ScriptedGuest::new(|host| async move {
            Ok(host.await_signal("go", None).await?.unwrap_or(input))
        }),
        "far" => {
            ScriptedGuest::new(|host| async move { host.invoke_function("task", input).await })
        }
        other => panic!("{other}"),
    }
}

/// Opens two nodes, each with half of the shards, and returns a client of one of them.
async fn open_two_nodes() -> (EngineClient, Vec<watch::Sender<bool>>) {
    let client = deployed(FUNCTIONS).await;
    let mut stops = Vec::new();
    let mut local_client = client.clone();
    for name in ["one", "other"] {
        let library = FunctionRegistry::new(
            Arc::new(Scripts {
                functions: FUNCTIONS,
                script,
            }),
            NativeTaskRegistry::default(),
        );
        let options = NodeOptions {
            name: name.into(),
            ..NodeOptions::default()
        };
        let node = Arc::new(Node::new(
            Arc::clone(client.store()),
            library.with_workers(),
            options,
        ));
        local_client = client.clone().with_local_node(&node);
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(node.run(stopped));
        stops.push(stop);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    (local_client, stops)
}

#[tokio::test(start_paused = true)]
async fn a_start_through_any_node_runs_and_its_end_is_reported_at_once() {
    let (client, _stops) = open_two_nodes().await;
    let mut shards: BTreeSet<ShardId> = BTreeSet::new();
    for number in 0..EVERYWHERE {
        let (key, input) = (number.to_string(), json(&number.to_string()));
        let began_at = Instant::now();
        let patience = Duration::from_secs(60);
        let (started, result) = client
            .start_and_wait(
                "echo",
                input.clone(),
                Some(&key),
                tokio::time::sleep(patience),
            )
            .await
            .unwrap();
        assert_eq!(result, Some(Ok(input)));
        assert!(began_at.elapsed() < AT_ONCE, "{:?}", began_at.elapsed());
        shards.insert(shard_of(&started.execution));
    }
    assert_eq!(shards.len(), 8, "both nodes owned some");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_successor_is_reported_at_once() {
    let (client, _stops) = open_two_nodes().await;
    for number in 0..EVERYWHERE {
        let began_at = Instant::now();
        let (key, patience) = (number.to_string(), Duration::from_secs(60));
        let (_, result) = client
            .start_and_wait("again", json("1"), Some(&key), tokio::time::sleep(patience))
            .await
            .unwrap();
        assert_eq!(result, Some(Ok(json("\"over\""))));
        let late = began_at.elapsed() - Duration::from_secs(2);
        assert!(late < AT_ONCE, "{late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_through_any_node_is_consumed_at_once() {
    let (client, _stops) = open_two_nodes().await;
    for number in 0..EVERYWHERE {
        let id = client
            .start_execution("wait", json("null"), Some(&number.to_string()))
            .await
            .unwrap()
            .execution;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began_at = Instant::now();
        let (signal, outcome) = tokio::join!(
            client.send_signal(id, "go".parse().unwrap(), json(&number.to_string()), None),
            client.wait_for_result(id)
        );
        signal.unwrap();
        assert_eq!(outcome.unwrap(), Ok(json(&number.to_string())));
        assert!(began_at.elapsed() < AT_ONCE, "{:?}", began_at.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_at_any_node_gets_a_task_at_once() {
    let (client, _stops) = open_two_nodes().await;
    for number in 0..EVERYWHERE {
        let claim = ClaimRequest {
            worker: "anna".into(),
            functions: vec!["task".into()],
            max_tasks: 1,
            lease_ms: 60_000,
        };
        let asker = client.clone();
        let waiting = tokio::spawn(async move {
            asker
                .claim_tasks(&claim, Duration::from_secs(60), pending())
                .await
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began_at = Instant::now();
        let id = client
            .start_execution("far", json("1"), Some(&number.to_string()))
            .await
            .unwrap()
            .execution;
        let held = waiting.await.unwrap().unwrap().remove(0);
        client
            .complete_task(held.id, &held.claim_token, Ok(json("2")))
            .await
            .unwrap();
        assert_eq!(client.wait_for_result(id).await.unwrap(), Ok(json("2")));
        assert!(began_at.elapsed() < AT_ONCE, "{:?}", began_at.elapsed());
    }
}
