//! Replay: code that repeats a journal, code that diverges, and code that continues after its end.

use onward_api::waits::WaitTarget;
use onward_base::Payload;
use onward_diagnostics::replay::{ReplayEnd, ReplayOutcome, replay_journal};
use onward_execution::{ScriptHost, ScriptedGuest};
use onward_journal::{ExecutionError, ExecutionId, InvokeResult, Journal};

use crate::script_runtime::json;
use crate::workflow_fixture::{WorkflowFixture, script};

async fn journal(fixture: &WorkflowFixture, id: ExecutionId) -> Journal {
    Journal::recover(id, fixture.client.read_journal(id).await.unwrap()).unwrap()
}

/// Replays the journal of a function with other code.
async fn replay_with<F: Future<Output = InvokeResult> + Send + 'static>(
    function: &str,
    input: &str,
    other: impl FnOnce(ScriptHost) -> F,
) -> ReplayOutcome {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.waiting(function, input).await;
    replay_journal(&journal(&fixture, id).await, &mut ScriptedGuest::new(other)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_same_code_repeats_every_journal() {
    let fixture = WorkflowFixture::new().await;
    for function in ["echo", "fail", "chain", "again"] {
        let id = fixture.waiting(function, "3").await;
        let journal = journal(&fixture, id).await;
        let outcome = replay_journal(&journal, &mut script(function, json("3"))).unwrap();
        assert_eq!(
            outcome,
            ReplayOutcome::Repeats {
                end: ReplayEnd::Over
            },
            "{function}"
        );
    }
    for function in ["approve", "hurry", "sleep", "work", "try", "family"] {
        let id = fixture.waiting(function, "3").await;
        let journal = journal(&fixture, id).await;
        match replay_journal(&journal, &mut script(function, json("3"))).unwrap() {
            ReplayOutcome::Repeats {
                end: ReplayEnd::Waits(waits),
            } => assert!(!waits.waits_for.is_empty(), "{function}"),
            other => panic!("{function}: {other:?}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_divergence_is_found() {
    let outcome = replay_with("chain", "3", |host| async move {
        host.invoke_function("quick", json("1")).await?;
        host.invoke_function("quick", json("2")).await
    })
    .await;
    let ReplayOutcome::Diverges {
        sequence,
        recorded,
        requested,
    } = outcome
    else {
        panic!("{outcome:?}")
    };
    assert_eq!(sequence, 6);
    assert_eq!(recorded, "InvokeScheduled(\"root.1\", \"quick\", 1)");
    assert_eq!(requested, "an invocation of quick with 2");
}

#[tokio::test(start_paused = true)]
async fn a_different_end_is_a_divergence() {
    let outcome = replay_with("echo", "3", |_| async { Ok(json("4")) }).await;
    let ReplayOutcome::Diverges {
        sequence,
        recorded,
        requested,
    } = outcome
    else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        (sequence, recorded.as_str(), requested.as_str()),
        (1, "ExecutionCompleted(3)", "ExecutionCompleted(4)")
    );
    let outcome = replay_with("fail", "3", |_| async {
        Err(ExecutionError::from_kind_name("card_expired", "no"))
    })
    .await;
    assert!(matches!(
        outcome,
        ReplayOutcome::Diverges { sequence: 1, .. }
    ));
    let outcome = replay_with("echo", "3", |host| async move {
        host.sleep(1).await.map(|()| Payload::null())
    })
    .await;
    assert!(
        matches!(&outcome, ReplayOutcome::Diverges { requested, .. } if requested.starts_with("TimerScheduled")),
        "{outcome:?}"
    );
    let outcome = replay_with("chain", "2", |host| async move {
        host.invoke_function("quick", json("1")).await
    })
    .await;
    assert!(
        matches!(&outcome, ReplayOutcome::Diverges { requested, .. } if requested == "the end of the function"),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn continuing_after_the_end_of_a_journal_is_no_divergence() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.start("approve", "1").await;
    let outcome = replay_journal(
        &journal(&fixture, id).await,
        &mut script("approve", json("1")),
    )
    .unwrap();
    let ReplayOutcome::Repeats {
        end: ReplayEnd::Beyond { requested },
    } = outcome
    else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        requested,
        "ExecutionAwaiting([\"root.0\"], Signal(\"approval\"))"
    );
    let before = fixture.client.read_journal(id).await.unwrap().len();
    assert_eq!(before, 1, "nothing is stored");
}

#[tokio::test(start_paused = true)]
async fn an_execution_cancelled_before_it_ran_has_nothing_to_repeat() {
    let fixture = WorkflowFixture::new().await;
    let id = fixture.start("approve", "1").await;
    fixture.client.request_cancel(id, "enough").await.unwrap();
    fixture.waiting("echo", "1").await;
    let outcome = replay_journal(
        &journal(&fixture, id).await,
        &mut script("approve", json("1")),
    )
    .unwrap();
    assert_eq!(
        outcome,
        ReplayOutcome::Repeats {
            end: ReplayEnd::NotBegun
        }
    );
}

#[tokio::test(start_paused = true)]
async fn the_open_waits_are_reported() {
    let outcome = replay_with("approve", "1", |host| async move {
        Ok(host.await_signal("approval", None).await?.unwrap())
    })
    .await;
    let ReplayOutcome::Repeats {
        end: ReplayEnd::Waits(waits),
    } = outcome
    else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        waits.waits_for[0].target,
        WaitTarget::Signal {
            name: "approval".to_owned(),
            deadline: None
        }
    );
}
