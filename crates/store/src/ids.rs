//! Names and counters of the store itself.

use std::fmt;

/// A slice of executions, owned by one node at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How often a shard has changed hands. A commit made under an older epoch is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardEpoch(pub u64);

impl ShardEpoch {
    /// Nobody has ever owned the shard.
    pub const NONE: Self = Self(0);

    /// The epoch of the next owner.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl fmt::Display for ShardEpoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A number that the store assigns; `None` until it has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SerialId(pub Option<i64>);

/// Who follows the events of every run and remembers how far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunEventReader {
    /// Turns events into snapshots.
    Projector,
    /// Delivers events to the outside. What it has not yet passed is the outbox: an event is in it from the
    /// transaction that stores the event, once, and in order.
    EventBus,
}

impl RunEventReader {
    /// Every reader.
    pub const ALL: [Self; 2] = [Self::Projector, Self::EventBus];
}

impl fmt::Display for RunEventReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Projector => "projector",
            Self::EventBus => "event bus",
        })
    }
}
