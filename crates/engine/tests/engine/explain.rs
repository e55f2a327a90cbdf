//! What an execution waits for is said as it is, whatever it is.

use std::time::Duration;

use onward_api::explanation::{ExecutionEndView, ExecutionOwner};
use onward_api::waits::WaitTarget;
use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_store::tables::AlertRow;
use onward_store::{Commit, SerialId};
use serde_json::Value;

use crate::code::json;
use crate::place::Place;

fn short(id: ExecutionId) -> String {
    id.to_string()[..12].to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_signal_is_waited_for_and_how_to_send_it_is_said() {
    let place = Place::new().await;
    let _node = place.node();
    let id = place.start("approve", "1").await;
    tokio::time::sleep(Duration::from_secs(12)).await;
    let explained = place.explain(id).await;
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
        matches!(&explained.owner, ExecutionOwner::Process { name, until } if name == "node a" && until.0 > explained.now.0)
    );
    let how = format!(
        "it goes on when a signal `approval` is delivered: onward signal {} approval [PAYLOAD]",
        short(id)
    );
    assert_eq!(explained.next, [how]);
}

#[tokio::test(start_paused = true)]
async fn a_deadline_and_a_timer_have_their_time() {
    let place = Place::new().await;
    let id = place.waiting("hurry", "1").await;
    let explained = place.explain(id).await;
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
        explained.next[1].ends_with("[PAYLOAD]; without one in 119 min"),
        "{:?}",
        explained.next
    );
    let id = place.waiting("sleep", "1").await;
    let explained = place.explain(id).await;
    assert!(matches!(
        explained.waits.waits_for[0].target,
        WaitTarget::Timer { .. }
    ));
    assert_eq!(explained.next[1], "it goes on in 59 min");
}

#[tokio::test(start_paused = true)]
async fn a_task_has_its_attempt_and_a_retry_its_reason() {
    let place = Place::new().await;
    let _node = place.node();
    let (work, tries) = (
        place.start("work", "1").await,
        place.start("try", "1").await,
    );
    tokio::time::sleep(Duration::from_millis(500)).await;
    let explained = place.explain(work).await;
    let WaitTarget::Task {
        function,
        attempt,
        attempts,
    } = &explained.waits.waits_for[0].target
    else {
        panic!()
    };
    assert_eq!(
        (function.as_str(), *attempt, *attempts),
        ("slow", 1, Some(10))
    );
    assert_eq!(
        explained.next,
        ["it goes on when slow ends; if that fails, it is tried again"]
    );
    let explained = place.explain(tries).await;
    let WaitTarget::Retry {
        function,
        attempt,
        error,
        at,
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
        explained.next[0].starts_with("broken is tried again "),
        "{:?}",
        explained.next
    );
}

#[tokio::test(start_paused = true)]
async fn children_in_a_join_set_are_followed_and_know_their_parent() {
    let place = Place::new().await;
    let id = place.waiting("family", "1").await;
    let explained = place.explain(id).await;
    assert_eq!(
        (
            explained.waits.mode.as_deref(),
            explained.waits.waits_for.len()
        ),
        (Some("any"), 2)
    );
    let children = place.children(id).await;
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
        "it goes on when its child approve ends: onward why {}",
        short(children[0])
    );
    assert_eq!(explained.next[1], how);
    let parent = place.explain(children[1]).await.parent.unwrap();
    assert_eq!(
        (parent.execution.0, parent.state.as_deref()),
        (id, Some("Blocked"))
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_over_says_what_it_ended_with() {
    let place = Place::new().await;
    let done = place.explain(place.waiting("echo", "[1]").await).await;
    assert!(
        matches!(&done.end, Some(ExecutionEndView::Result(result)) if result.as_str() == "[1]")
    );
    assert_eq!(done.next, ["nothing: it is over"]);
    let failed = place.explain(place.waiting("fail", "1").await).await;
    assert!(
        matches!(&failed.end, Some(ExecutionEndView::Error(error)) if error == "card_declined: no")
    );
    let continued = place.explain(place.waiting("again", "1").await).await;
    let Some(ExecutionEndView::ContinuedAs(next)) = &continued.end else {
        panic!("{continued:?}")
    };
    assert_eq!(next.state.as_deref(), Some("Blocked"));
    assert_eq!(
        continued.next,
        [format!(
            "it goes on as another execution: onward why {}",
            short(next.execution.0)
        )]
    );
    let stopped = place.waiting("approve", "1").await;
    place
        .client
        .request_cancel(stopped, "enough")
        .await
        .unwrap();
    place.waiting("echo", "1").await;
    assert!(
        matches!(&place.explain(stopped).await.end, Some(ExecutionEndView::Cancelled(reason)) if reason == "enough")
    );
}

#[tokio::test(start_paused = true)]
async fn nobody_is_told_from_somebody_who_is_gone() {
    let place = Place::new().await;
    let id = place.start("approve", "1").await;
    let fresh = place.explain(id).await;
    assert_eq!(fresh.owner, ExecutionOwner::Nobody);
    assert_eq!(fresh.waits.waits_for[0].target, WaitTarget::Code);
    assert_eq!(
        fresh.next[0],
        "no process works on this store: start one with `onward serve` or `onward node`"
    );
    let node = place.node();
    tokio::time::sleep(Duration::from_secs(1)).await;
    node.kill().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert!(
        matches!(place.explain(id).await.owner, ExecutionOwner::Gone { name, .. } if name == "node a")
    );
}

#[tokio::test(start_paused = true)]
async fn messages_and_alerts_are_shown() {
    let place = Place::new().await;
    let id = place.waiting("approve", "1").await;
    place
        .client
        .send_signal(id, "approval".parse().unwrap(), json("true"), None)
        .await
        .unwrap();
    place.client.request_cancel(id, "enough").await.unwrap();
    let alert = AlertRow {
        alert_id: SerialId::default(),
        code: "EXECUTION_STUCK".into(),
        severity: "P1".into(),
        subject: id.to_string().into(),
        occasion: "1".into(),
        message: "it cannot go on".into(),
        raised_at: Timestamp::EPOCH,
    };
    place
        .store
        .commit(Commit::new().insert(&alert))
        .await
        .unwrap();
    let explained = place.explain(id).await;
    let sent: Vec<&str> = explained
        .on_its_way
        .iter()
        .map(|it| it.what.as_str())
        .collect();
    assert_eq!(sent, ["signal approval", "a request to cancel: enough"]);
    assert_eq!(
        explained.next[1..],
        ["it is told the 2 things that are on their way to it"]
    );
    assert_eq!(
        (explained.alerts[0].code.as_str(), explained.alerts.len()),
        ("EXECUTION_STUCK", 1)
    );
    let text = serde_json::to_value(&explained).unwrap();
    assert_eq!(
        (&text["waitsFor"][0]["for"], &text["owner"]["is"]),
        (&Value::from("signal"), &Value::from("nobody"))
    );
    assert_eq!(text["alerts"][0]["message"], "it cannot go on");
}
