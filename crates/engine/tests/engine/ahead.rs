//! An execution goes on while its last commit is under way, and nobody outside can tell.

use onward_engine::shard::{Action, Caller, Entry, Functions, Hosts, Resolved, Unready};
use onward_execution::{Guest, Script};
use onward_journal::Delivery;
use onward_store::Error;

use crate::alone::{Alone, attempts, commits, digest, events};
use crate::code::json;

/// A chain of `steps` tasks.
#[derive(Clone)]
struct Chain {
    steps: u32,
    hosts: Hosts,
    delivery: Delivery,
    resolved: Resolved,
}

impl Chain {
    /// Of tasks that reach nobody.
    fn of(steps: u32) -> Self {
        Self { steps, hosts: Hosts::from([]), delivery: Delivery::AtLeastOnce, resolved: Resolved::Task(digest()) }
    }
}

impl Functions for Chain {
    fn guest(&self, _: &Entry<'_>) -> Result<Box<dyn Guest>, Unready> {
        let Self { steps, delivery, .. } = *self;
        Ok(Box::new(Script::new(move |host| async move {
            for step in 0..steps {
                let promise = host.schedule_as("task", json(&step.to_string()), None, delivery).await?;
                host.wait(promise).await?;
            }
            Ok(json("\"over\""))
        })))
    }

    fn resolve(&self, _: Caller<'_>, _: &str) -> Resolved {
        self.resolved
    }

    fn hosts(&self, _: Caller<'_>, _: &str) -> Hosts {
        self.hosts.clone()
    }
}

#[test]
fn steps_that_reach_nobody_share_the_next_commit() {
    let (mut alone, mut actions) = Alone::begin(Chain::of(3));
    let (first, commit) = commits(&actions)[0];
    assert!(commit.is_unhurried);
    for _ in 0..3 {
        let attempt = attempts(&actions).remove(0);
        actions = alone.ended(&attempt);
        assert!(commits(&actions).is_empty(), "one commit at a time: {actions:?}");
    }
    assert!(actions.is_empty(), "nobody is told of an end that is not durable: {actions:?}");

    let actions = alone.committed(first);
    let (second, commit) = commits(&actions)[0];
    assert_eq!(events(commit).iter().filter(|name| *name == "InvokeCompleted").count(), 3);
    assert_eq!(events(commit).last().unwrap(), "ExecutionCompleted");
    assert!(!actions.iter().any(|it| matches!(it, Action::Over { .. })), "{actions:?}");
    let actions = alone.committed(second);
    assert!(actions.iter().any(|it| matches!(it, Action::Over { .. })), "{actions:?}");
}

#[test]
fn what_others_can_notice_waits_for_its_commit() {
    let reaching_out = Chain { hosts: Hosts::from(["example.org".into()]), ..Chain::of(2) };
    let at_most_once = Chain { delivery: Delivery::AtMostOnce, ..Chain::of(2) };
    let of_the_process = Chain { resolved: Resolved::Native, ..Chain::of(2) };
    for chain in [reaching_out, at_most_once, of_the_process] {
        let (mut alone, begun) = Alone::begin(chain);
        assert!(attempts(&begun).is_empty(), "{begun:?}");
        let (ticket, commit) = commits(&begun)[0];
        assert!(!commit.is_unhurried, "there is nothing to do meanwhile");
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
    let actions = alone.failed(commits(&begun)[0].0, Error::Unavailable("the disk is away".to_owned()));
    assert!(actions.iter().any(|it| matches!(it, Action::Abandon(id) if *id == attempt.id)), "{actions:?}");
    assert!(actions.iter().any(|it| matches!(it, Action::Begun { result: Some(Err(_)), .. })), "{actions:?}");
    let late = alone.ended(&attempt);
    assert!(late.is_empty(), "it ended for nobody: {late:?}");
}

#[test]
fn a_signal_that_came_before_a_start_was_refused_is_for_the_next() {
    let (mut alone, begun) = Alone::begin(Chain::of(2));
    assert!(alone.signalled().is_empty(), "it waits for the commit");
    alone.failed(commits(&begun)[0].0, Error::Unavailable("the disk is away".to_owned()));
    let actions = alone.signalled();
    assert!(actions.iter().any(|it| matches!(it, Action::Load(_))), "it is not forgotten: {actions:?}");
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
