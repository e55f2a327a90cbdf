//! Tasks of functions that a component implements after a deployment.

use std::future::pending;
use std::time::Duration;

use onward_engine::client::{ClientError, TakeoverPolicy};
use onward_engine::task_queue::ClaimRequest;
use onward_execution::{GuestFunction, GuestFunctionKind};
use onward_journal::{Event, InvokePerformer};

use crate::script_runtime::json;
use crate::task_fixture::{TaskFixture, with_either_access};

async fn a_queued_task_is_redirected_to_a_component_deployed_later(fixture: TaskFixture) {
    let id = fixture.start("clean", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(fixture.tasks().await.len(), 1);
    let task = GuestFunction {
        name: "charge".parse().unwrap(),
        kind: GuestFunctionKind::Task,
        schema: None,
    };
    fixture
        .client
        .deploy_component(b"tasks", &[task], &[], TakeoverPolicy::Refuse)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(
        (fixture.tasks().await, fixture.findings().await),
        (vec![], vec![])
    );
    let journal = fixture.client.read_journal(id).await.unwrap();
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
async fn deploy_charge(fixture: &TaskFixture) {
    let task = GuestFunction {
        name: "charge".parse().unwrap(),
        kind: GuestFunctionKind::Task,
        schema: None,
    };
    fixture
        .client
        .deploy_component(b"tasks", &[task], &[], TakeoverPolicy::Refuse)
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
}

async fn a_task_released_after_a_deployment_is_redirected_to_the_component(fixture: TaskFixture) {
    let id = fixture.start("pay", "1").await;
    let held = fixture.claim_one(60_000).await;
    deploy_charge(&fixture).await;
    fixture
        .client
        .release_task(held.id, &held.claim_token)
        .await
        .unwrap();
    assert_eq!(
        &*fixture.outcome(id).await.unwrap_err().message,
        "scripts have no tasks"
    );
    assert_eq!(
        (fixture.tasks().await, fixture.findings().await),
        (vec![], vec![])
    );
}

async fn a_worker_of_several_functions_continues_when_one_is_deployed(fixture: TaskFixture) {
    deploy_charge(&fixture).await;
    assert_eq!(fixture.claim(1, 5_000, Duration::ZERO).await, []);
    let only = ClaimRequest {
        worker: "anna".into(),
        functions: vec!["charge".into()],
        max_tasks: 1,
        lease_ms: 5_000,
    };
    let refused = fixture
        .client
        .claim_tasks(&only, Duration::ZERO, pending())
        .await;
    assert_eq!(
        refused,
        Err(ClientError::FunctionDeployed("charge".to_owned()))
    );
}

async fn a_queued_last_attempt_is_not_redirected(fixture: TaskFixture) {
    let id = fixture.start("last", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    deploy_charge(&fixture).await;
    let held = fixture.claim_one(5_000).await;
    fixture.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(fixture.outcome(id).await, Ok(json("1")));
}

with_either_access! {
    a_queued_task_is_redirected_to_a_component_deployed_later
    a_task_released_after_a_deployment_is_redirected_to_the_component
    a_worker_of_several_functions_continues_when_one_is_deployed
    a_queued_last_attempt_is_not_redirected
}
