//! The worked journals of the specification, produced by scripts.

use onward_execution::{Guest, JoinSetNext, ScriptedGuest};
use onward_journal::{ErrorKind, ExecutionError};

use crate::engine::{json, plan, run_without_crash};

pub(crate) fn full_example() -> Box<dyn Guest> {
    Box::new(ScriptedGuest::new(|host| async move {
        host.random_bytes(8).await?;
        host.invoke_function("fetch_user", json("{\"id\":42}"))
            .await?;
        let set = host.create_join_set().await?;
        for task in ["send_email", "send_sms"] {
            let promise = host.schedule_function(task, json("{}")).await?;
            host.submit_to_join_set(set, promise).await?;
        }
        let mut order = Vec::new();
        while let JoinSetNext::Result(number, result) = host.next_result(set, None).await? {
            result?;
            order.push(number);
        }
        Ok(json(&format!("{order:?}")))
    }))
}

#[test]
fn a_task_randomness_and_a_join_set() {
    let outcome = run_without_crash(&plan(
        full_example,
        &[
            ("fetch_user", |_, _| Ok(json("{\"name\":\"Ada\"}"))),
            ("send_email", |_, attempt| match attempt {
                1 => Err(ExecutionError::new(ErrorKind::Timeout, "no answer")),
                _ => Ok(json("true")),
            }),
            ("send_sms", |_, _| Ok(json("true"))),
        ],
    ));
    assert_eq!(
        outcome.kinds(),
        [
            "ExecutionStarted",
            "RandomGenerated",
            "InvokeScheduled",
            "ExecutionAwaiting",
            "InvokeStarted",
            "InvokeCompleted",
            "ExecutionResumed",
            "JoinSetCreated",
            "InvokeScheduled",
            "JoinSetSubmitted",
            "InvokeScheduled",
            "JoinSetSubmitted",
            "ExecutionAwaiting",
            "InvokeStarted",
            "InvokeStarted",
            "InvokeRetrying",
            "InvokeCompleted",
            "ExecutionResumed",
            "JoinSetAwaited",
            "ExecutionAwaiting",
            "InvokeStarted",
            "InvokeCompleted",
            "ExecutionResumed",
            "JoinSetAwaited",
            "ExecutionCompleted",
        ]
    );
    assert_eq!(
        outcome.result,
        Ok(json("[4, 3]")),
        "the one that completed first is taken first"
    );
    assert_eq!(
        outcome.calls,
        ["fetch_user#1", "send_email#1", "send_sms#1", "send_email#2"]
    );
}

pub(crate) fn approval() -> Box<dyn Guest> {
    Box::new(ScriptedGuest::new(|host| async move {
        host.invoke_function("create_order", json("{}")).await?;
        let approval = host.await_signal("user_approval", None).await?;
        Ok(approval.unwrap())
    }))
}

const BUFFERED: [&str; 9] = [
    "ExecutionStarted",
    "InvokeScheduled",
    "ExecutionAwaiting",
    "InvokeStarted",
    "SignalDelivered",
    "InvokeCompleted",
    "ExecutionResumed",
    "SignalReceived",
    "ExecutionCompleted",
];

#[test]
fn a_signal_that_comes_before_it_is_awaited() {
    let mut plan = plan(approval, &[("create_order", |_, _| Ok(json("7")))]);
    plan.signals = vec![(1, "user_approval", "{\"approved\":true}")];
    let outcome = run_without_crash(&plan);
    let mut kinds = outcome.kinds();
    kinds.sort_unstable();
    let mut expected = BUFFERED;
    expected.sort_unstable();
    assert_eq!(kinds, expected);
    assert_eq!(outcome.result, Ok(json("{\"approved\":true}")));
    assert_eq!(
        outcome
            .kinds()
            .iter()
            .filter(|kind| **kind == "ExecutionAwaiting")
            .count(),
        1,
        "it does not block for it"
    );
}

#[test]
fn a_signal_that_comes_after_it_is_awaited() {
    let mut plan = plan(approval, &[("create_order", |_, _| Ok(json("7")))]);
    plan.signals = vec![(2, "user_approval", "{\"approved\":true}")];
    let outcome = run_without_crash(&plan);
    assert_eq!(
        outcome.kinds(),
        [
            "ExecutionStarted",
            "InvokeScheduled",
            "ExecutionAwaiting",
            "InvokeStarted",
            "InvokeCompleted",
            "ExecutionResumed",
            "ExecutionAwaiting",
            "SignalDelivered",
            "SignalReceived",
            "ExecutionResumed",
            "ExecutionCompleted",
        ]
    );
}
