//! An execution runs ahead of its last commit, without visible effects before the commit.

use onward_engine::shard::{
    AllowedHosts, FunctionCaller, FunctionResolver, GuestEntry, GuestUnavailable, ResolvedFunction,
    ShardAction,
};
use onward_execution::{Guest, ScriptedGuest};
use onward_journal::DeliveryGuarantee;
use onward_store::{CommitConflict, Error, ShardEpoch, ShardId};

use crate::core_harness::{CoreHarness, attempts, commits, digest, events};
use crate::script_runtime::json;

/// A chain of `steps` tasks.
#[derive(Clone)]
pub(crate) struct Chain {
    steps: u32,
    hosts: AllowedHosts,
    delivery: DeliveryGuarantee,
    resolved: ResolvedFunction,
}

impl Chain {
    /// A chain of tasks without network access.
    fn of(steps: u32) -> Self {
        Self {
            steps,
            hosts: AllowedHosts::from([]),
            delivery: DeliveryGuarantee::AtLeastOnce,
            resolved: ResolvedFunction::Task(digest()),
        }
    }

    /// A chain of tasks that workers perform.
    pub(crate) fn far(steps: u32) -> Self {
        Self {
            resolved: ResolvedFunction::Worker,
            ..Self::of(steps)
        }
    }
}

impl FunctionResolver for Chain {
    fn create_guest(&self, _: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        let Self {
            steps, delivery, ..
        } = *self;
        Ok(Box::new(ScriptedGuest::new(move |host| async move {
            for step in 0..steps {
                let promise = host
                    .schedule_with_policy("task", json(&step.to_string()), None, delivery)
                    .await?;
                host.await_promise(promise).await?;
            }
            Ok(json("\"over\""))
        })))
    }

    fn resolve_function(&self, _: FunctionCaller<'_>, _: &str) -> ResolvedFunction {
        self.resolved
    }

    fn allowed_hosts(&self, _: FunctionCaller<'_>, _: &str) -> AllowedHosts {
        self.hosts.clone()
    }
}

#[test]
fn steps_without_external_effects_share_the_next_commit() {
    let (mut core, mut actions) = CoreHarness::begin(Chain::of(3));
    let (first, commit) = commits(&actions)[0];
    assert!(commit.is_background);
    for _ in 0..3 {
        let attempt = attempts(&actions).remove(0);
        actions = core.ended(&attempt);
        assert!(
            commits(&actions).is_empty(),
            "one commit at a time: {actions:?}"
        );
    }
    assert!(
        actions.is_empty(),
        "an end is not reported before it is durable: {actions:?}"
    );

    let actions = core.committed(first);
    let (second, commit) = commits(&actions)[0];
    assert_eq!(
        events(commit)
            .iter()
            .filter(|name| *name == "InvokeCompleted")
            .count(),
        3
    );
    assert_eq!(events(commit).last().unwrap(), "ExecutionCompleted");
    assert!(
        !actions
            .iter()
            .any(|it| matches!(it, ShardAction::ExecutionOver { .. })),
        "{actions:?}"
    );
    let actions = core.committed(second);
    assert!(
        actions
            .iter()
            .any(|it| matches!(it, ShardAction::ExecutionOver { .. })),
        "{actions:?}"
    );
}

#[test]
fn steps_with_external_effects_wait_for_their_commit() {
    let with_network = Chain {
        hosts: AllowedHosts::from(["example.org".into()]),
        ..Chain::of(2)
    };
    let at_most_once = Chain {
        delivery: DeliveryGuarantee::AtMostOnce,
        ..Chain::of(2)
    };
    let native_task = Chain {
        resolved: ResolvedFunction::Native,
        ..Chain::of(2)
    };
    for chain in [with_network, at_most_once, native_task] {
        let (mut core, started) = CoreHarness::begin(chain);
        assert!(attempts(&started).is_empty(), "{started:?}");
        let (ticket, commit) = commits(&started)[0];
        assert!(!commit.is_background, "nothing runs until the commit ends");
        let actions = core.committed(ticket);
        let actions = core.ended(&attempts(&actions)[0]);
        assert!(attempts(&actions).is_empty(), "{actions:?}");
        let actions = core.committed(commits(&actions)[0].0);
        assert_eq!(attempts(&actions).len(), 1);
    }
}

