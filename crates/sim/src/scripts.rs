//! The workflows and tasks of the simulated world. What they return does not depend on what fails.

use onward_engine::shard::{Caller, Entry, Functions, Hosts, Resolved, Unready};
use onward_execution::{Answer, Guest, Host, Script, Taken, Turn};
use onward_journal::{ComponentDigest, Delivery, ErrorKind, ExecutionError, InvokeResult, Payload, RetryPolicy};

/// All of them, as one component.
pub(crate) struct Scripts;

pub(crate) fn digest() -> ComponentDigest {
    ComponentDigest::of(b"the scripts of the simulation")
}

pub(crate) fn number(value: u64) -> Payload {
    Payload::of(&value).unwrap_or_else(|_| Payload::null())
}

fn value(payload: &Payload) -> u64 {
    payload.as_str().parse().unwrap_or(0)
}

/// What a workflow returns for an input; `None` when it is cancelled, or has several good ends.
pub(crate) type Expected = fn(u64) -> Option<u64>;

/// The workflows.
pub(crate) const WORKFLOWS: [(&str, Expected); 15] = [
    ("chain", |n| Some(n)),
    ("dice", |n| Some(n)),
    ("fan", |n| Some(n * (n + 1) / 2)),
    ("flaky", |_| Some(3)),
    ("sleeper", |n| Some(n)),
    ("waiter", |_| Some(7)),
    ("impatient", |_| Some(1)),
    ("careful", |_| None),
    ("counter", |_| Some(0)),
    ("endless", |_| None),
    ("parent", |n| Some(n + n * (n + 1) / 2)),
    ("remote", |n| Some(n * (n + 1) / 2)),
    ("remote_once", |_| None),
    ("remote_race", |_| Some(1)),
    ("remote_endless", |_| None),
];

/// A guest that uses up its slice of time now and then.
struct Slow {
    script: Script,
    held: Option<Answer>,
    turns: u32,
}

impl Guest for Slow {
    fn turn(&mut self, answer: Option<Answer>) -> Turn {
        self.turns += 1;
        if self.turns % 5 == 1 {
            self.held = answer;
            return Turn::Pauses;
        }
        self.script.turn(answer.or_else(|| self.held.take()))
    }
}

impl Functions for Scripts {
    fn guest(&self, entry: &Entry<'_>) -> Result<Box<dyn Guest>, Unready> {
        let (execution, input) = (entry.execution, entry.input);
        let n = value(input);
        let script = match &*execution.function {
            "chain" => Script::new(move |host| chain(host, n)),
            "dice" => Script::new(move |host| dice(host, n)),
            "fan" => Script::new(move |host| fan(host, n)),
            "flaky" => Script::new(move |host| async move { host.invoke("third_time", number(n)).await }),
            "sleeper" => Script::new(move |host| sleeper(host, n)),
            "waiter" => Script::new(waiter),
            "impatient" => Script::new(impatient),
            "careful" => Script::new(move |host| careful(host, n)),
            "counter" => Script::new(move |host| counter(host, n)),
            "endless" => Script::new(endless),
            "parent" => Script::new(move |host| parent(host, n)),
            "remote" => Script::new(move |host| remote(host, n)),
            "remote_once" => Script::new(move |host| remote_once(host, n)),
            "remote_race" => Script::new(remote_race),
            "remote_endless" => Script::new(remote_endless),
            other => return Err(Unready::Broken(format!("there is no workflow {other}"))),
        };
        // Some pause in their first turn, some do not.
        let turns = u32::from(execution.execution_id.as_bytes()[1]) % 5;
        Ok(Box::new(Slow { script, held: None, turns }))
    }

    fn resolve(&self, _: Caller<'_>, function: &str) -> Resolved {
        if WORKFLOWS.iter().any(|(name, _)| *name == function) {
            Resolved::Workflow(digest())
        } else if ["echo", "third_time", "once", "undo"].contains(&function) {
            Resolved::Task(digest())
        } else if ["far", "far_once"].contains(&function) {
            Resolved::Worker
        } else {
            Resolved::Unknown
        }
    }

    fn hosts(&self, _: Caller<'_>, function: &str) -> Hosts {
        if REACH_OUT.contains(&function) { Hosts::from(["example.org".into()]) } else { Hosts::from([]) }
    }
}

/// Tasks that others can tell were performed.
const REACH_OUT: [&str; 2] = ["third_time", "undo"];

/// What a task does.
pub(crate) fn perform(function: &str, input: &Payload, attempt: u32) -> InvokeResult {
    match (function, attempt) {
        ("third_time", 1 | 2) => Err(ExecutionError::new(ErrorKind::Timeout, "not yet")),
        ("third_time", _) => Ok(number(u64::from(attempt))),
        _ => Ok(input.clone()),
    }
}

