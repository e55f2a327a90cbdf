//! Leases of tasks: heartbeats, expiry, and tasks that survive the loss of a worker or a node.

use std::time::Duration;

use onward_engine::client::ClientError;
use onward_journal::{DeliveryGuarantee, Event};

use crate::script_runtime::json;
use crate::task_fixture::{SOON, TaskFixture, with_either_access};

async fn a_lost_worker_is_replaced_and_its_late_result_is_refused(fixture: TaskFixture) {
    let id = fixture.start("pay", "1").await;
    let lost = fixture.claim_one(5_000).await;
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(fixture.tasks().await.len(), 1, "its lease is valid");
    tokio::time::sleep(Duration::from_secs(4)).await;
    let next = fixture.claim_one(5_000).await;
    assert_eq!((next.id.attempt, next.promise_id()), (2, lost.promise_id()));
    assert_eq!(
        fixture.end(&lost, Ok(json("0"))).await,
        Err(ClientError::LeaseLost)
    );
    assert_eq!(
        fixture
            .client
            .heartbeat_task(lost.id, &lost.claim_token)
            .await,
        Err(ClientError::LeaseLost)
    );
    assert_eq!(
        fixture
            .client
            .complete_task(next.id, &lost.claim_token, Ok(json("0")))
            .await,
        Err(ClientError::LeaseLost)
    );
    fixture.end(&next, Ok(json("2"))).await.unwrap();
    assert_eq!(fixture.outcome(id).await, Ok(json("2")));
    assert_eq!(
        fixture.end(&next, Ok(json("3"))).await,
        Err(ClientError::LeaseLost),
        "the execution has ended"
    );
    let reasons: Vec<String> = fixture
        .client
        .read_journal(id)
        .await
        .unwrap()
        .iter()
        .filter_map(reason)
        .collect();
    assert_eq!(reasons, ["worker anna sent no heartbeat for 5000 ms"]);
}

fn reason(recorded: &onward_journal::JournalEvent) -> Option<String> {
    match &recorded.event {
        Event::InvokeRetrying { error, .. } => Some(error.message.to_string()),
        _ => None,
    }
}

async fn a_heartbeat_keeps_a_task(fixture: TaskFixture) {
    let id = fixture.start("pay", "1").await;
    let held = fixture.claim_one(5_000).await;
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_secs(4)).await;
        let until = fixture
            .client
            .heartbeat_task(held.id, &held.claim_token)
            .await
            .unwrap();
        assert_eq!(
            until,
            fixture.client.store().now().await.unwrap().plus_ms(5_000)
        );
    }
    fixture.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(fixture.outcome(id).await, Ok(json("1")));
}

async fn an_at_most_once_task_is_in_doubt_when_its_lease_expires(fixture: TaskFixture) {
    let id = fixture.start("once", "1").await;
    let held = fixture.claim_one(5_000).await;
    assert_eq!(held.delivery, DeliveryGuarantee::AtMostOnce);
    let error = fixture.outcome(id).await.unwrap_err();
    assert_eq!(error.kind.to_string(), "in_doubt", "{error}");
    assert_eq!(fixture.claim(1, 5_000, SOON).await, []);
    assert_eq!(
        fixture.end(&held, Ok(json("1"))).await,
        Err(ClientError::LeaseLost)
    );
}

async fn an_unclaimed_task_stays_queued(fixture: TaskFixture) {
    let id = fixture.start("once", "1").await;
    tokio::time::sleep(Duration::from_secs(1_000)).await;
    assert_eq!(fixture.findings().await, []);
    let held = fixture.claim_one(5_000).await;
    fixture.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(fixture.outcome(id).await, Ok(json("1")));
}

async fn a_task_outlives_the_node_that_queued_it(mut fixture: TaskFixture) {
    let (first, second) = (
        fixture.start("once", "1").await,
        fixture.start("pay", "2").await,
    );
    tokio::time::sleep(Duration::from_secs(1)).await;
    let held = fixture.claim(5, 60_000, SOON).await;
    assert_eq!(held.len(), 2);
    fixture.crash().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(fixture.findings().await, []);
    assert_eq!(
        fixture.claim(5, 5_000, Duration::ZERO).await,
        [],
        "all are claimed"
    );
    for held in &held {
        fixture.end(held, Ok(held.input.clone())).await.unwrap();
    }
    assert_eq!(
        (fixture.outcome(first).await, fixture.outcome(second).await),
        (Ok(json("1")), Ok(json("2")))
    );
}

async fn an_unprocessed_result_survives_the_loss_of_the_node(mut fixture: TaskFixture) {
    let id = fixture.start("pay", "1").await;
    let held = fixture.claim_one(60_000).await;
    fixture.node.abort();
    fixture.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(fixture.findings().await, []);
    fixture.crash().await;
    assert_eq!(fixture.outcome(id).await, Ok(json("1")));
}

async fn all_tasks_of_a_lost_worker_expire_together(fixture: TaskFixture) {
    fixture.start("many", "500").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut held = 0;
    while held < 500 {
        held += fixture.claim(100, 5_000, SOON).await.len();
    }
    tokio::time::sleep(Duration::from_secs(8)).await;
    let left = fixture.client.list_tasks(None, 1_000).await.unwrap();
    assert_eq!(left.iter().filter(|task| task.claim.is_some()).count(), 0);
}

with_either_access! {
    a_lost_worker_is_replaced_and_its_late_result_is_refused
    a_heartbeat_keeps_a_task
    an_at_most_once_task_is_in_doubt_when_its_lease_expires
    an_unclaimed_task_stays_queued
    a_task_outlives_the_node_that_queued_it
    an_unprocessed_result_survives_the_loss_of_the_node
    all_tasks_of_a_lost_worker_expire_together
}
