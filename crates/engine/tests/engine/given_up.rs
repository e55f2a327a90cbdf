//! A task that its own step has given up: the end is durable together with the start, and nothing is performed after it.

use onward_engine::shard::{Action, Caller, Entry, Functions, Hosts, Resolved, Unready};
use onward_execution::{Guest, Script};
use onward_journal::{Delivery, RetryPolicy};

use crate::alone::{Alone, attempts, commits, digest};
use crate::code::json;

/// One function is there, the other is not.
struct Half(Hosts);

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
        self.0.clone()
    }
}

#[test]
fn what_a_step_starts_and_gives_up_is_not_performed() {
    for hosts in [Hosts::from([]), Hosts::from(["example.org".into()])] {
        let (mut alone, begun) = Alone::begin(Half(hosts));
        assert!(attempts(&begun).is_empty(), "{begun:?}");
        let actions = alone.committed(commits(&begun)[0].0);
        assert!(actions.iter().any(|it| matches!(it, Action::Over { .. })), "{actions:?}");
        assert!(attempts(&actions).is_empty(), "{actions:?}");
    }
}
