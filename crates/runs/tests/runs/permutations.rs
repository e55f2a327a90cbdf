//! Every order of a small run's events: whatever arrives when, the snapshot stays one that the
//! tables can reach.

use std::collections::BTreeSet;

use onward_runs::{
    AttemptRelation, RunEventKind, RunSnapshot, RunStatus, RunSubstatus, RunTransitionState,
    StepStatus, reduce_event, run_transition, step_transition,
};

use super::script::{event, record, run_id};

/// Calls `visit` with every order of `items`.
fn visit_permutations<T: Clone>(items: &mut Vec<T>, from: usize, visit: &mut impl FnMut(&[T])) {
    if from == items.len() {
        return visit(items);
    }
    for index in from..items.len() {
        items.swap(from, index);
        visit_permutations(items, from + 1, visit);
        items.swap(from, index);
    }
}

/// Every status of a run that some event leads to from one that can be reached.
fn reachable() -> BTreeSet<RunStatus> {
    let mut found = BTreeSet::from([RunStatus::Pending]);
    loop {
        let next = found.iter().flat_map(|&status| {
            RunEventKind::KNOWN
                .iter()
                .map(move |(_, kind)| (status, *kind))
        });
        let next = next.filter_map(|(status, kind)| match kind {
            RunEventKind::Run(act) => run_transition(
                RunTransitionState {
                    status,
                    is_cancelling: false,
                    has_running_step: false,
                },
                act,
            ),
            _ => None,
        });
        let more: BTreeSet<_> = found.union(&next.collect()).copied().collect();
        if more == found {
            return found;
        }
        found = more;
    }
}

/// Properties of every snapshot, and of every two that follow each other.
fn assert_sound(before: &RunSnapshot, after: &RunSnapshot) {
    let moved = before.status == after.status
        || RunEventKind::KNOWN.iter().any(|(_, kind)| match kind {
            RunEventKind::Run(act) => {
                run_transition(before.transition_state(), *act) == Some(after.status)
            }
            _ => false,
        });
    assert!(moved, "{} to {}", before.status, after.status);
    for step in after.steps.iter() {
        let was = before
            .steps
            .find_step(&step.step_id)
            .map_or(StepStatus::Pending, |step| step.latest.status);
        let moved = was == step.latest.status
            || RunEventKind::KNOWN.iter().any(|(_, kind)| match kind {
                RunEventKind::Step(act) => AttemptRelation::ALL.iter().any(|attempt| {
                    step_transition(was, *act, *attempt) == Some(step.latest.status)
                }),
                _ => false,
            });
        assert!(
            moved,
            "step {}: {was} to {}",
            step.step_id, step.latest.status
        );
        assert_eq!(
            step.attempts.len() as u32 + 1,
            step.latest.logical_attempt_id.as_u32()
        );
        assert!(
            step.attempts
                .iter()
                .all(|attempt| attempt.status == StepStatus::Failed)
        );
    }
    assert_tallied(after);
}

fn assert_tallied(snapshot: &RunSnapshot) {
    let count = |status| {
        snapshot
            .steps
            .iter()
            .filter(|step| step.latest.status == status)
            .count()
    };
    assert_eq!(snapshot.steps.running_count(), count(StepStatus::Running));
    assert_eq!(snapshot.failed_steps, count(StepStatus::Failed));
    assert_eq!(
        snapshot.status.is_terminal(),
        snapshot.completed_at.is_some()
    );
    if snapshot.status == RunStatus::Completed {
        assert_eq!(snapshot.steps.running_count(), 0);
    }
    match snapshot.substatus {
        Some(RunSubstatus::Draining) => {
            assert!(snapshot.status == RunStatus::Paused && snapshot.steps.running_count() > 0)
        }
        Some(RunSubstatus::Retrying) => {
            assert!(snapshot.status == RunStatus::Running && snapshot.steps.retrying_count() > 0)
        }
        Some(_) => assert!(!snapshot.status.is_terminal()),
        None => {}
    }
}

#[test]
fn no_order_of_events_corrupts_a_snapshot() {
    let runs: [&[&str]; 6] = [
        &[
            "RunStarted",
            "StepStarted a",
            "StepCompleted a",
            "StepStarted b",
            "StepCompleted b",
            "RunCompleted",
        ],
        &[
            "RunStarted",
            "StepStarted a",
            "StepFailed a",
            "StepStarted a#2",
            "StepCompleted a#2",
            "RunCompleted",
        ],
        &[
            "RunApproved",
            "RunStarted",
            "StepStarted a",
            "RunPaused",
            "StepCompleted a",
            "RunResumed",
        ],
        &[
            "RunQueued",
            "RunStarted",
            "StepStarted a",
            "RunCancelRequested",
            "StepFailed a",
            "RunCancelled",
        ],
        &[
            "RunStarted",
            "StepFailed a",
            "StepSkipped a",
            "StepStarted a#2",
            "StepFailed a#2",
            "RunFailed",
        ],
        &[
            "RunStarted",
            "RunPaused",
            "RunCancelRequested",
            "RunResumed",
            "RunFailed",
            "RunCompleted",
        ],
    ];
    let reachable = reachable();
    assert_eq!(
        reachable.len(),
        RunStatus::ALL.len(),
        "every status has its use"
    );
    for run in runs {
        for length in 1..=run.len() {
            let mut events: Vec<_> = run[..length].iter().map(|line| event(line)).collect();
            visit_permutations(&mut events, 0, &mut |order| {
                let mut snapshot = RunSnapshot::new(run_id());
                for (number, event) in (1..).zip(order) {
                    let next = reduce_event(snapshot.clone(), &record(number, event.clone()));
                    assert_sound(&snapshot, &next);
                    assert!(reachable.contains(&next.status));
                    snapshot = next;
                }
            });
        }
    }
}
