//! Notifications between processes, sent through the store. All of them are hints: a process that
//! misses one finds the same in the store a little later.

use std::fmt;

use onward_base::SharedText;
use onward_journal::ExecutionId;
use onward_store::ShardId;

/// Notification to other processes that use the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notification {
    /// The store has a start or a message for this shard.
    ShardWork(ShardId),
    /// A task is queued for workers, with its owner and function.
    TaskQueued(SharedText, SharedText),
    /// A process waits for the end of this execution.
    EndingAwaited(ExecutionId),
    /// This execution, whose end another process waits for, has ended.
    ExecutionOver(ExecutionId),
}

impl Notification {
    /// Parses a notification; `None` if it is unknown, as from a newer version.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (kind, about) = text.split_once(' ')?;
        match kind {
            "shard" => about
                .parse()
                .ok()
                .map(|number| Self::ShardWork(ShardId(number))),
            "task" => about
                .split_once('\t')
                .map(|(owner, function)| Self::TaskQueued(owner.into(), function.into())),
            "awaited" => about.parse().ok().map(Self::EndingAwaited),
            "over" => about.parse().ok().map(Self::ExecutionOver),
            _ => None,
        }
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ShardWork(ShardId(number)) => write!(f, "shard {number}"),
            Self::TaskQueued(owner, function) => write!(f, "task {owner}\t{function}"),
            Self::EndingAwaited(execution) => write!(f, "awaited {execution}"),
            Self::ExecutionOver(execution) => write!(f, "over {execution}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_round_trips_through_its_text() {
        for notification in [
            Notification::ShardWork(ShardId(7)),
            Notification::TaskQueued("acme inc|shop|prod".into(), "send a letter".into()),
            Notification::EndingAwaited(ExecutionId::from_bytes([3; 32])),
            Notification::ExecutionOver(ExecutionId::from_bytes([4; 32])),
        ] {
            let text = notification.to_string();
            assert_eq!(Notification::parse(&text), Some(notification));
        }
        for invalid in ["", "shard", "shard x", "unknown 1", "over 12", "task one"] {
            assert_eq!(Notification::parse(invalid), None, "{invalid}");
        }
    }
}
