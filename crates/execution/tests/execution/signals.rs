//! Signals with deadlines, and what an execution passes on to its successor.

use onward_base::Timestamp;
use onward_execution::{Execution, ExecutionLimits, ExecutionProgress, Guest, ScriptedGuest};
use onward_journal::Event;

use crate::engine::{Virtual, json, plan, run_without_crash};

fn twice() -> Box<dyn Guest> {
    Box::new(ScriptedGuest::new(|host| async move {
        let first = host.await_signal("go", Some(1_000)).await?;
        let second = host.await_signal("go", None).await?;
        Ok(json(&format!(
            "[{}, {}]",
            first.is_some(),
            second.is_some()
        )))
    }))
}

#[test]
fn a_signal_after_the_deadline_goes_to_the_next_wait() {
    let mut plan = plan(twice, &[]);
    plan.signals = vec![(2, "go", "1")];
    let outcome = run_without_crash(&plan);
    assert_eq!(outcome.result, Ok(json("[false, true]")));
}

#[test]
fn a_signal_before_the_deadline_ends_the_wait_and_the_timer_has_no_effect() {
    let mut plan = plan(twice, &[]);
    plan.signals = vec![(1, "go", "1"), (2, "go", "2")];
    let outcome = run_without_crash(&plan);
    assert_eq!(outcome.result, Ok(json("[true, true]")));
    assert!(!outcome.kinds().contains(&"TimerFired"));
}

#[test]
fn continue_as_new_passes_on_the_input_and_the_signals_not_consumed() {
    let mut execution = crate::engine::start();
    let now = Timestamp::EPOCH;
    for (name, payload) in [("b", "1"), ("a", "2"), ("b", "3")] {
        execution
            .deliver_signal(&name.parse().unwrap(), json(payload), now)
            .unwrap();
    }
    let mut guest = ScriptedGuest::new(|host| async move {
        host.await_signal("b", None).await?;
        host.continue_as_new(json("41")).await?;
        Ok(json("\"not returned\""))
    });
    let mut world = Virtual {
        now,
        logs: Vec::new(),
    };
    assert_eq!(
        execution.run(&mut guest, &mut world).unwrap(),
        ExecutionProgress::Ended
    );
    let successor = execution.successor_execution().unwrap();
    let signals: Vec<(&str, &str)> = successor
        .signals
        .iter()
        .map(|(name, payload)| (&**name, payload.as_str()))
        .collect();
    assert_eq!(
        (successor.input.as_str(), signals),
        ("41", vec![("a", "2"), ("b", "3")])
    );
    let Event::ExecutionCompleted { continued_as, .. } =
        &execution.journal().events().last().unwrap().event
    else {
        panic!()
    };
    assert_eq!(*continued_as, Some(successor.execution));
    assert_ne!(successor.execution, execution.id());
    let again = Execution::recover(execution.journal().clone(), ExecutionLimits::default());
    assert!(
        again.is_terminal() && again.successor_execution().is_none(),
        "an execution has at most one successor"
    );
}
