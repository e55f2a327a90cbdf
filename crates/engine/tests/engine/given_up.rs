//! A task that its own step has given up: the end is durable together with the start, and nothing is performed after it.

use std::sync::Arc;

use onward_engine::shard::{Action, Caller, Core, Entry, Functions, Hosts, Input, Options, Resolved, Unready};
use onward_execution::{Execution as InMemory, Guest, Limits, Script, Start};
use onward_journal::{ComponentDigest, Delivery, ExecutionId, RetryPolicy, Timestamp};
use onward_store::tables::Execution;
use onward_store::{Epoch, Receipt, Shard};

use crate::code::json;

/// One function is there, the other is not.
struct Half;

impl Functions for Half {
    fn guest(&self, _: &Entry<'_>) -> Result<Box<dyn Guest>, Unready> {
        Ok(Box::new(Script::new(|host| async move {
            let once = RetryPolicy { max_attempts: std::num::NonZeroU32::new(1), ..RetryPolicy::default() };
            let set = host.join_set().await?;
            for (function, retry) in [("task", None), ("nothing", Some(Box::new(once)))] {
                let promise = host.schedule_as(function, json("1"), retry, Delivery::AtLeastOnce).await?;
                host.submit(set, promise).await?;
            }
            host.next(set, None).await?;
            Ok(json("\"over\""))
        })))
    }

    fn resolve(&self, _: Caller<'_>, function: &str) -> Resolved {
        if function == "task" { Resolved::Task(digest()) } else { Resolved::Unknown }
    }

    fn hosts(&self, _: Caller<'_>, _: &str) -> Hosts {
        Hosts::default()
    }
}

fn digest() -> ComponentDigest {
    ComponentDigest::of(b"half")
}

#[test]
fn what_a_step_starts_and_gives_up_is_not_performed() {
    let (id, now) = (ExecutionId::from_bytes([7; 32]), Timestamp::EPOCH);
    let start = Start { component_digest: digest(), input: json("1"), parent: None, key: None, signals: Vec::new() };
    let execution = Box::new(InMemory::start(id, start, now, Limits::default()).unwrap());
    let row = Box::new(Execution {
        execution_id: id,
        tenant_id: "acme".parse().unwrap(),
        project_id: "shop".parse().unwrap(),
        environment_id: "prod".parse().unwrap(),
        shard: Shard(0),
        function: "half".into(),
        component_digest: digest(),
        start_key: None,
        state: "Running".into(),
        wake_at: now,
        created_at: now,
        body: [].into(),
    });
    let mut core = Core::new(Shard(0), Epoch(1), Arc::new(Half), Box::new(|bytes| bytes.fill(1)), Options::default());
    let begun = core.handle(Input::Begin { row, execution }, now);
    let Some(Action::Commit { ticket, .. }) = begun.into_iter().find(|it| matches!(it, Action::Commit { .. })) else {
        panic!("its first step is not stored")
    };
    let actions = core.handle(Input::Committed { ticket, result: Ok(Receipt::default()) }, now);
    assert!(actions.iter().any(|it| matches!(it, Action::Over { .. })), "{actions:?}");
    assert!(!actions.iter().any(|it| matches!(it, Action::Perform(_))), "{actions:?}");
}
