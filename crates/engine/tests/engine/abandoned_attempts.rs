//! An attempt that its own step abandons: start and end are durable together, and nothing is
//! performed.

use onward_engine::shard::{
    AllowedHosts, FunctionCaller, FunctionResolver, GuestEntry, GuestUnavailable, ResolvedFunction,
    ShardAction,
};
use onward_execution::{Guest, ScriptedGuest};
use onward_journal::{DeliveryGuarantee, RetryPolicy};

use crate::core_harness::{CoreHarness, attempts, commits, digest};
use crate::script_runtime::json;

/// One function exists, the other does not.
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
fn an_attempt_started_and_abandoned_in_one_step_is_not_performed() {
    for hosts in [
        AllowedHosts::from([]),
        AllowedHosts::from(["example.org".into()]),
    ] {
        let (mut core, started) = CoreHarness::begin(Half(hosts));
        assert!(attempts(&started).is_empty(), "{started:?}");
        let actions = core.committed(commits(&started)[0].0);
        assert!(
            actions
                .iter()
                .any(|it| matches!(it, ShardAction::ExecutionOver { .. })),
            "{actions:?}"
        );
        assert!(attempts(&actions).is_empty(), "{actions:?}");
    }
}