#[test]
fn a_failed_start_discards_the_steps_that_ran_ahead() {
    let (mut core, started) = CoreHarness::begin(Chain::of(2));
    let attempt = attempts(&started).remove(0);
    let actions = core.failed(
        commits(&started)[0].0,
        Error::Unavailable("unavailable by the test".to_owned()),
    );
    assert!(
        actions
            .iter()
            .any(|it| matches!(it, ShardAction::AbortAttempt(id) if *id == attempt.id)),
        "{actions:?}"
    );
    assert!(
        actions.iter().any(|it| matches!(
            it,
            ShardAction::StartSettled {
                result: Some(Err(_)),
                ..
            }
        )),
        "{actions:?}"
    );
    let late = core.ended(&attempt);
    assert!(late.is_empty(), "the result is dropped: {late:?}");
}

#[test]
fn a_signal_received_before_a_failed_start_is_kept_for_the_next_start() {
    let (mut core, started) = CoreHarness::begin(Chain::of(2));
    assert!(
        core.signalled().is_empty(),
        "the signal waits for the commit"
    );
    core.failed(
        commits(&started)[0].0,
        Error::Unavailable("unavailable by the test".to_owned()),
    );
    let actions = core.signalled();
    assert!(
        actions.iter().any(|it| matches!(it, ShardAction::Load(_))),
        "the signal is kept: {actions:?}"
    );
}

#[test]
fn running_ahead_is_limited() {
    let (mut core, mut actions) = CoreHarness::begin(Chain::of(10_000));
    let (ticket, _) = commits(&actions)[0];
    let mut steps = 0;
    while let Some(attempt) = attempts(&actions).pop() {
        steps += 1;
        actions = core.ended(&attempt);
    }
    assert!((100..1_000).contains(&steps), "{steps} steps");
    let actions = core.committed(ticket);
    assert_eq!(commits(&actions).len(), 1);
    assert_eq!(attempts(&actions).len(), 1, "the chain continues");
}

/// Runs an execution to its end with fast tasks and slow commits: a commit ends only when no task
/// is left.
fn run_to_completion(chain: impl FunctionResolver + 'static, result: &str) {
    let (mut core, mut actions) = CoreHarness::begin(chain);
    let (mut tickets, mut todo) = (Vec::new(), Vec::new());
    for _ in 0..500 {
        tickets.extend(commits(&actions).iter().map(|(ticket, _)| *ticket));
        todo.extend(attempts(&actions));
        if actions
            .iter()
            .any(|it| matches!(it, ShardAction::ExecutionOver { .. }))
        {
            return;
        }
        actions = match (todo.pop(), tickets.pop()) {
            (Some(attempt), ticket) => {
                tickets.extend(ticket);
                core.ended_with(&attempt, result)
            }
            (None, Some(ticket)) => core.committed(ticket),
            (None, None) => panic!("nothing is in flight, and the execution has not ended"),
        };
    }
    panic!("the execution does not end");
}

#[test]
fn results_over_the_commit_limit_while_running_ahead_are_split() {
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    run_to_completion(Chain::of(20), &large);
}

/// Ten tasks at once.
struct Fan;

impl FunctionResolver for Fan {
    fn create_guest(&self, _: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        Ok(Box::new(ScriptedGuest::new(|host| async move {
            let mut all = Vec::new();
            for _ in 0..10 {
                all.push(host.schedule_function("task", json("1")).await?);
            }
            host.await_all(&all).await?;
            Ok(json("\"over\""))
        })))
    }

    fn resolve_function(&self, _: FunctionCaller<'_>, _: &str) -> ResolvedFunction {
        ResolvedFunction::Task(digest())
    }

    fn allowed_hosts(&self, _: FunctionCaller<'_>, _: &str) -> AllowedHosts {
        AllowedHosts::from(["example.org".into()])
    }
}

#[test]
fn results_received_together_are_one_commit() {
    let (mut core, started) = CoreHarness::begin(Fan);
    let actions = core.committed(commits(&started)[0].0);
    let actions = core.ended_together(&attempts(&actions));
    let commit = commits(&actions)[0].1;
    assert_eq!(commits(&actions).len(), 1);
    assert_eq!(
        events(commit)
            .iter()
            .filter(|name| *name == "InvokeCompleted")
            .count(),
        10
    );
}

#[test]
fn results_received_together_over_the_commit_limit_are_split() {
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    run_to_completion(Fan, &large);
}

