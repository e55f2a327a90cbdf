//! Cancellation: reported once, followed by cleanup, final.

use onward_execution::{Guest, ScriptedGuest};
use onward_journal::{ErrorKind, Event, ExecutionError};

use crate::engine::{Outcome, json, plan, run, run_without_crash};

fn saga() -> Box<dyn Guest> {
    Box::new(ScriptedGuest::new(|host| async move {
        host.invoke_function("book", json("1")).await?;
        let waited = host.sleep(1_000_000).await;
        let was_cancelled = host.is_cancelled().await;
        let undone = host.invoke_function("undo", json("1")).await?;
        host.sleep(10).await?;
        assert!(waited.is_err() == was_cancelled && undone == json("true"));
        waited.map(|()| json("\"done\""))
    }))
}

fn cancelled_after(commits: usize, guest: fn() -> Box<dyn Guest>) -> Outcome {
    let mut plan = plan(
        guest,
        &[
            ("book", |_, _| Ok(json("true"))),
            ("undo", |_, _| Ok(json("true"))),
        ],
    );
    plan.cancel = Some(commits);
    let expected = run_without_crash(&plan);
    for point in 1..40 {
        let crashed = run(&plan, |_, at| at == point);
        assert_eq!(crashed.result, expected.result, "crash at point {point}");
    }
    expected
}

fn kind(outcome: &Outcome) -> ErrorKind {
    outcome.result.as_ref().unwrap_err().kind.clone()
}

#[test]
fn a_wait_is_interrupted_and_cleanup_runs_to_its_end() {
    let outcome = cancelled_after(2, saga);
    assert_eq!(kind(&outcome), ErrorKind::Cancelled);
    assert_eq!(outcome.calls, ["book#1", "undo#1"]);
    let kinds = outcome.kinds();
    let requested = kinds
        .iter()
        .position(|kind| *kind == "CancelRequested")
        .unwrap();
    let awaits = kinds[requested..]
        .iter()
        .filter(|kind| **kind == "ExecutionAwaiting")
        .count();
    assert_eq!(
        (awaits, *kinds.last().unwrap()),
        (2, "ExecutionCancelled"),
        "cleanup waits like any other code"
    );
}

#[test]
fn a_wait_for_a_task_is_interrupted_while_the_task_continues() {
    let outcome = cancelled_after(1, saga);
    assert_eq!(kind(&outcome), ErrorKind::Cancelled);
    assert!(
        outcome
            .events
            .iter()
            .any(|it| matches!(it.event, Event::CancelRequested { .. }))
    );
}

#[test]
fn an_execution_that_has_not_begun_is_cancelled_at_once() {
    let outcome = cancelled_after(0, saga);
    assert_eq!(
        outcome.kinds(),
        ["ExecutionStarted", "CancelRequested", "ExecutionCancelled"]
    );
    assert!(outcome.calls.is_empty());
}

#[test]
fn a_cancelled_guest_that_returns_a_result_completes() {
    fn ignores_cancellation() -> Box<dyn Guest> {
        Box::new(ScriptedGuest::new(|host| async move {
            let _ = host.sleep(1_000_000).await;
            Ok(json("\"all the same\""))
        }))
    }
    assert_eq!(
        cancelled_after(1, ignores_cancellation).result,
        Ok(json("\"all the same\""))
    );
}

#[test]
fn a_guest_that_fails_during_cleanup_fails() {
    fn fails_during_cleanup() -> Box<dyn Guest> {
        Box::new(ScriptedGuest::new(|host| async move {
            let _ = host.sleep(1_000_000).await;
            Err(ExecutionError::new(ErrorKind::UserError, "cleanup failed"))
        }))
    }
    assert_eq!(
        kind(&cancelled_after(1, fails_during_cleanup)),
        ErrorKind::UserError
    );
}

#[test]
fn cancellation_is_requested_once() {
    let mut execution = crate::engine::start();
    let now = onward_base::Timestamp::EPOCH;
    assert!(execution.request_cancel("first".into(), now).unwrap());
    assert!(!execution.request_cancel("second".into(), now).unwrap());
}
