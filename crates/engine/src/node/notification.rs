//! What nodes tell each other through the store. All of it is a hint: whoever misses it finds the same a little later.

use std::fmt;

use onward_base::SharedText;
use onward_journal::ExecutionId;
use onward_store::ShardId;

/// Something that another process may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notification {
    /// There is something for a shard: a start, or a message.
    ShardWork(ShardId),
    /// There is a task for workers: whose, and of which function.
    TaskQueued(SharedText, SharedText),
    /// Somebody waits for the end of an execution.
    EndingAwaited(ExecutionId),
    /// An execution is over that somebody waits for.
    ExecutionOver(ExecutionId),
}

impl Notification {
    /// What was said, if it makes sense here: a newer version may say more.
    pub(crate) fn parse(said: &str) -> Option<Self> {
        let (kind, about) = said.split_once(' ')?;
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
    fn what_is_said_is_understood() {
        for word in [
            Notification::ShardWork(ShardId(7)),
            Notification::TaskQueued("acme inc|shop|prod".into(), "send a letter".into()),
            Notification::EndingAwaited(ExecutionId::from_bytes([3; 32])),
            Notification::ExecutionOver(ExecutionId::from_bytes([4; 32])),
        ] {
            assert_eq!(Notification::parse(&word.to_string()), Some(word));
        }
        for nonsense in ["", "shard", "shard x", "news 1", "over 12", "task one"] {
            assert_eq!(Notification::parse(nonsense), None, "{nonsense}");
        }
    }
}
