//! Claims of tasks: one worker gets each task, and a task completes, fails or is released once.

use std::future::pending;
use std::time::Duration;

use onward_base::Scope;
use onward_engine::client::ClientError;
use onward_engine::shard::AttemptId;
use onward_engine::task_queue::{ClaimRequest, parse_task_name, task_name};
use onward_journal::{DeliveryGuarantee, Event, ExecutionId, InvokePerformer};

use crate::script_runtime::json;
use crate::task_fixture::{SOON, TaskFixture, declined, with_either_access};

async fn a_worker_performs_a_task_and_the_journal_records_it(fixture: TaskFixture) {
    let id = fixture.start("pay", "{\"amount\":7}").await;
    let held = fixture.claim_one(5_000).await;
    assert_eq!(
        (&*held.function, held.input.as_str(), held.id.attempt),
        ("charge", "{\"amount\":7}", 1)
    );
    assert_eq!(
        (held.delivery, held.timeout_ms),
        (DeliveryGuarantee::AtLeastOnce, None)
    );
    assert_eq!(held.promise_id(), id.child_promise(0));
    assert_eq!(
        fixture.claim(1, 5_000, Duration::ZERO).await,
        [],
        "the task is claimed once"
    );
    assert_eq!(fixture.findings().await, []);
    fixture.end(&held, Ok(json("\"paid\""))).await.unwrap();
    assert_eq!(fixture.outcome(id).await, Ok(json("\"paid\"")));
    let journal = fixture.client.read_journal(id).await.unwrap();
    let is_start = |event: &Event| {
        matches!(
            event,
            Event::InvokeStarted {
                performer: InvokePerformer::Worker,
                attempt: 1,
                ..
            }
        )
    };
    assert_eq!(journal.iter().filter(|it| is_start(&it.event)).count(), 1);
    assert_eq!(
        (fixture.tasks().await, fixture.findings().await),
        (vec![], vec![])
    );
}

