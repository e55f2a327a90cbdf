//! Tasks that are withdrawn from workers: timeouts, tasks that are no longer needed, and
//! cancellation.

use std::time::Duration;

use onward_engine::client::ClientError;

use crate::script_runtime::json;
use crate::task_fixture::{SOON, TaskFixture, with_either_access};

async fn an_attempt_that_times_out_is_withdrawn_queued_or_claimed(fixture: TaskFixture) {
    let id = fixture.start("hurry", "1").await;
    let slow = fixture.claim_one(60_000).await;
    assert_eq!(slow.timeout_ms, Some(10_000));
    tokio::time::sleep(Duration::from_secs(13)).await;
    assert_eq!(
        fixture
            .client
            .heartbeat_task(slow.id, &slow.claim_token)
            .await,
        Err(ClientError::LeaseLost)
    );
    let queued = fixture.tasks().await;
    assert_eq!(
        queued.iter().map(|task| task.attempt).collect::<Vec<_>>(),
        [2],
        "the second is queued"
    );
    let error = fixture.outcome(id).await.unwrap_err();
    assert_eq!(error.kind, onward_journal::ErrorKind::Timeout);
    assert_eq!(
        (fixture.tasks().await, fixture.findings().await),
        (vec![], vec![])
    );
    assert_eq!(fixture.claim(1, 5_000, Duration::ZERO).await, []);
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
    an_attempt_that_times_out_is_withdrawn_queued_or_claimed
    a_task_of_a_closed_join_set_is_withdrawn
    a_cancelled_workflow_withdraws_its_tasks
    an_at_most_once_task_that_times_out_is_in_doubt
}
