//! Tasks that are withdrawn from workers: timeouts, tasks that are no longer needed, and
//! cancellation.

use std::time::Duration;

use onward_engine::client::ClientError;

use crate::script_runtime::json;
use crate::task_fixture::{SOON, TaskFixture, with_either_access};

async fn a_claimed_attempt_that_times_out_is_withdrawn(fixture: TaskFixture) {
    let id = fixture.start("hurry", "1").await;
    for attempt in 1..=2 {
        let slow = fixture.claim_one(60_000).await;
        assert_eq!((slow.id.attempt, slow.timeout_ms), (attempt, Some(10_000)));
        tokio::time::sleep(Duration::from_secs(8)).await;
        let now = fixture.client.store().now().await.unwrap();
        let until = fixture
            .client
            .heartbeat_task(slow.id, &slow.claim_token)
            .await
            .unwrap();
        assert!(
            until < now.plus_ms(2_001),
            "a heartbeat does not extend the timeout"
        );
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(
            fixture
                .client
                .heartbeat_task(slow.id, &slow.claim_token)
                .await,
            Err(ClientError::LeaseLost)
        );
    }
    let error = fixture.outcome(id).await.unwrap_err();
    assert_eq!(error.kind, onward_journal::ErrorKind::Timeout);
    assert_eq!(
        (fixture.tasks().await, fixture.findings().await),
        (vec![], vec![])
    );
    assert_eq!(fixture.claim(1, 5_000, Duration::ZERO).await, []);
}

/// The timeout begins with the claim: until then no attempt ends, and nothing is in doubt.
async fn a_queued_attempt_does_not_time_out(fixture: TaskFixture) {
    for function in ["hurry", "once_hurry"] {
        let id = fixture.start(function, "1").await;
        tokio::time::sleep(Duration::from_secs(1_000)).await;
        assert_eq!(fixture.findings().await, vec![]);
        let held = fixture.claim_one(60_000).await;
        assert_eq!(held.id.attempt, 1, "{function}");
        // A task that is released waits again, and its timeout begins anew.
        fixture
            .client
            .release_task(held.id, &held.claim_token)
            .await
            .unwrap();
        tokio::time::sleep(Duration::from_secs(100)).await;
        let held = fixture.claim_one(60_000).await;
        tokio::time::sleep(Duration::from_secs(9)).await;
        fixture.end(&held, Ok(json("7"))).await.unwrap();
        assert_eq!(fixture.outcome(id).await, Ok(json("7")), "{function}");
    }
}

async fn a_task_of_a_closed_join_set_is_withdrawn(fixture: TaskFixture) {
    for is_claimed in [false, true] {
        let id = fixture.start("race", "1").await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        let held = if is_claimed {
            Some(fixture.claim_one(60_000).await)
        } else {
            None
        };
        tokio::time::sleep(Duration::from_secs(6)).await;
        assert_eq!(
            (fixture.tasks().await, fixture.findings().await),
            (vec![], vec![])
        );
        if let Some(held) = held {
            assert_eq!(
                fixture.end(&held, Ok(json("1"))).await,
                Err(ClientError::LeaseLost)
            );
        }
        fixture
            .client
            .send_signal(id, "on".parse().unwrap(), json("1"), None)
            .await
            .unwrap();
        assert_eq!(fixture.outcome(id).await, Ok(json("\"enough\"")));
    }
}

async fn a_cancelled_workflow_withdraws_its_tasks(fixture: TaskFixture) {
    let id = fixture.start("clean", "1").await;
    let held = fixture.claim_one(60_000).await;
    fixture.client.request_cancel(id, "stop").await.unwrap();
    let refund = fixture.claim_one(60_000).await;
    assert_eq!(&*refund.function, "refund");
    fixture.end(&refund, Ok(json("1"))).await.unwrap();
    assert!(fixture.outcome(id).await.is_err());
    assert_eq!(
        fixture
            .client
            .heartbeat_task(held.id, &held.claim_token)
            .await,
        Err(ClientError::LeaseLost)
    );
    assert_eq!(
        (fixture.tasks().await, fixture.findings().await),
        (vec![], vec![])
    );
}

async fn an_at_most_once_task_that_times_out_is_in_doubt(fixture: TaskFixture) {
    let id = fixture.start("once_hurry", "1").await;
    fixture.claim_one(60_000).await;
    assert_eq!(
        fixture.outcome(id).await.unwrap_err().kind.to_string(),
        "in_doubt"
    );
    assert_eq!(fixture.claim(1, 60_000, SOON).await, []);
}

with_either_access! {
    a_claimed_attempt_that_times_out_is_withdrawn
    a_queued_attempt_does_not_time_out
    a_task_of_a_closed_join_set_is_withdrawn
    a_cancelled_workflow_withdraws_its_tasks
    an_at_most_once_task_that_times_out_is_in_doubt
}
