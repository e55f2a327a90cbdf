//! Tasks of functions that a component implements after a deployment.

use std::future::pending;
use std::time::Duration;

use onward_engine::client::{ClientError, FunctionInfo, FunctionKind};
use onward_engine::task_queue::ClaimRequest;
use onward_journal::{Event, InvokePerformer};

use crate::code::json;
use crate::task_fixture::{Shop, either_way};

async fn a_task_that_waits_for_a_worker_goes_to_a_component_that_is_deployed_meanwhile(shop: Shop) {
    let id = shop.start("clean", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(shop.tasks().await.len(), 1);
    let task = FunctionInfo {
        name: "charge".to_owned(),
        kind: FunctionKind::Task,
        schema: None,
    };
    shop.client
        .deploy_component(b"tasks", &[task], &[])
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
    let journal = shop.client.read_journal(id).await.unwrap();
    let is_own = |event: &Event| {
        matches!(
            event,
            Event::InvokeStarted {
                performer: InvokePerformer::Owner,
                attempt: 2,
                ..
            }
        )
    };
    assert!(journal.iter().any(|it| is_own(&it.event)), "{journal:?}");
}

/// Deploys a component that implements the function.
async fn deploy_charge(shop: &Shop) {
    let task = FunctionInfo {
        name: "charge".to_owned(),
        kind: FunctionKind::Task,
        schema: None,
    };
    shop.client
        .deploy_component(b"tasks", &[task], &[])
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
}

async fn a_task_that_is_given_back_after_a_deployment_goes_to_the_component(shop: Shop) {
    let id = shop.start("pay", "1").await;
    let held = shop.claim_one(60_000).await;
    deploy_charge(&shop).await;
    shop.client
        .release_task(held.id, &held.claim_token)
        .await
        .unwrap();
    assert_eq!(
        &*shop.outcome(id).await.unwrap_err().message,
        "scripts have no tasks"
    );
    assert_eq!(
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
}

async fn a_worker_of_several_functions_goes_on_when_one_is_deployed(shop: Shop) {
    deploy_charge(&shop).await;
    assert_eq!(shop.claim(1, 5_000, Duration::ZERO).await, []);
    let only = ClaimRequest {
        worker: "anna".into(),
        functions: vec!["charge".into()],
        max_tasks: 1,
        lease_ms: 5_000,
    };
    let refused = shop
        .client
        .claim_tasks(&only, Duration::ZERO, pending())
        .await;
    assert_eq!(
        refused,
        Err(ClientError::FunctionDeployed("charge".to_owned()))
    );
}

async fn a_deployment_takes_nothing_from_workers_that_has_no_other_attempt(shop: Shop) {
    let id = shop.start("last", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    deploy_charge(&shop).await;
    let held = shop.claim_one(5_000).await;
    shop.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(shop.outcome(id).await, Ok(json("1")));
}

either_way! {
    a_task_that_waits_for_a_worker_goes_to_a_component_that_is_deployed_meanwhile
    a_task_that_is_given_back_after_a_deployment_goes_to_the_component
    a_worker_of_several_functions_goes_on_when_one_is_deployed
    a_deployment_takes_nothing_from_workers_that_has_no_other_attempt
}
