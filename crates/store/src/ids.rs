//! Identifiers and counters that the store itself defines.

use std::fmt;

/// Identifies a shard: a slice of executions, owned by one node at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Number of times a shard has been claimed; it serves as the fencing token. The store rejects a
/// commit fenced with an older epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardEpoch(pub u64);

impl ShardEpoch {
    /// The epoch of a shard that never had an owner.
    pub const NONE: Self = Self(0);

    /// Returns the epoch of the next owner.
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

/// A number that the store assigns on insert; `None` before that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SerialId(pub Option<i64>);

/// A consumer that follows the events of every run, with a durable position in each run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunEventReader {
    /// Projects events into snapshots.
    Projector,
    /// Delivers events to external consumers. The events after its position are the outbox: an
    /// event enters it in the transaction that stores the event, exactly once and in order.
    EventBus,
}

impl RunEventReader {
    /// All readers, for code that handles each of them.
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
