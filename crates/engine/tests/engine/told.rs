//! Nodes that tell each other of work: nobody has to wait for the next look. Time is virtual.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use onward_engine::client::{Client, shard_of};
use onward_engine::node::{Library, Native, Node, Options};
use onward_engine::work::Claim;
use onward_execution::Script;
use onward_journal::Payload;
use onward_store::Shard;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::code::{Scripts, deployed, json};

const FUNCTIONS: &[&str] = &["echo", "again", "wait", "far"];

/// So many executions have some in every shard.
const EVERYWHERE: u32 = 64;

/// Less than any look from time to time.
const AT_ONCE: Duration = Duration::from_millis(20);

fn script(function: &str, input: Payload) -> Script {
    match function {
        "echo" => Script::new(|_| async move { Ok(input) }),
        // Continues as new, once.
        "again" => Script::new(|host| async move {
            host.sleep(1_000).await?;
            if input == json("\"over\"") {
                return Ok(input);
            }
            host.continue_as_new(json("\"over\"")).await.map(|()| json("null"))
        }),
        "wait" => Script::new(|host| async move { Ok(host.signal("go", None).await?.unwrap_or(input)) }),
        "far" => Script::new(|host| async move { host.invoke("task", input).await }),
        other => panic!("{other}"),
    }
}

/// Access through one of two nodes, each of which has half of the shards.
async fn one_of_two() -> (Client, Vec<watch::Sender<bool>>) {
    let client = deployed(FUNCTIONS).await;
    let mut stops = Vec::new();
    let mut beside = client.clone();
    for name in ["one", "other"] {
        let library = Library::new(Arc::new(Scripts { functions: FUNCTIONS, script }), Native::default());
        let options = Options { name: name.into(), ..Options::default() };
        let node = Arc::new(Node::new(Arc::clone(client.store()), library.with_workers(), options));
        beside = client.clone().beside(&node);
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
    let mut shards: BTreeSet<Shard> = BTreeSet::new();
    for number in 0..EVERYWHERE {
        let (key, input) = (number.to_string(), json(&number.to_string()));
        let begun = Instant::now();
        let patience = Duration::from_secs(60);
        let (started, result) =
            client.start_and_wait("echo", input.clone(), Some(&key), tokio::time::sleep(patience)).await.unwrap();
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
        let (_, result) =
            client.start_and_wait("again", json("1"), Some(&key), tokio::time::sleep(patience)).await.unwrap();
        assert_eq!(result, Some(Ok(json("\"over\""))));
        let late = begun.elapsed() - Duration::from_secs(2);
        assert!(late < AT_ONCE, "{late:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_signal_through_any_node_is_taken_at_once() {
    let (client, _stops) = one_of_two().await;
    for number in 0..EVERYWHERE {
        let id = client.start("wait", json("null"), Some(&number.to_string())).await.unwrap().execution;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begun = Instant::now();
        let (signal, outcome) =
            tokio::join!(client.signal(id, "go".parse().unwrap(), json(&number.to_string()), None), client.outcome(id));
        signal.unwrap();
        assert_eq!(outcome.unwrap(), Ok(json(&number.to_string())));
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_at_any_node_gets_a_task_at_once() {
    let (client, _stops) = one_of_two().await;
    for number in 0..EVERYWHERE {
        let claim = Claim { worker: "anna".into(), functions: vec!["task".into()], most: 1, lease_ms: 60_000 };
        let asker = client.clone();
        let waiting = tokio::spawn(async move { asker.claim(&claim, Duration::from_secs(60), pending()).await });
        tokio::time::sleep(Duration::from_secs(1)).await;
        let begun = Instant::now();
        let id = client.start("far", json("1"), Some(&number.to_string())).await.unwrap().execution;
        let held = waiting.await.unwrap().unwrap().remove(0);
        client.end_task(held.id, &held.claim, Ok(json("2"))).await.unwrap();
        assert_eq!(client.outcome(id).await.unwrap(), Ok(json("2")));
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
    }
}
