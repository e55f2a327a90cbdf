//! An execution goes on while its last commit is under way, and nobody outside can tell.

use onward_engine::shard::{
    AllowedHosts, FunctionCaller, FunctionResolver, GuestEntry, GuestUnavailable, ResolvedFunction,
    ShardAction,
};
use onward_execution::{Guest, ScriptedGuest};
use onward_journal::DeliveryGuarantee;
use onward_store::{CommitConflict, Error, ShardEpoch, ShardId};

use crate::alone::{Alone, attempts, commits, digest, events};
use crate::code::json;

/// A chain of `steps` tasks.
#[derive(Clone)]
pub(crate) struct Chain {
    steps: u32,
    hosts: AllowedHosts,
    delivery: DeliveryGuarantee,
    resolved: ResolvedFunction,
}

impl Chain {
    /// Of tasks that reach nobody.
    fn of(steps: u32) -> Self {
        Self {
            steps,
            hosts: AllowedHosts::from([]),
            delivery: DeliveryGuarantee::AtLeastOnce,
            resolved: ResolvedFunction::Task(digest()),
        }
    }

    /// Of tasks that workers perform.
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
fn steps_that_reach_nobody_share_the_next_commit() {
    let (mut alone, mut actions) = Alone::begin(Chain::of(3));
    let (first, commit) = commits(&actions)[0];
    assert!(commit.is_background);
    for _ in 0..3 {
        let attempt = attempts(&actions).remove(0);
        actions = alone.ended(&attempt);
        assert!(
            commits(&actions).is_empty(),
            "one commit at a time: {actions:?}"
        );
    }
    assert!(
        actions.is_empty(),
        "nobody is told of an end that is not durable: {actions:?}"
    );

    let actions = alone.committed(first);
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
    let actions = alone.committed(second);
    assert!(
        actions
            .iter()
            .any(|it| matches!(it, ShardAction::ExecutionOver { .. })),
        "{actions:?}"
    );
}

#[test]
fn what_others_can_notice_waits_for_its_commit() {
    let reaching_out = Chain {
        hosts: AllowedHosts::from(["example.org".into()]),
        ..Chain::of(2)
    };
    let at_most_once = Chain {
        delivery: DeliveryGuarantee::AtMostOnce,
        ..Chain::of(2)
    };
    let of_the_process = Chain {
        resolved: ResolvedFunction::Native,
        ..Chain::of(2)
    };
    for chain in [reaching_out, at_most_once, of_the_process] {
        let (mut alone, begun) = Alone::begin(chain);
        assert!(attempts(&begun).is_empty(), "{begun:?}");
        let (ticket, commit) = commits(&begun)[0];
        assert!(!commit.is_background, "there is nothing to do meanwhile");
        let actions = alone.committed(ticket);
        let actions = alone.ended(&attempts(&actions)[0]);
        assert!(attempts(&actions).is_empty(), "{actions:?}");
        let actions = alone.committed(commits(&actions)[0].0);
        assert_eq!(attempts(&actions).len(), 1);
    }
}

#[test]
fn a_start_that_is_refused_takes_along_what_ran_ahead_of_it() {
    let (mut alone, begun) = Alone::begin(Chain::of(2));
    let attempt = attempts(&begun).remove(0);
    let actions = alone.failed(
        commits(&begun)[0].0,
        Error::Unavailable("the disk is away".to_owned()),
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
    let late = alone.ended(&attempt);
    assert!(late.is_empty(), "it ended for nobody: {late:?}");
}

#[test]
fn a_signal_that_came_before_a_start_was_refused_is_for_the_next() {
    let (mut alone, begun) = Alone::begin(Chain::of(2));
    assert!(alone.signalled().is_empty(), "it waits for the commit");
    alone.failed(
        commits(&begun)[0].0,
        Error::Unavailable("the disk is away".to_owned()),
    );
    let actions = alone.signalled();
    assert!(
        actions.iter().any(|it| matches!(it, ShardAction::Load(_))),
        "it is not forgotten: {actions:?}"
    );
}

#[test]
fn it_does_not_run_ahead_for_ever() {
    let (mut alone, mut actions) = Alone::begin(Chain::of(10_000));
    let (ticket, _) = commits(&actions)[0];
    let mut steps = 0;
    while let Some(attempt) = attempts(&actions).pop() {
        steps += 1;
        actions = alone.ended(&attempt);
    }
    assert!((100..1_000).contains(&steps), "{steps} steps");
    let actions = alone.committed(ticket);
    assert_eq!(commits(&actions).len(), 1);
    assert_eq!(attempts(&actions).len(), 1, "it goes on");
}

/// Tasks are quick and commits slow: a commit ends only when there is no task left. Returns when it
/// is over.
fn to_its_end(chain: impl FunctionResolver + 'static, result: &str) {
    let (mut alone, mut actions) = Alone::begin(chain);
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
                alone.ended_with(&attempt, result)
            }
            (None, Some(ticket)) => alone.committed(ticket),
            (None, None) => panic!("nothing is under way, and it is not over"),
        };
    }
    panic!("it does not come to its end");
}

