//! Tasks that are withdrawn from workers: timeouts, tasks that are no longer needed, and
//! cancellation.

use std::time::Duration;

use onward_engine::client::ClientError;

use crate::code::json;
use crate::task_fixture::{SOON, Shop, either_way};

async fn an_attempt_that_takes_too_long_is_withdrawn_whether_a_worker_has_it_or_none(shop: Shop) {
    let id = shop.start("hurry", "1").await;
    let slow = shop.claim_one(60_000).await;
    assert_eq!(slow.timeout_ms, Some(10_000));
    tokio::time::sleep(Duration::from_secs(13)).await;
    assert_eq!(
        shop.client.heartbeat_task(slow.id, &slow.claim_token).await,
        Err(ClientError::LeaseLost)
    );
    let queued = shop.tasks().await;
    assert_eq!(
        queued.iter().map(|task| task.attempt).collect::<Vec<_>>(),
        [2],
        "nobody has the second"
    );
    let error = shop.outcome(id).await.unwrap_err();
    assert_eq!(error.kind, onward_journal::ErrorKind::Timeout);
    assert_eq!(
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
    assert_eq!(shop.claim(1, 5_000, Duration::ZERO).await, []);
}

async fn a_task_that_is_no_longer_wanted_is_withdrawn(shop: Shop) {
    for is_claimed in [false, true] {
        let id = shop.start("race", "1").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let held = if is_claimed {
            Some(shop.claim_one(60_000).await)
        } else {
            None
        };
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(
            (shop.tasks().await, shop.findings().await),
            (vec![], vec![])
        );
        if let Some(held) = held {
            assert_eq!(
                shop.end(&held, Ok(json("1"))).await,
                Err(ClientError::LeaseLost)
            );
        }
        shop.client
            .send_signal(id, "on".parse().unwrap(), json("1"), None)
            .await
            .unwrap();
        assert_eq!(shop.outcome(id).await, Ok(json("\"enough\"")));
    }
}

async fn a_cancelled_workflow_takes_its_tasks_back(shop: Shop) {
    let id = shop.start("clean", "1").await;
    let held = shop.claim_one(60_000).await;
    shop.client.request_cancel(id, "stop").await.unwrap();
    let refund = shop.claim_one(60_000).await;
    assert_eq!(&*refund.function, "refund");
    shop.end(&refund, Ok(json("1"))).await.unwrap();
    assert!(shop.outcome(id).await.is_err());
    assert_eq!(
        shop.client.heartbeat_task(held.id, &held.claim_token).await,
        Err(ClientError::LeaseLost)
    );
    assert_eq!(
        (shop.tasks().await, shop.findings().await),
        (vec![], vec![])
    );
}

async fn what_must_not_be_repeated_is_in_doubt_when_it_takes_too_long(shop: Shop) {
    let id = shop.start("once_hurry", "1").await;
    shop.claim_one(60_000).await;
    assert_eq!(
        shop.outcome(id).await.unwrap_err().kind.to_string(),
        "in_doubt"
    );
    assert_eq!(shop.claim(1, 60_000, SOON).await, []);
}

either_way! {
    an_attempt_that_takes_too_long_is_withdrawn_whether_a_worker_has_it_or_none
    a_task_that_is_no_longer_wanted_is_withdrawn
    a_cancelled_workflow_takes_its_tasks_back
    what_must_not_be_repeated_is_in_doubt_when_it_takes_too_long
}
