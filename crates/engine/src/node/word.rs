//! What nodes tell each other through the store. All of it is a hint: whoever misses it finds the same a little later.

use std::fmt;

use onward_journal::{ExecutionId, Text};
use onward_store::Shard;

/// Something that another process may want to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Word {
    /// There is something for a shard: a start, or a message.
    Shard(Shard),
    /// There is a task for workers: whose, and of which function.
    Task(Text, Text),
    /// Somebody waits for the end of an execution.
    Awaited(ExecutionId),
    /// An execution is over that somebody waits for.
    Over(ExecutionId),
}

impl Word {
    /// What was said, if it makes sense here: a newer version may say more.
    pub(crate) fn parse(said: &str) -> Option<Self> {
        let (kind, about) = said.split_once(' ')?;
        match kind {
            "shard" => about.parse().ok().map(|number| Self::Shard(Shard(number))),
            "task" => about.split_once('\t').map(|(owner, function)| Self::Task(owner.into(), function.into())),
            "awaited" => about.parse().ok().map(Self::Awaited),
            "over" => about.parse().ok().map(Self::Over),
            _ => None,
        }
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Shard(Shard(number)) => write!(f, "shard {number}"),
            Self::Task(owner, function) => write!(f, "task {owner}\t{function}"),
            Self::Awaited(execution) => write!(f, "awaited {execution}"),
            Self::Over(execution) => write!(f, "over {execution}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood() {
        for word in [
            Word::Shard(Shard(7)),
            Word::Task("acme inc|shop|prod".into(), "send a letter".into()),
            Word::Awaited(ExecutionId::from_bytes([3; 32])),
            Word::Over(ExecutionId::from_bytes([4; 32])),
        ] {
            assert_eq!(Word::parse(&word.to_string()), Some(word));
        }
        for nonsense in ["", "shard", "shard x", "news 1", "over 12", "task one"] {
            assert_eq!(Word::parse(nonsense), None, "{nonsense}");
        }
    }
}
