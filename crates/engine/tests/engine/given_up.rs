//! A task that its own step has given up: the end is durable together with the start, and nothing
//! is performed after it.

use onward_engine::shard::{
    AllowedHosts, FunctionCaller, FunctionResolver, GuestEntry, GuestUnavailable, ResolvedFunction,
    ShardAction,
};
use onward_execution::{Guest, ScriptedGuest};
use onward_journal::{DeliveryGuarantee, RetryPolicy};

use crate::alone::{Alone, attempts, commits, digest};
use crate::code::json;

/// One function is there, the other is not.
struct Half(AllowedHosts);

impl FunctionResolver for Half {
    fn create_guest(&self, _: &GuestEntry<'_>) -> Result<Box<dyn Guest>, GuestUnavailable> {
        Ok(Box::new(ScriptedGuest::new(|host| async move {
            let once = RetryPolicy {
                max_attempts: std::num::NonZeroU32::new(1),
                ..RetryPolicy::default()
            };
            let set = host.create_join_set().await?;
            for (function, retry) in [("task", None), ("nothing", Some(Box::new(once)))] {
                let promise = host
                    .schedule_with_policy(
                        function,
                        json("1"),
                        retry,
                        DeliveryGuarantee::AtLeastOnce,
                    )
                    .await?;
                host.submit_to_join_set(set, promise).await?;
            }
            host.next_result(set, None).await?;
            Ok(json("\"over\""))
        })))
    }

    fn resolve_function(&self, _: FunctionCaller<'_>, function: &str) -> ResolvedFunction {
        if function == "task" {
            ResolvedFunction::Task(digest())
        } else {
            ResolvedFunction::Unknown
        }
    }

    fn allowed_hosts(&self, _: FunctionCaller<'_>, _: &str) -> AllowedHosts {
        self.0.clone()
    }
}

#[test]
fn what_a_step_starts_and_gives_up_is_not_performed() {
    for hosts in [
        AllowedHosts::from([]),
        AllowedHosts::from(["example.org".into()]),
    ] {
        let (mut alone, begun) = Alone::begin(Half(hosts));
        assert!(attempts(&begun).is_empty(), "{begun:?}");
        let actions = alone.committed(commits(&begun)[0].0);
        assert!(
            actions
                .iter()
                .any(|it| matches!(it, ShardAction::ExecutionOver { .. })),
            "{actions:?}"
        );
        assert!(attempts(&actions).is_empty(), "{actions:?}");
    }
}