#[test]
fn an_attempt_started_before_a_crash_is_not_started_again_after_a_refused_start() {
    let once = Chain {
        delivery: DeliveryGuarantee::AtMostOnce,
        ..Chain::of(1)
    };
    let (mut before, started) = CoreHarness::begin(once.clone());
    let (ticket, commit) = commits(&started)[0];
    assert_eq!(
        attempts(&before.committed(ticket)).len(),
        1,
        "it is performed, and then its process crashes"
    );
    let (mut after, started) = CoreHarness::begin(once);
    let taken = CommitConflict::JournalLength {
        execution: commit.journals[0].execution,
        expected: 0,
        found: 3,
    };
    assert!(attempts(&after.failed(commits(&started)[0].0, taken.into())).is_empty());
    let loaded = after.loaded(commit);
    assert!(
        attempts(&loaded).is_empty(),
        "it must not be performed again: {loaded:?}"
    );
}

#[test]
fn an_at_most_once_task_starts_only_after_a_confirmed_commit() {
    let once = Chain {
        delivery: DeliveryGuarantee::AtMostOnce,
        ..Chain::of(1)
    };
    let unknown = || Error::OutcomeUnknown("no answer".to_owned());
    let (mut core, started) = CoreHarness::begin(once);
    let (ticket, first) = commits(&started)[0];
    core.failed(ticket, unknown());
    // The start is recorded: by this owner, or by another that took over and performed the task.
    let mut actions = core.loaded(first);
    for error in [
        unknown(),
        Error::Unavailable("unavailable by the test".to_owned()),
    ] {
        assert!(attempts(&actions).is_empty(), "{actions:?}");
        let (ticket, commit) = commits(&actions)[0];
        assert!(commit.journals.is_empty() && commit.fences.len() == 1);
        core.failed(ticket, error);
        actions = core.loaded(first);
    }
    let actions = core.committed(commits(&actions)[0].0);
    assert_eq!(
        attempts(&actions).len(),
        1,
        "the fence shows that no other process was owner: {actions:?}"
    );
}

#[test]
fn an_attempt_started_by_another_owner_is_not_started_again() {
    let once = Chain {
        delivery: DeliveryGuarantee::AtMostOnce,
        ..Chain::of(1)
    };
    let (mut core, started) = CoreHarness::begin(once);
    let (ticket, first) = commits(&started)[0];
    core.failed(ticket, Error::OutcomeUnknown("no answer".to_owned()));
    let actions = core.loaded(first);
    let fenced = CommitConflict::Fenced {
        shard: ShardId(0),
        held: ShardEpoch(2),
        given: ShardEpoch(1),
    };
    let actions = core.failed(commits(&actions)[0].0, fenced.into());
    assert!(
        attempts(&actions).is_empty() && matches!(actions[..], [ShardAction::ShardLost]),
        "{actions:?}"
    );
}

/// Requests a task with network access, then computes.
struct Busy;

impl FunctionResolver for Busy {
    fn create_guest(&self, _: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        Ok(Box::new(ScriptedGuest::new(|host| async move {
            host.invoke_function("task", json("0")).await?;
            let asked = host.schedule_function("request", json("1")).await?;
            let done = host.schedule_function("task", json("2")).await?;
            host.await_any(&[asked, done]).await?.1?;
            // A poll without a request is a pause.
            std::future::pending::<()>().await;
            Ok(json("\"over\""))
        })))
    }

    fn resolve_function(&self, _: FunctionCaller<'_>, _: &str) -> ResolvedFunction {
        ResolvedFunction::Task(digest())
    }

    fn allowed_hosts(&self, _: FunctionCaller<'_>, function: &str) -> AllowedHosts {
        if function == "request" {
            AllowedHosts::from(["example.org".into()])
        } else {
            AllowedHosts::from([])
        }
    }
}

#[test]
fn a_computing_guest_does_not_delay_its_earlier_requests() {
    let (mut core, started) = CoreHarness::begin(Busy);
    let ahead = core.ended(&attempts(&started)[0]);
    core.ended(&attempts(&ahead)[0]);
    let actions = core.committed(commits(&started)[0].0);
    let actions = core.committed(commits(&actions)[0].0);
    assert!(
        attempts(&actions)
            .iter()
            .any(|attempt| &*attempt.function == "request"),
        "{actions:?}"
    );
}
