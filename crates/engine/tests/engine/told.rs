//! Nodes that tell each other of work: nobody has to wait for the next look. Time is virtual.

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

use crate::code::{Scripts, deployed, json};

const FUNCTIONS: &[&str] = &["echo", "again", "wait", "far"];

/// So many executions have some in every shard.
const EVERYWHERE: u32 = 64;

/// Less than any look from time to time.
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

/// Access through one of two nodes, each of which has half of the shards.
async fn one_of_two() -> (EngineClient, Vec<watch::Sender<bool>>) {
    let client = deployed(FUNCTIONS).await;
    let mut stops = Vec::new();
    let mut beside = client.clone();
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
        beside = client.clone().with_local_node(&node);
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(node.run(stopped));
        stops.push(stop);
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    (beside, stops)
}

#[tokio::test(start_paused = true)]
async fn a_start_through_any_node_begins_and_its_end_is_heard_of_at_once() {
    let (client, _stops) = one_of_two().await;
    let mut shards: BTreeSet<ShardId> = BTreeSet::new();
    for number in 0..EVERYWHERE {
        let (key, input) = (number.to_string(), json(&number.to_string()));
        let begun = Instant::now();
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
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        shards.insert(shard_of(&started.execution));
    }
    assert_eq!(shards.len(), 8, "some were the other's");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_what_continues_as_new_is_heard_of_at_once() {
    let (client, _stops) = one_of_two().await;
    for number in 0..EVERYWHERE {
        let begun = Instant::now();
        let (key, patience) = (number.to_string(), Duration::from_secs(60));
        let (_, result) = client
            .start_and_wait("again", json("1"), Some(&key), tokio::time::sleep(patience))
            .await
            .unwrap();
        assert_eq!(result, Some(Ok(json("\"over\""))));
        let late = begun.elapsed() - Duration::from_secs(2);
        assert!(late < AT_ONCE, "{late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_through_any_node_is_taken_at_once() {
    let (client, _stops) = one_of_two().await;
    for number in 0..EVERYWHERE {
        let id = client
            .start_execution("wait", json("null"), Some(&number.to_string()))
            .await
            .unwrap()
            .execution;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begun = Instant::now();
        let (signal, outcome) = tokio::join!(
            client.send_signal(id, "go".parse().unwrap(), json(&number.to_string()), None),
            client.wait_for_result(id)
        );
        signal.unwrap();
        assert_eq!(outcome.unwrap(), Ok(json(&number.to_string())));
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_at_any_node_gets_a_task_at_once() {
    let (client, _stops) = one_of_two().await;
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
        let begun = Instant::now();
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
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    }
}
