//! `why` explains every kind of wait.

use std::time::Duration;

use onward_api::explanation::{ExecutionOutcomeView, ExecutionOwner};
use onward_api::waits::WaitTarget;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_store::tables::{AlertCode, AlertRow, AlertSeverity};
use onward_store::{Commit, SerialId};
use serde_json::Value;

use crate::script_runtime::json;
use crate::workflow_fixture::WorkflowFixture;

fn short(id: ExecutionId) -> String {
    id.to_string()[..12].to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_signal_names_the_command_that_sends_it() {
    let fixture = WorkflowFixture::new().await;
    let _node = fixture.node();
    let id = fixture.start("approve", "1").await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    let explained = fixture.explain(id).await;
    assert_eq!(explained.state, "Blocked");
    let [waiting] = &explained.waits.waits_for[..] else {
        panic!("{explained:?}")
    };
    assert_eq!(
        waiting.target,
        WaitTarget::Signal {
            name: "approval".to_owned(),
            deadline: None
        }
    );
    assert_eq!(
        waiting.summary_line(explained.now.0),
        "signal approval, 12 s"
    );
    assert!(
        matches!(&explained.owner, ExecutionOwner::Live { name, leased_until } if name == "node a" && leased_until.0 > explained.now.0)
    );
    let how = format!(
        "it continues when a signal `approval` is delivered: onward signal {} approval [PAYLOAD]",
        short(id)
    );
    assert_eq!(explained.next, [how]);
}

#[tokio::test(start_paused = true)]
async fn waits_with_a_deadline_and_for_a_timer_name_their_time() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.waiting("hurry", "1").await;
    let explained = fixture.explain(id).await;
    let WaitTarget::Signal {
        deadline: Some(deadline),
        ..
    } = &explained.waits.waits_for[0].target
    else {
        panic!()
    };
    assert_eq!(
        deadline.0,
        explained.waits.waits_for[0].since.0.plus_ms(7_200_000)
    );
    assert!(
        explained.next[1].ends_with("[PAYLOAD]; without one it continues in 119 min"),
        "{:?}",
        explained.next
    );
    let id = fixture.waiting("sleep", "1").await;
    let explained = fixture.explain(id).await;
    assert!(matches!(
        explained.waits.waits_for[0].target,
        WaitTarget::Timer { .. }
    ));
    assert_eq!(explained.next[1], "it continues in 59 min");
}

#[tokio::test(start_paused = true)]
async fn a_wait_for_a_task_names_the_attempt_and_a_retry_its_error() {
    let fixture = WorkflowFixture::new().await;
    let _node = fixture.node();
    let (work, tries) = (
        fixture.start("work", "1").await,
        fixture.start("try", "1").await,
    );
    tokio::time::sleep(Duration::from_millis(500)).await;
    let explained = fixture.explain(work).await;
    let WaitTarget::Task {
        function,
        attempt,
        max_attempts,
    } = &explained.waits.waits_for[0].target
    else {
        panic!()
    };
    assert_eq!(
        (function.as_str(), *attempt, *max_attempts),
        ("slow", 1, Some(10))
    );
    assert_eq!(
        explained.next,
        ["it continues when slow ends; if the attempt fails, it is retried"]
    );
    let explained = fixture.explain(tries).await;
    let WaitTarget::Retry {
        function,
        attempt,
        error,
        retry_at: at,
        ..
    } = &explained.waits.waits_for[0].target
    else {
        panic!()
    };
    assert_eq!(
        (function.as_str(), *attempt, error.as_str()),
        ("broken", 2, "busy: no answer")
    );
    assert!(at.0 > explained.now.0);
    assert!(
        explained.next[0].starts_with("broken is retried "),
        "{:?}",
        explained.next
    );
}

