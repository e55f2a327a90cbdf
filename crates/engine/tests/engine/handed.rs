//! Tasks that go to a worker with the commit that stores them, and ends that go into a journal
//! without a way through the inbox.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use onward_base::{Payload, SharedText};
use onward_engine::client::{ClientError, EngineClient};
use onward_engine::node::{FunctionRegistry, NativeTaskRegistry, Node, NodeOptions};
use onward_engine::shard::{AttemptId, ShardAction};
use onward_engine::task_matcher::{TaskMatcher, TaskWait};
use onward_engine::task_queue::{ClaimRequest, LeasedTask};
use onward_execution::ScriptedGuest;
use onward_store::tables::TaskRow;
use onward_store::{Commit, Error, RowChange, TableRecord as _};
use tokio::sync::watch;

use crate::ahead::Chain;
use crate::alone::{Alone, commits, events};
use crate::code::{Scripts, deployed_on, json};
use crate::watched::Watched;

fn claim(function: &str) -> ClaimRequest {
    ClaimRequest {
        worker: "anna".into(),
        functions: vec![function.into()],
        max_tasks: 1,
        lease_ms: 60_000,
    }
}

/// Somebody who waits for a task of the chain.
fn anna(offers: &TaskMatcher) -> TaskWait {
    let waiting = offers.register_waiter(&SharedText::from("acme|shop|prod"), &claim("task"));
    waiting.set_capacity(1);
    waiting
}

/// Hands over what is to be handed over.
fn give(actions: Vec<ShardAction>) -> usize {
    let gives = actions.into_iter().filter_map(|action| match action {
        ShardAction::DeliverTask {
            slot: seat,
            task: held,
        } => Some(seat.deliver_task(*held)),
        _ => None,
    });
    gives.map(Result::unwrap).count()
}

fn reported(actions: &[ShardAction]) -> Vec<(u32, bool)> {
    let reported = actions.iter().filter_map(|action| match action {
        ShardAction::WorkerResultSettled {
            attempt,
            is_recorded: is_taken,
        } => Some((attempt.number, *is_taken)),
        _ => None,
    });
    reported.collect()
}

/// How many tasks a commit stores, and how many it takes away.
fn tasks(commit: &Commit) -> (usize, usize) {
    let is_stored = |change: &&RowChange| matches!(change, RowChange::Insert { table, .. } if table.name == TaskRow::TABLE.name);
    let is_gone = |change: &&RowChange| matches!(change, RowChange::DeleteIfExists { table, .. } if table.name == TaskRow::TABLE.name);
    (
        commit.changes.iter().filter(is_stored).count(),
        commit.changes.iter().filter(is_gone).count(),
    )
}

#[test]
fn a_step_of_a_worker_is_one_commit() {
    let offers: Arc<TaskMatcher> = Arc::default();
    let waiting = anna(&offers);
    let (mut alone, begun) = Alone::begin_with(Chain::far(2), Arc::clone(&offers));
    let (first, commit) = commits(&begun)[0];
    assert_eq!(tasks(commit), (1, 0));
    assert_eq!(
        (give(begun), waiting.take_delivered()),
        (0, vec![]),
        "nobody has what is not durable"
    );
    assert_eq!(give(alone.committed(first)), 1);
    let held: Vec<LeasedTask> = waiting.take_delivered();

    let _waiting = anna(&offers);
    let actions = alone.reported(held[0].id);
    let (second, commit) = commits(&actions)[0];
    assert_eq!(
        tasks(commit),
        (1, 1),
        "the next is stored with the end of the last"
    );
    assert!(events(commit).iter().any(|name| name == "InvokeCompleted"));
    assert_eq!(reported(&actions), [], "it is not durable");
    let actions = alone.committed(second);
    assert_eq!((reported(&actions), give(actions)), (vec![(0, true)], 1));
}

#[test]
fn the_end_of_what_is_not_under_way_is_refused_at_once() {
    let (mut alone, begun) = Alone::begin(Chain::far(2));
    let id = AttemptId {
        execution: onward_journal::ExecutionId::from_bytes([7; 32]),
        number: 0,
        attempt: 2,
    };
    let ticket = commits(&begun)[0].0;
    alone.committed(ticket);
    let actions = alone.reported(id);
    assert_eq!(
        (reported(&actions), commits(&actions).len()),
        (vec![(0, false)], 0)
    );
}

