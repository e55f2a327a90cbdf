//! Limits of the signals that an execution has not consumed, and filters of lists.

use std::time::Duration;

use onward_engine::client::{ClientError, ExecutionFilter, ExecutionListOrder};
use onward_journal::ExecutionState;

use crate::script_runtime::json;
use crate::task_fixture::{TaskFixture, WorkerAccess};

#[tokio::test(start_paused = true)]
async fn signals_that_nobody_consumes_are_refused_above_a_limit() {
    let fixture = TaskFixture::open(WorkerAccess::Owner).await;
    let id = fixture.start("pay", "1").await;
    let payload = json(&format!("\"{}\"", "x".repeat(1_000_000)));
    let mut accepted = 0;
    let error = loop {
        let name = "ignored".parse().unwrap();
        match fixture
            .client
            .send_signal(id, name, payload.clone(), None)
            .await
        {
            Ok(()) => accepted += 1,
            Err(error) => break error,
        }
        assert!(accepted < 100);
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert!(matches!(error, ClientError::SignalsFull { .. }), "{error}");
    assert_eq!(accepted, 68, "64 MiB, rounded up to signals");
    // Other executions are not affected, and this one goes on.
    let other = fixture.start("pay", "2").await;
    let name = "ignored".parse().unwrap();
    fixture
        .client
        .send_signal(other, name, json("1"), None)
        .await
        .unwrap();
    let held = fixture.claim_one(60_000).await;
    fixture.end(&held, Ok(json("3"))).await.unwrap();
    assert_eq!(fixture.outcome(held.id.execution).await, Ok(json("3")));
}

#[tokio::test(start_paused = true)]
async fn lists_merge_the_states_of_a_function_in_order_of_creation() {
    let fixture = TaskFixture::open(WorkerAccess::Owner).await;
    let mut started = Vec::new();
    for _ in 0..4 {
        started.push(fixture.start("pay", "1").await);
        fixture.start("once", "1").await;
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    fixture
        .client
        .request_cancel(started[1], "stop")
        .await
        .unwrap();
    assert!(fixture.outcome(started[1]).await.is_err());
    let list = async |state, order, after, limit| {
        let filter = ExecutionFilter {
            function: Some("pay".into()),
            state,
        };
        let rows = fixture
            .client
            .list_executions(&filter, order, after, limit)
            .await
            .unwrap();
        rows.iter()
            .map(|row| (row.created_at, row.execution_id))
            .collect::<Vec<_>>()
    };
    let ids = |rows: &[(onward_base::Timestamp, onward_journal::ExecutionId)]| {
        rows.iter().map(|(_, id)| *id).collect::<Vec<_>>()
    };
    let oldest = ExecutionListOrder::OldestFirst;
    let first = list(None, oldest, None, 2).await;
    assert_eq!(ids(&first), started[..2]);
    let rest = list(None, oldest, first.last().copied(), 9).await;
    assert_eq!(ids(&rest), started[2..]);
    let newest = list(None, ExecutionListOrder::NewestFirst, None, 9).await;
    assert_eq!(
        ids(&newest),
        started.iter().rev().copied().collect::<Vec<_>>()
    );
    let cancelled = list(Some(ExecutionState::Cancelled), oldest, None, 9).await;
    assert_eq!(ids(&cancelled), [started[1]]);
}