async fn chain(host: Host, n: u64) -> InvokeResult {
    let mut last = 0;
    for step in 1..=n {
        last = value(&host.invoke("echo", number(step)).await?);
    }
    Ok(number(last))
}

/// Whoever is told what was thrown another time finds out.
async fn dice(host: Host, n: u64) -> InvokeResult {
    for _ in 0..n {
        let thrown = host.random(8).await?.iter().fold(0, |sum, byte| sum * 251 + u64::from(*byte));
        let told = host.invoke("echo", number(thrown)).await?;
        if value(&told) != thrown {
            return Err(ExecutionError::named("wrong", format!("threw {thrown} and was told {}", told.as_str())));
        }
    }
    Ok(number(n))
}

async fn fan(host: Host, n: u64) -> InvokeResult {
    let set = host.join_set().await?;
    for step in 1..=n {
        let promise = host.schedule("echo", number(step)).await?;
        host.submit(set, promise).await?;
    }
    let mut sum = 0;
    while let Taken::Result(_, result) = host.next(set, None).await? {
        sum += value(&result?);
    }
    Ok(number(sum))
}

async fn sleeper(host: Host, n: u64) -> InvokeResult {
    for _ in 0..n {
        host.sleep(3_000).await?;
    }
    Ok(number(n))
}

async fn waiter(host: Host) -> InvokeResult {
    let signal = host.signal("go", None).await?;
    Ok(signal.unwrap_or_else(Payload::null))
}

async fn impatient(host: Host) -> InvokeResult {
    let none = host.signal("never", Some(2_000)).await?;
    let set = host.join_set().await?;
    let promise = host.schedule("third_time", number(0)).await?;
    host.submit(set, promise).await?;
    while host.next(set, Some(500)).await? == Taken::TimedOut {}
    Ok(number(u64::from(none.is_none())))
}

async fn careful(host: Host, n: u64) -> InvokeResult {
    let promise = host.schedule_as("once", number(n), None, Delivery::AtMostOnce).await?;
    match host.wait(promise).await {
        Err(error) if error.kind.as_str() == "in_doubt" => Ok(number(99)),
        other => other,
    }
}

async fn counter(host: Host, n: u64) -> InvokeResult {
    host.invoke("echo", number(n)).await?;
    if n > 0 {
        host.continue_as_new(number(n - 1)).await?;
    }
    Ok(number(n))
}

async fn endless(host: Host) -> InvokeResult {
    let set = host.join_set().await?;
    let child = host.schedule("sleeper", number(1_000_000)).await?;
    host.submit(set, child).await?;
    let waited = host.next(set, None).await;
    host.invoke("undo", number(1)).await?;
    match waited {
        Err(error) => Err(error),
        Ok(_) => Ok(number(0)),
    }
}

async fn parent(host: Host, n: u64) -> InvokeResult {
    let first = host.schedule("chain", number(n)).await?;
    let second = host.schedule("fan", number(n)).await?;
    let both = host.all(&[first, second]).await?;
    let mut sum = 0;
    for result in both {
        sum += value(&result?);
    }
    Ok(number(sum))
}

/// As often as it takes: workers are lost.
fn patient() -> Option<Box<RetryPolicy>> {
    Some(Box::new(RetryPolicy { max_attempts: None, timeout_ms: Some(4_000), ..RetryPolicy::default() }))
}

/// One after the other, then all at once.
async fn remote(host: Host, n: u64) -> InvokeResult {
    let mut promises = Vec::new();
    for step in 1..=n {
        let promise = host.schedule_as("far", number(step), patient(), Delivery::AtLeastOnce).await?;
        if step.is_multiple_of(2) {
            host.wait(promise).await?;
        }
        promises.push(promise);
    }
    let mut sum = 0;
    for result in host.all(&promises).await? {
        sum += value(&result?);
    }
    Ok(number(sum))
}

async fn remote_once(host: Host, n: u64) -> InvokeResult {
    let promise = host.schedule_as("far_once", number(n), patient(), Delivery::AtMostOnce).await?;
    match host.wait(promise).await {
        Err(error) if error.kind.as_str() == "in_doubt" => Ok(number(99)),
        other => other,
    }
}

/// Nobody waits for the task any more.
async fn remote_race(host: Host) -> InvokeResult {
    let set = host.join_set().await?;
    let promise = host.schedule_as("far", number(1), patient(), Delivery::AtLeastOnce).await?;
    host.submit(set, promise).await?;
    host.next(set, Some(200)).await?;
    host.close(set).await?;
    host.sleep(100).await?;
    Ok(number(1))
}

/// Its task is taken back when it is cancelled.
async fn remote_endless(host: Host) -> InvokeResult {
    loop {
        let promise = host.schedule_as("far", number(1), patient(), Delivery::AtLeastOnce).await?;
        host.wait(promise).await?;
        host.sleep(1_000).await?;
    }
}