#[test]
fn results_that_fill_a_commit_while_it_runs_ahead_are_stored_in_several() {
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    to_its_end(Chain::of(20), &large);
}

/// All of ten tasks at once.
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
fn results_that_come_together_are_one_commit() {
    let (mut alone, begun) = Alone::begin(Fan);
    let actions = alone.committed(commits(&begun)[0].0);
    let actions = alone.ended_together(&attempts(&actions));
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
fn results_that_come_together_and_fill_a_commit_are_stored_in_several() {
    let large = format!("\"{}\"", "x".repeat(1_000_000));
    to_its_end(Fan, &large);
}

#[test]
fn an_attempt_that_was_begun_before_a_crash_is_not_taken_for_one_that_a_refused_start_wanted() {
    let once = Chain {
        delivery: DeliveryGuarantee::AtMostOnce,
        ..Chain::of(1)
    };
    let (mut before, begun) = Alone::begin(once.clone());
    let (ticket, commit) = commits(&begun)[0];
    assert_eq!(
        attempts(&before.committed(ticket)).len(),
        1,
        "it is performed, and then its process is gone"
    );
    let (mut after, begun) = Alone::begin(once);
    let taken = CommitConflict::JournalLength {
        execution: commit.journals[0].execution,
        expected: 0,
        found: 3,
    };
    assert!(attempts(&after.failed(commits(&begun)[0].0, taken.into())).is_empty());
    let loaded = after.loaded(commit);
    assert!(
        attempts(&loaded).is_empty(),
        "it would be performed a second time: {loaded:?}"
    );
}

#[test]
fn what_must_not_be_repeated_begins_after_a_commit_of_which_the_end_was_heard() {
    let once = Chain {
        delivery: DeliveryGuarantee::AtMostOnce,
        ..Chain::of(1)
    };
    let unknown = || Error::OutcomeUnknown("nothing was heard of it".to_owned());
    let (mut alone, begun) = Alone::begin(once);
    let (ticket, first) = commits(&begun)[0];
    alone.failed(ticket, unknown());
    // It is recorded: by this owner, or by another that has taken over meanwhile and performed it.
    let mut actions = alone.loaded(first);
    for error in [unknown(), Error::Unavailable("it is away".to_owned())] {
        assert!(attempts(&actions).is_empty(), "{actions:?}");
        let (ticket, commit) = commits(&actions)[0];
        assert!(commit.journals.is_empty() && commit.fences.len() == 1);
        alone.failed(ticket, error);
        actions = alone.loaded(first);
    }
    let actions = alone.committed(commits(&actions)[0].0);
    assert_eq!(
        attempts(&actions).len(),
        1,
        "nobody else was the owner: {actions:?}"
    );
}

#[test]
fn what_another_owner_has_begun_is_not_begun_again() {
    let once = Chain {
        delivery: DeliveryGuarantee::AtMostOnce,
        ..Chain::of(1)
    };
    let (mut alone, begun) = Alone::begin(once);
    let (ticket, first) = commits(&begun)[0];
    alone.failed(
        ticket,
        Error::OutcomeUnknown("nothing was heard of it".to_owned()),
    );
    let actions = alone.loaded(first);
    let fenced = CommitConflict::Fenced {
        shard: ShardId(0),
        held: ShardEpoch(2),
        given: ShardEpoch(1),
    };
    let actions = alone.failed(commits(&actions)[0].0, fenced.into());
    assert!(
        attempts(&actions).is_empty() && matches!(actions[..], [ShardAction::ShardLost]),
        "{actions:?}"
    );
}

/// A task that reaches out is wanted, and then the guest computes.
struct Busy;

impl FunctionResolver for Busy {
    fn create_guest(&self, _: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        Ok(Box::new(ScriptedGuest::new(|host| async move {
            host.invoke_function("task", json("0")).await?;
            let asked = host.schedule_function("request", json("1")).await?;
            let done = host.schedule_function("task", json("2")).await?;
            host.await_any(&[asked, done]).await?.1?;
            // A poll that asks for nothing is a pause.
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
fn a_guest_that_computes_does_not_hold_back_what_it_wanted_before() {
    let (mut alone, begun) = Alone::begin(Busy);
    let ahead = alone.ended(&attempts(&begun)[0]);
    alone.ended(&attempts(&ahead)[0]);
    let actions = alone.committed(commits(&begun)[0].0);
    let actions = alone.committed(commits(&actions)[0].0);
    assert!(
        attempts(&actions)
            .iter()
            .any(|attempt| &*attempt.function == "request"),
        "{actions:?}"
    );
}