#[test]
fn a_task_whose_commit_may_be_stored_is_taken_back() {
    for (error, is_stored) in [
        (
            Error::OutcomeUnknown("nothing was heard of it".to_owned()),
            true,
        ),
        (Error::Unavailable("it is away".to_owned()), false),
    ] {
        let offers: Arc<TaskMatcher> = Arc::default();
        let waiting = anna(&offers);
        let (mut alone, begun) = Alone::begin_with(Chain::far(1), Arc::clone(&offers));
        let actions = alone.failed(commits(&begun)[0].0, error);
        let is_taken_back = |action: &ShardAction| matches!(action, ShardAction::ReclaimTasks(claims) if claims.len() == 1);
        assert_eq!(actions.iter().any(is_taken_back), is_stored, "{actions:?}");
        assert_eq!((give(actions), waiting.take_delivered()), (0, vec![]));
    }
}

/// A chain of tasks that workers perform.
fn chain(_: &str, input: Payload) -> ScriptedGuest {
    ScriptedGuest::new(|host| async move {
        for step in 0..input.as_str().parse::<u32>().unwrap() {
            host.invoke_function("task", json(&step.to_string()))
                .await?;
        }
        Ok(json("\"over\""))
    })
}

/// A node, and access to it from its own process.
async fn node(store: &Arc<Watched>) -> (EngineClient, watch::Sender<bool>) {
    let client = deployed_on(Arc::clone(store) as Arc<_>, &["chain"]).await;
    let scripts = Scripts {
        functions: &["chain"],
        script: chain,
    };
    let library =
        FunctionRegistry::new(Arc::new(scripts), NativeTaskRegistry::default()).with_workers();
    let node = Arc::new(Node::new(
        Arc::clone(client.store()),
        library,
        NodeOptions::default(),
    ));
    let client = client.with_local_node(&node);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(node.run(stopped));
    tokio::time::sleep(Duration::from_secs(1)).await;
    (client, stop)
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_goes_on_with_what_follows_costs_one_commit_for_each_task() {
    const STEPS: u64 = 50;
    let store = Arc::new(Watched::new());
    let (client, _stop) = node(&store).await;
    let worker = client.clone();
    tokio::spawn(async move {
        loop {
            let mut next = worker
                .claim_tasks(&claim("task"), Duration::from_secs(60), pending())
                .await
                .unwrap()
                .pop();
            while let Some(held) = next {
                next = worker
                    .complete_task_and_claim_next(
                        held.id,
                        &held.claim_token,
                        Ok(json("1")),
                        &claim("task"),
                    )
                    .await
                    .unwrap();
            }
        }
    });
    tokio::time::sleep(Duration::from_millis(50)).await;
    store.counts();
    let id = client
        .start_execution("chain", json(&STEPS.to_string()), None)
        .await
        .unwrap()
        .execution;
    assert_eq!(
        client.wait_for_result(id).await.unwrap(),
        Ok(json("\"over\""))
    );
    let (_, writes) = store.counts();
    // And a few that would be there without it: leases, who asks for what.
    assert!((STEPS..STEPS + 10).contains(&writes), "{writes}");
}

#[tokio::test(start_paused = true)]
async fn a_task_that_its_worker_did_not_hear_of_goes_to_the_next_soon() {
    let store = Arc::new(Watched::new());
    let (client, _stop) = node(&store).await;
    let asker = client.clone();
    let first = tokio::spawn(async move {
        asker
            .claim_tasks(&claim("task"), Duration::from_secs(60), pending())
            .await
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    store.fall_silent();
    let started = client.start_execution("chain", json("1"), Some("k")).await;
    assert!(started.is_err(), "{started:?}");
    // Long before the lease has run out.
    let mut held = tokio::time::timeout(Duration::from_secs(5), first)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    let held = held.remove(0);
    client
        .complete_task(held.id, &held.claim_token, Ok(json("1")))
        .await
        .unwrap();
    assert_eq!(
        client.wait_for_result(held.id.execution).await.unwrap(),
        Ok(json("\"over\""))
    );
}

#[tokio::test(start_paused = true)]
async fn who_ends_what_it_does_not_hold_gets_nothing() {
    let store = Arc::new(Watched::new());
    let (client, _stop) = node(&store).await;
    client
        .start_execution("chain", json("1"), None)
        .await
        .unwrap();
    let held = client
        .claim_tasks(&claim("task"), Duration::from_secs(5), pending())
        .await
        .unwrap()
        .remove(0);
    client
        .start_execution("chain", json("1"), Some("other"))
        .await
        .unwrap();
    let refused = client
        .complete_task_and_claim_next(held.id, "guessed", Ok(json("1")), &claim("task"))
        .await;
    assert!(
        matches!(refused, Err(ClientError::LeaseLost)),
        "{refused:?}"
    );
    let waiting = client.list_tasks(None, 10).await.unwrap();
    let states: Vec<&str> = waiting.iter().map(|task| &*task.state).collect();
    assert_eq!(states, ["claimed", "queued"]);
}
