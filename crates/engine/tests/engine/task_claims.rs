//! Claims of tasks: one worker gets each task, and a task completes, fails or is released once.

use std::future::pending;
use std::time::Duration;

use onward_base::Scope;
use onward_engine::client::ClientError;
use onward_engine::shard::AttemptId;
use onward_engine::task_queue::{ClaimRequest, parse_task_name, task_name};
use onward_journal::{DeliveryGuarantee, Event, ExecutionId, InvokePerformer};

use crate::code::json;
use crate::task_fixture::{SOON, Shop, declined, either_way};

async fn a_worker_performs_a_task_and_the_journal_says_so(shop: Shop) {
    let id = shop.start("pay", "{\"amount\":7}").await;
    let held = shop.claim_one(5_000).await;
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
        shop.claim(1, 5_000, Duration::ZERO).await,
        [],
        "it has one worker"
    );
    assert_eq!(shop.findings().await, []);
    shop.end(&held, Ok(json("\"paid\""))).await.unwrap();
    assert_eq!(shop.outcome(id).await, Ok(json("\"paid\"")));
    let journal = shop.client.read_journal(id).await.unwrap();
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
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
}

async fn a_worker_that_waits_is_given_a_task_at_once(shop: Shop) {
    let client = shop.client.clone();
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
    shop.start("pay", "1").await;
    let held = tokio::time::timeout(SOON, waiting)
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(held.len(), 1);
}

async fn nobody_gets_what_another_has_however_many_ask_at_once(shop: Shop) {
    let id = shop.start("many", "50").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let mut workers = Vec::new();
    for number in 0..20_u32 {
        let client = shop.client.clone();
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
    assert_eq!(shop.outcome(id).await, Ok(json("50")));
}

async fn a_task_that_is_given_back_costs_no_attempt_and_goes_to_the_next(shop: Shop) {
    let id = shop.start("once", "1").await;
    let first = shop.claim_one(5_000).await;
    shop.client
        .release_task(first.id, &first.claim_token)
        .await
        .unwrap();
    assert_eq!(
        shop.client.release_task(first.id, &first.claim_token).await,
        Err(ClientError::LeaseLost)
    );
    let second = shop.claim_one(5_000).await;
    assert_eq!(second.id, first.id);
    assert_eq!(
        shop.end(&first, Ok(json("0"))).await,
        Err(ClientError::LeaseLost)
    );
    shop.end(&second, Ok(json("1"))).await.unwrap();
    assert_eq!(shop.outcome(id).await, Ok(json("1")));
}

async fn who_stops_waiting_claims_nothing(shop: Shop) {
    let claim = ClaimRequest {
        worker: "ben".into(),
        functions: vec!["charge".into()],
        max_tasks: 5,
        lease_ms: 5_000,
    };
    let gone = tokio::time::sleep(Duration::from_secs(3));
    let held = tokio::time::timeout(
        SOON * 2,
        shop.client
            .claim_tasks(&claim, Duration::from_secs(60), gone),
    )
    .await;
    assert_eq!(held.unwrap().unwrap(), []);
}

async fn a_failure_is_tried_again_unless_it_is_final(shop: Shop) {
    let id = shop.start("pay", "1").await;
    let first = shop.claim_one(5_000).await;
    shop.end(&first, Err(declined())).await.unwrap();
    let second = shop.claim_one(5_000).await;
    assert_eq!(
        (second.id.attempt, second.promise_id()),
        (2, first.promise_id())
    );
    assert_ne!(second.claim_token, first.claim_token);
    shop.end(&second, Err(declined().into_permanent()))
        .await
        .unwrap();
    assert_eq!(
        shop.outcome(id).await.unwrap_err().message,
        declined().message
    );
    let other = shop.start("pay", "1").await;
    let only = shop.claim_one(5_000).await;
    shop.end(&only, Err(declined().into_permanent()))
        .await
        .unwrap();
    assert!(shop.outcome(other).await.is_err());
    assert_eq!(
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
}

async fn others_see_and_get_nothing(shop: Shop) {
    shop.start("pay", "1").await;
    let held = shop.claim_one(60_000).await;
    shop.start("pay", "2").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let scope = Scope {
        tenant: "others".parse().unwrap(),
        ..shop.client.scope().clone()
    };
    let others = shop.client.with_scope(scope);
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

async fn a_result_that_is_too_large_and_a_function_of_a_component_are_refused(shop: Shop) {
    let id = shop.start("pay", "1").await;
    let held = shop.claim_one(5_000).await;
    let large = format!("\"{}\"", "x".repeat(1 << 20));
    assert!(matches!(
        shop.end(&held, Ok(json(&large))).await,
        Err(ClientError::PayloadTooLarge { .. })
    ));
    shop.end(&held, Ok(json("1"))).await.unwrap();
    assert_eq!(shop.outcome(id).await, Ok(json("1")));
    let claim = ClaimRequest {
        worker: "anna".into(),
        functions: vec!["pay".into()],
        max_tasks: 1,
        lease_ms: 5_000,
    };
    assert_eq!(
        shop.client
            .claim_tasks(&claim, Duration::ZERO, pending())
            .await,
        Err(ClientError::FunctionDeployed("pay".to_owned()))
    );
}

async fn who_asks_for_the_same_twice_gets_it_once(shop: Shop) {
    shop.start("pay", "1").await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let functions = vec!["charge".into(), "charge".into()];
    let claim = ClaimRequest {
        worker: "anna".into(),
        functions,
        max_tasks: 5,
        lease_ms: 5_000,
    };
    assert_eq!(
        shop.client
            .claim_tasks(&claim, Duration::ZERO, pending())
            .await
            .unwrap()
            .len(),
        1
    );
}

async fn a_name_that_no_task_can_be_found_by_is_nobodys(shop: Shop) {
    let id = shop.start("long_name", "1").await;
    assert_eq!(
        shop.outcome(id).await.unwrap_err().kind.to_string(),
        "unknown_function"
    );
}

#[test]
fn a_task_is_found_by_its_name_and_by_nothing_else() {
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

either_way! {
    a_worker_performs_a_task_and_the_journal_says_so
    a_worker_that_waits_is_given_a_task_at_once
    nobody_gets_what_another_has_however_many_ask_at_once
    a_task_that_is_given_back_costs_no_attempt_and_goes_to_the_next
    who_stops_waiting_claims_nothing
    a_failure_is_tried_again_unless_it_is_final
    others_see_and_get_nothing
    a_result_that_is_too_large_and_a_function_of_a_component_are_refused
    who_asks_for_the_same_twice_gets_it_once
    a_name_that_no_task_can_be_found_by_is_nobodys
}