async fn a_waiting_worker_receives_a_task_at_once(fixture: TaskFixture) {
    let client = fixture.client.clone();
    let claim = ClaimRequest {
        worker: "ben".into(),
        functions: vec!["charge".into()],
        max_tasks: 5,
        lease_ms: 5_000,
    };
    let waiting = tokio::spawn(async move {
        client
            .claim_tasks(&claim, Duration::from_secs(60), pending())
            .await
    });
    tokio::time::sleep(Duration::from_secs(20)).await;
    fixture.start("pay", "1").await;
    let held = tokio::time::timeout(SOON, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(held.len(), 1);
}

async fn concurrent_claims_get_each_task_once(fixture: TaskFixture) {
    let id = fixture.start("many", "50").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut workers = Vec::new();
    for number in 0..20_u32 {
        let client = fixture.client.clone();
        workers.push(tokio::spawn(async move {
            let functions = vec!["charge".into()];
            let worker = format!("worker {number}").as_str().into();
            let claim = ClaimRequest {
                worker,
                functions,
                max_tasks: 3,
                lease_ms: 5_000,
            };
            let mut done = Vec::new();
            loop {
                let held = client
                    .claim_tasks(&claim, Duration::from_millis(100), pending())
                    .await
                    .unwrap();
                if held.is_empty() {
                    return done;
                }
                for held in held {
                    client
                        .complete_task(held.id, &held.claim_token, Ok(held.input.clone()))
                        .await
                        .unwrap();
                    done.push(held.id);
                }
            }
        }));
    }
    let mut done: Vec<AttemptId> = Vec::new();
    for worker in workers {
        done.extend(worker.await.unwrap());
    }
    done.sort_unstable();
    let all: Vec<AttemptId> = (0..50)
        .map(|number| AttemptId {
            execution: id,
            number,
            attempt: 1,
        })
        .collect();
    assert_eq!(done, all);
    assert_eq!(fixture.outcome(id).await, Ok(json("50")));
}

async fn a_released_task_keeps_its_attempt_and_goes_to_the_next_worker(fixture: TaskFixture) {
    let id = fixture.start("once", "1").await;
    let first = fixture.claim_one(5_000).await;
    fixture
        .client
        .release_task(first.id, &first.claim_token)
        .await
        .unwrap();
    assert_eq!(
        fixture
            .client
            .release_task(first.id, &first.claim_token)
            .await,
        Err(ClientError::LeaseLost)
    );
    let second = fixture.claim_one(5_000).await;
    assert_eq!(second.id, first.id);
    assert_eq!(
        fixture.end(&first, Ok(json("0"))).await,
        Err(ClientError::LeaseLost)
    );
    fixture.end(&second, Ok(json("1"))).await.unwrap();
    assert_eq!(fixture.outcome(id).await, Ok(json("1")));
}

async fn a_disconnected_worker_claims_nothing(fixture: TaskFixture) {
    let claim = ClaimRequest {
        worker: "ben".into(),
        functions: vec!["charge".into()],
        max_tasks: 5,
        lease_ms: 5_000,
    };
    let gone = tokio::time::sleep(Duration::from_secs(3));
    let held = tokio::time::timeout(
        SOON * 2,
        fixture
            .client
            .claim_tasks(&claim, Duration::from_secs(60), gone),
    )
    .await;
    assert_eq!(held.unwrap().unwrap(), []);
}

async fn a_failure_is_retried_unless_it_is_permanent(fixture: TaskFixture) {
    let id = fixture.start("pay", "1").await;
    let first = fixture.claim_one(5_000).await;
    fixture.end(&first, Err(declined())).await.unwrap();
    let second = fixture.claim_one(5_000).await;
    assert_eq!(
        (second.id.attempt, second.promise_id()),
        (2, first.promise_id())
    );
    assert_ne!(second.claim_token, first.claim_token);
    fixture
        .end(&second, Err(declined().into_permanent()))
        .await
        .unwrap();
    assert_eq!(
        fixture.outcome(id).await.unwrap_err().message,
        declined().message
    );
    let other = fixture.start("pay", "1").await;
    let only = fixture.claim_one(5_000).await;
    fixture
        .end(&only, Err(declined().into_permanent()))
        .await
        .unwrap();
    assert!(fixture.outcome(other).await.is_err());
    assert_eq!(
        (fixture.tasks().await, fixture.findings().await),
        (vec![], vec![])
    );
}

async fn clients_of_another_scope_get_no_task(fixture: TaskFixture) {
    fixture.start("pay", "1").await;
    let held = fixture.claim_one(60_000).await;
    fixture.start("pay", "2").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let scope = Scope {
        tenant: "others".parse().unwrap(),
        ..fixture.client.scope().clone()
    };
    let others = fixture.client.with_scope(scope);
    let claim = ClaimRequest {
        worker: "eve".into(),
        functions: vec!["charge".into()],
        max_tasks: 5,
        lease_ms: 5_000,
    };
    assert_eq!(
        others
            .claim_tasks(&claim, Duration::ZERO, pending())
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        others.heartbeat_task(held.id, &held.claim_token).await,
        Err(ClientError::LeaseLost)
    );
    assert_eq!(
        others
            .complete_task(held.id, &held.claim_token, Ok(json("1")))
            .await,
        Err(ClientError::LeaseLost)
    );
    assert_eq!(others.list_tasks(None, 10).await.unwrap(), []);
}

async fn a_result_that_is_too_large_and_a_function_of_a_component_are_refused(
    fixture: TaskFixture,
) {
    let id = fixture.start("pay", "1").await;
    let held = fixture.claim_one(5_000).await;
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    assert!(matches!(
        fixture.end(&held, Ok(json(&large))).await,
        Err(ClientError::PayloadTooLarge { .. })
    ));
    fixture.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(fixture.outcome(id).await, Ok(json("1")));
    let claim = ClaimRequest {
        worker: "anna".into(),
        functions: vec!["pay".into()],
        max_tasks: 1,
        lease_ms: 5_000,
    };
    assert_eq!(
        fixture
            .client
            .claim_tasks(&claim, Duration::ZERO, pending())
            .await,
        Err(ClientError::FunctionDeployed("pay".to_owned()))
    );
}

async fn a_claim_with_a_duplicate_function_gets_each_task_once(fixture: TaskFixture) {
    fixture.start("pay", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let functions = vec!["charge".into(), "charge".into()];
    let claim = ClaimRequest {
        worker: "anna".into(),
        functions,
        max_tasks: 5,
        lease_ms: 5_000,
    };
    assert_eq!(
        fixture
            .client
            .claim_tasks(&claim, Duration::ZERO, pending())
            .await
            .unwrap()
            .len(),
        1
    );
}

async fn a_function_name_over_the_limit_is_unknown(fixture: TaskFixture) {
    let id = fixture.start("long_name", "1").await;
    assert_eq!(
        fixture.outcome(id).await.unwrap_err().kind.to_string(),
        "unknown_function"
    );
}

#[test]
fn a_task_name_round_trips_and_malformed_names_are_refused() {
    let id = AttemptId {
        execution: ExecutionId::from_bytes([7; 32]),
        number: 3,
        attempt: 2,
    };
    assert_eq!(parse_task_name(&task_name(id)), Some(id));
    for wrong in [
        "",
        "1.2.3",
        &format!("{}.1", id.execution),
        &format!("{}.1.2.3", id.execution),
        "…",
    ] {
        assert_eq!(parse_task_name(wrong), None, "{wrong}");
    }
}

with_either_access! {
    a_worker_performs_a_task_and_the_journal_records_it
    a_waiting_worker_receives_a_task_at_once
    concurrent_claims_get_each_task_once
    a_released_task_keeps_its_attempt_and_goes_to_the_next_worker
    a_disconnected_worker_claims_nothing
    a_failure_is_retried_unless_it_is_permanent
    clients_of_another_scope_get_no_task
    a_result_that_is_too_large_and_a_function_of_a_component_are_refused
    a_claim_with_a_duplicate_function_gets_each_task_once
    a_function_name_over_the_limit_is_unknown
}