#[tokio::test(start_paused = true)]
async fn waits_for_children_name_them_and_a_child_names_its_parent() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.waiting("family", "1").await;
    let explained = fixture.explain(id).await;
    assert_eq!(
        (
            explained.waits.mode.as_deref(),
            explained.waits.waits_for.len()
        ),
        (Some("any"), 2)
    );
    let children = fixture.children(id).await;
    for (waiting, child) in explained.waits.waits_for.iter().zip(&children) {
        let WaitTarget::Child {
            execution,
            function,
            state,
            ..
        } = &waiting.target
        else {
            panic!()
        };
        assert_eq!(
            (execution.0, function.as_str(), state.as_deref()),
            (*child, "approve", Some("Blocked"))
        );
        assert_eq!(waiting.join_set.as_deref(), Some("root.0"));
    }
    let how = format!(
        "it continues when its child approve ends: onward why {}",
        short(children[0])
    );
    assert_eq!(explained.next[1], how);
    let parent = fixture.explain(children[1]).await.parent.unwrap();
    assert_eq!(
        (parent.execution.0, parent.state.as_deref()),
        (id, Some("Blocked"))
    );
}

#[tokio::test(start_paused = true)]
async fn an_execution_that_ended_has_its_outcome() {
    let fixture = WorkflowFixture::new().await;
    let done = fixture.explain(fixture.waiting("echo", "[1]").await).await;
    assert!(
        matches!(&done.outcome, Some(ExecutionOutcomeView::Result(result)) if result.as_str() == "[1]")
    );
    assert_eq!(done.next, ["nothing: it has ended"]);
    let failed = fixture.explain(fixture.waiting("fail", "1").await).await;
    assert!(
        matches!(&failed.outcome, Some(ExecutionOutcomeView::Error(error)) if error == "card_declined: no")
    );
    let continued = fixture.explain(fixture.waiting("again", "1").await).await;
    let Some(ExecutionOutcomeView::ContinuedAs(next)) = &continued.outcome else {
        panic!("{continued:?}")
    };
    assert_eq!(next.state.as_deref(), Some("Blocked"));
    assert_eq!(
        continued.next,
        [format!(
            "it continued as another execution: onward why {}",
            short(next.execution.0)
        )]
    );
    let stopped = fixture.waiting("approve", "1").await;
    fixture
        .client
        .request_cancel(stopped, "enough")
        .await
        .unwrap();
    fixture.waiting("echo", "1").await;
    assert!(
        matches!(&fixture.explain(stopped).await.outcome, Some(ExecutionOutcomeView::Cancelled(reason)) if reason == "enough")
    );
}

#[tokio::test(start_paused = true)]
async fn a_shard_without_owner_differs_from_one_with_an_expired_lease() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.start("approve", "1").await;
    let fresh = fixture.explain(id).await;
    assert_eq!(fresh.owner, ExecutionOwner::Unowned);
    assert_eq!(fresh.waits.waits_for[0].target, WaitTarget::Code);
    assert_eq!(
        fresh.next[0],
        "no process works on this store: start one with `onward serve` or `onward node`"
    );
    let node = fixture.node();
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.kill().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(
        matches!(fixture.explain(id).await.owner, ExecutionOwner::Expired { name, .. } if name == "node a")
    );
}

#[tokio::test(start_paused = true)]
async fn messages_and_alerts_are_shown() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.waiting("approve", "1").await;
    fixture
        .client
        .send_signal(id, "approval".parse().unwrap(), json("true"), None)
        .await
        .unwrap();
    fixture.client.request_cancel(id, "enough").await.unwrap();
    let alert = AlertRow {
        alert_id: SerialId::default(),
        code: AlertCode::ExecutionStuck,
        severity: AlertSeverity::P1,
        subject: id.to_string().into(),
        occasion: "1".into(),
        message: "execution is stuck".into(),
        raised_at: Timestamp::EPOCH,
    };
    fixture
        .store
        .commit(Commit::new().insert(&alert))
        .await
        .unwrap();
    let explained = fixture.explain(id).await;
    let sent: Vec<&str> = explained
        .pending_messages
        .iter()
        .map(|it| it.description.as_str())
        .collect();
    assert_eq!(sent, ["signal approval", "a request to cancel: enough"]);
    assert_eq!(
        explained.next[1..],
        ["the owner of its shard delivers 2 pending messages"]
    );
    assert_eq!(
        (explained.alerts[0].code.as_str(), explained.alerts.len()),
        ("EXECUTION_STUCK", 1)
    );
    let text = serde_json::to_value(&explained).unwrap();
    assert_eq!(
        (&text["waitsFor"][0]["kind"], &text["owner"]["state"]),
        (&Value::from("signal"), &Value::from("unowned"))
    );
    assert_eq!(text["alerts"][0]["message"], "execution is stuck");
}
