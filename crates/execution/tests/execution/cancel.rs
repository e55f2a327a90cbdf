//! Cancellation: reported once, followed by cleanup, final.

use onward_base::Timestamp;
use onward_execution::{
    Execution, ExecutionLimits, ExecutionProgress, Guest, JoinSetNext, ScriptedGuest,
};
use onward_journal::{ErrorKind, Event, ExecutionError, Journal};

use crate::engine::{Outcome, Virtual, json, plan, run, run_without_crash};

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

/// Computes, with two events in between, and then waits in the way that `wait` chooses. After a
/// refused wait it cleans up with an operation and another wait.
fn computing(wait: fn(u32) -> u32) -> impl Fn() -> Box<dyn Guest> {
    move || {
        Box::new(ScriptedGuest::new(move |host| async move {
            host.now().await?;
            host.now().await?;
            let waited = match wait(0) {
                0 => host.sleep(1_000_000).await,
                1 => host.await_signal("never", None).await.map(drop),
                _ => {
                    let set = host.create_join_set().await?;
                    let promise = host.schedule_function("book", json("1")).await?;
                    host.submit_to_join_set(set, promise).await?;
                    host.next_result(set, None).await.map(|next| {
                        assert!(matches!(next, JoinSetNext::Result(..)));
                    })
                }
            };
            assert!(waited.is_err() && host.is_cancelled().await);
            host.sleep(10).await?;
            Err(waited.unwrap_err())
        }))
    }
}

fn world() -> Virtual {
    Virtual {
        now: Timestamp::EPOCH,
        logs: Vec::new(),
    }
}

/// Runs a guest one event at a time, and requests cancellation once `events` are recorded.
fn cancelled_while_computing(guest: &impl Fn() -> Box<dyn Guest>, events: usize) -> Execution {
    let mut execution = crate::engine::start();
    let limits = ExecutionLimits {
        batch_events_max: 1,
        ..ExecutionLimits::default()
    };
    execution = Execution::recover(execution.journal().clone(), limits);
    let (mut running, mut world) = (guest(), world());
    while execution.journal().events().len() < events {
        let progress = execution.run(&mut *running, &mut world).unwrap();
        assert_eq!(progress, ExecutionProgress::BatchFull);
        execution.take_events();
    }
    let now = Timestamp::EPOCH;
    assert!(execution.request_cancel("enough".into(), now).unwrap());
    execution.take_events();
    loop {
        match execution.run(&mut *running, &mut world).unwrap() {
            ExecutionProgress::BatchFull => drop(execution.take_events()),
            ExecutionProgress::Blocked => {
                world.now = execution.next_deadline().unwrap();
                execution.fire_due_timers(world.now).unwrap();
                execution.take_events();
            }
            _ => return execution,
        }
    }
}

#[test]
fn a_guest_that_is_cancelled_while_it_computes_learns_it_at_its_next_wait() {
    for guest in [computing(|_| 0), computing(|_| 1), computing(|_| 2)] {
        for events in [2, 3] {
            let execution = cancelled_while_computing(&guest, events);
            let error = execution.result().unwrap().unwrap_err();
            assert_eq!(error.kind, ErrorKind::Cancelled);
            // Every prefix of the journal replays without a divergence.
            let all = execution.journal().events();
            for length in events..all.len() {
                let journal =
                    Journal::recover(crate::engine::id(), all[..length].to_vec()).unwrap();
                let mut replay = Execution::recover(journal, ExecutionLimits::default());
                let progress = replay.run(&mut *guest(), &mut world()).unwrap();
                assert!(
                    matches!(
                        progress,
                        ExecutionProgress::Blocked | ExecutionProgress::Ended
                    ),
                    "{length}: {progress:?}"
                );
            }
        }
    }
}

#[test]
fn a_cancelled_guest_that_never_waits_is_stopped_after_a_while() {
    let guest: Box<dyn Guest> = Box::new(ScriptedGuest::new(|host| async move {
        loop {
            host.now().await?;
        }
    }));
    let (mut execution, mut guest, mut world) = (crate::engine::start(), guest, world());
    let at = |ms| Timestamp::EPOCH.plus_ms(ms);
    execution.run(&mut *guest, &mut world).unwrap();
    assert!(!execution.cancel_unresponsive(100, at(500)).unwrap());
    assert!(execution.request_cancel("enough".into(), at(500)).unwrap());
    assert!(!execution.cancel_unresponsive(100, at(599)).unwrap());
    execution.run(&mut *guest, &mut world).unwrap();
    assert!(execution.cancel_unresponsive(100, at(600)).unwrap());
    assert_eq!(
        execution.result().unwrap().unwrap_err().kind,
        ErrorKind::Cancelled
    );
}

#[test]
fn an_execution_can_be_failed_in_every_phase() {
    let error = || ExecutionError::from_kind_name("step_too_large", "too large");
    let waiting = || -> Box<dyn Guest> {
        Box::new(ScriptedGuest::new(|host| async move {
            host.now().await?;
            let _ = host.sleep(10).await;
            host.sleep(10).await?;
            Ok(json("1"))
        }))
    };
    for (is_run, is_cancelled, expected) in [
        (false, false, "step_too_large"),
        (true, false, "step_too_large"),
        (true, true, "cancelled"),
    ] {
        let mut execution = crate::engine::start();
        let (mut guest, mut world) = (waiting(), world());
        if is_run {
            execution.run(&mut *guest, &mut world).unwrap();
        }
        if is_cancelled {
            execution
                .request_cancel("enough".into(), world.now)
                .unwrap();
            execution.run(&mut *guest, &mut world).unwrap();
        }
        assert!(execution.fail_execution(error(), world.now).unwrap());
        let ended = execution.result().unwrap().unwrap_err();
        assert_eq!(ended.kind.as_str(), expected);
        assert!(!execution.fail_execution(error(), world.now).unwrap());
    }
}
