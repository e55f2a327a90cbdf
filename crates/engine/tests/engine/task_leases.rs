//! Leases of tasks: heartbeats, expiry, and tasks that survive the loss of a worker or a node.

use std::time::Duration;

use onward_engine::client::ClientError;
use onward_journal::{DeliveryGuarantee, Event};

use crate::code::json;
use crate::task_fixture::{SOON, Shop, either_way};

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

either_way! {
    a_lost_worker_is_replaced_and_what_it_says_then_is_refused
    a_sign_of_life_keeps_a_task
    what_must_not_be_repeated_is_in_doubt_when_its_worker_is_lost
    what_no_worker_has_claimed_waits_for_one_however_long
    a_task_outlives_the_node_that_queued_it
    the_end_of_a_task_that_nobody_heard_of_is_not_lost_with_the_node
    tasks_of_a_lost_worker_are_taken_back_together
}
