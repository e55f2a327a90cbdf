//! Tasks that are claimed by the commit that stores them, and results that go into the journal
//! without passing through the inbox.

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
use onward_store::tables::{TaskRow, WorkerTaskState};
use onward_store::{Commit, Error, RowChange, TableRecord as _};
use tokio::sync::watch;

use crate::ahead::Chain;
use crate::core_harness::{CoreHarness, commits, events};
use crate::observed_store::ObservedStore;
use crate::script_runtime::{Scripts, deployed_on, json};

fn claim(function: &str) -> ClaimRequest {
    ClaimRequest {
        worker: "anna".into(),
        functions: vec![function.into()],
        max_tasks: 1,
        lease_ms: 60_000,
    }
}

/// Registers a worker that waits for a task of the chain.
fn register_worker(matcher: &TaskMatcher) -> TaskWait {
    let waiting = matcher.register_waiter(&SharedText::from("acme|shop|prod"), &claim("task"));
    waiting.set_capacity(1);
    waiting
}

/// Delivers the tasks among actions. Returns how many there were.
fn deliver_tasks(actions: Vec<ShardAction>) -> usize {
    let gives = actions.into_iter().filter_map(|action| match action {
        ShardAction::DeliverTask { slot, task: held } => Some(slot.deliver_task(*held)),
        _ => None,
    });
    gives.map(Result::unwrap).count()
}

fn reported(actions: &[ShardAction]) -> Vec<(u32, bool)> {
    let reported = actions.iter().filter_map(|action| match action {
        ShardAction::WorkerResultSettled {
            attempt,
            is_recorded: is_accepted,
        } => Some((attempt.number, *is_accepted)),
        _ => None,
    });
    reported.collect()
}

/// Number of tasks that a commit stores, and number that it deletes.
fn tasks(commit: &Commit) -> (usize, usize) {
    let is_stored = |change: &&RowChange| matches!(change, RowChange::Insert { table, .. } if table.name == TaskRow::TABLE.name);
    let is_deleted = |change: &&RowChange| matches!(change, RowChange::DeleteIfExists { table, .. } if table.name == TaskRow::TABLE.name);
    (
        commit.changes.iter().filter(is_stored).count(),
        commit.changes.iter().filter(is_deleted).count(),
    )
}

#[test]
fn a_step_of_a_worker_is_one_commit() {
    let matcher: Arc<TaskMatcher> = Arc::default();
    let waiting = register_worker(&matcher);
    let (mut core, started) = CoreHarness::begin_with(Chain::far(2), Arc::clone(&matcher));
    let (first, commit) = commits(&started)[0];
    assert_eq!(tasks(commit), (1, 0));
    assert_eq!(
        (deliver_tasks(started), waiting.take_delivered()),
        (0, vec![]),
        "a task is not delivered before it is durable"
    );
    assert_eq!(deliver_tasks(core.committed(first)), 1);
    let held: Vec<LeasedTask> = waiting.take_delivered();

    let _waiting = register_worker(&matcher);
    let actions = core.reported(held[0].id);
    let (second, commit) = commits(&actions)[0];
    assert_eq!(
        tasks(commit),
        (1, 1),
        "one commit ends a task and stores the next"
    );
    assert!(events(commit).iter().any(|name| name == "InvokeCompleted"));
    assert_eq!(reported(&actions), [], "the result is not durable yet");
    let actions = core.committed(second);
    assert_eq!(
        (reported(&actions), deliver_tasks(actions)),
        (vec![(0, true)], 1)
    );
}

#[test]
fn a_result_of_an_attempt_not_in_flight_is_refused_at_once() {
    let (mut core, started) = CoreHarness::begin(Chain::far(2));
    let id = AttemptId {
        execution: onward_journal::ExecutionId::from_bytes([7; 32]),
        number: 0,
        attempt: 2,
    };
    let ticket = commits(&started)[0].0;
    core.committed(ticket);
    let actions = core.reported(id);
    assert_eq!(
        (reported(&actions), commits(&actions).len()),
        (vec![(0, false)], 0)
    );
}

#[test]
fn a_task_whose_commit_has_an_unknown_outcome_is_reclaimed() {
    for (error, is_stored) in [
        (Error::OutcomeUnknown("no answer".to_owned()), true),
        (
            Error::Unavailable("unavailable by the test".to_owned()),
            false,
        ),
    ] {
        let matcher: Arc<TaskMatcher> = Arc::default();
        let waiting = register_worker(&matcher);
        let (mut core, started) = CoreHarness::begin_with(Chain::far(1), Arc::clone(&matcher));
        let actions = core.failed(commits(&started)[0].0, error);
        let is_taken_back = |action: &ShardAction| matches!(action, ShardAction::ReclaimTasks(claims) if claims.len() == 1);
        assert_eq!(actions.iter().any(is_taken_back), is_stored, "{actions:?}");
        assert_eq!(
            (deliver_tasks(actions), waiting.take_delivered()),
            (0, vec![])
        );
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

/// A node, and a client in its process.
async fn node(store: &Arc<ObservedStore>) -> (EngineClient, watch::Sender<bool>) {
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
async fn complete_and_claim_next_needs_one_commit_per_task() {
    const STEPS: u64 = 50;
    let store = Arc::new(ObservedStore::new());
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
    // And a few for leases and worker registrations.
    assert!((STEPS..STEPS + 10).contains(&writes), "{writes}");
}

#[tokio::test(start_paused = true)]
async fn an_undelivered_task_goes_to_the_next_worker_soon() {
    let store = Arc::new(ObservedStore::new());
    let (client, _stop) = node(&store).await;
    let asker = client.clone();
    let first = tokio::spawn(async move {
        asker
            .claim_tasks(&claim("task"), Duration::from_secs(60), pending())
            .await
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    store.lose_next_answer();
    let started = client.start_execution("chain", json("1"), Some("k")).await;
    assert!(started.is_err(), "{started:?}");
    // Long before the lease expires.
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
async fn a_result_without_a_valid_claim_gets_no_next_task() {
    let store = Arc::new(ObservedStore::new());
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
    let states: Vec<WorkerTaskState> = waiting.iter().map(|task| task.state).collect();
    assert_eq!(states, [WorkerTaskState::Claimed, WorkerTaskState::Queued]);
}
