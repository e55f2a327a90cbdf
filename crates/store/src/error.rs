//! Store errors. Every error has a [`StoreErrorKind`] that determines how the caller reacts;
//! callers never parse the message.

use std::fmt;

use onward_journal::ExecutionId;
use onward_runs::{KeyMismatch, RunEventId, RunId, RunSeq};
use thiserror::Error;

use crate::{RowKey, RunEventReader, ShardEpoch, ShardId};

/// How a caller must react to an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreErrorKind {
    /// Nothing was stored; the same call may succeed later.
    Retry,
    /// In doubt: the commit may or may not be stored. Repeating it is safe, because its guards or
    /// idempotency keys detect the duplicate.
    Unknown,
    /// Nothing was stored: the stored state differs from what the caller expected. Read again and
    /// decide again.
    Conflict,
    /// Nothing was stored: the call itself is invalid, and repeating it fails again.
    Invalid,
    /// The stored data is inconsistent. An operator must investigate.
    Corrupt,
    /// The store refuses all further calls. The process should stop.
    Fatal,
}

/// The reason why a store call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The store is unreachable or overloaded.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The connection was lost during a commit, so its outcome is in doubt.
    #[error("it is not known whether the commit was stored: {0}")]
    OutcomeUnknown(String),
    /// The disk of the store is full.
    #[error("the disk of the store is full: {0}")]
    DiskFull(String),
    /// A guard of the commit failed.
    #[error(transparent)]
    Conflict(#[from] CommitConflict),
    /// The call is invalid and can never succeed.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// The store returned data that no valid write can have produced.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// A stored run event cannot be read, or was changed after it was written. The other events of
    /// its run can be read.
    #[error("the store is damaged: event {run_seq} of run {run}: {reason}")]
    UnreadableEvent {
        /// The run of the event.
        run: RunId,
        /// The sequence number of the event.
        run_seq: RunSeq,
        /// What is wrong with the stored event.
        reason: String,
    },
    /// A disk write failed in a way after which the store must not acknowledge anything.
    #[error("the store has stopped after a failed write, restart the process: {0}")]
    Poisoned(String),
    /// This program cannot use the store at all, for example because of its schema version.
    #[error("{0}")]
    Unusable(String),
    /// The store was opened read-only, and its schema is older than this program.
    #[error(
        "the schema of the store is older than this program: migration {number} ({name}) is missing. \
         Run a command that writes, such as `onward serve`, to upgrade it"
    )]
    SchemaOutdated {
        /// Number of the newest missing migration.
        number: u32,
        /// Name of that migration.
        name: &'static str,
    },
    /// The store was closed before the call.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// Returns how the caller must react to this error.
    pub const fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Unavailable(_) | Self::DiskFull(_) => StoreErrorKind::Retry,
            Self::OutcomeUnknown(_) => StoreErrorKind::Unknown,
            Self::Conflict(_) => StoreErrorKind::Conflict,
            Self::Invalid(_) => StoreErrorKind::Invalid,
            Self::Corrupt(_) | Self::UnreadableEvent { .. } => StoreErrorKind::Corrupt,
            Self::Poisoned(_) | Self::Unusable(_) | Self::SchemaOutdated { .. } | Self::Closed => {
                StoreErrorKind::Fatal
            }
        }
    }

    /// Returns [`Error::Corrupt`] with this description of the damaged data.
    pub fn corrupt(what: impl fmt::Display) -> Self {
        Self::Corrupt(what.to_string())
    }
}

/// The guard that failed. Nothing of the commit was stored.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommitConflict {
    /// Another node has taken over the shard.
    #[error(
        "shard {shard} is at epoch {held}, the commit was made under epoch {given}: another node has taken over"
    )]
    Fenced {
        /// The shard that the commit was fenced by.
        shard: ShardId,
        /// The epoch in the store; 0 if the shard never had an owner.
        held: ShardEpoch,
        /// The epoch that the commit was fenced with.
        given: ShardEpoch,
    },
    /// The journal does not have the length that the caller expected.
    #[error("the journal of {execution} has {found} events, expected {expected}")]
    JournalLength {
        /// The execution that the journal belongs to.
        execution: ExecutionId,
        /// The number of events that the caller expected.
        expected: u64,
        /// The number of events that the store holds.
        found: u64,
    },
    /// The table already has a row with the key to insert.
    #[error("{table} has a row {key} already")]
    RowExists {
        /// Name of the table.
        table: &'static str,
        /// Key of the existing row.
        key: RowKey,
    },
    /// Another row has the same values in a set of unique columns.
    #[error("{table} has another row with the same {}", columns.join(", "))]
    NotUnique {
        /// Name of the table.
        table: &'static str,
        /// The set of columns that must be unique together.
        columns: &'static [&'static str],
        /// Key of the row that already has these values.
        key: RowKey,
    },
    /// The row to change does not exist, or was changed since the caller read it.
    #[error("{table} row {key} is at version {found}, expected {expected} (0 means absent)")]
    RowVersion {
        /// Name of the table.
        table: &'static str,
        /// Key of the row to change.
        key: RowKey,
        /// The version that the caller expected.
        expected: u64,
        /// The version that the store holds; 0 if the row does not exist.
        found: u64,
    },
    /// The reader's position in a run is not the one that the caller expected.
    #[error("the {reader} is at event {found} of run {run}, expected {expected}")]
    ReaderPosition {
        /// The run that the position belongs to.
        run: RunId,
        /// The reader to move.
        reader: RunEventReader,
        /// The position that the caller expected.
        expected: RunSeq,
        /// The position that the store holds.
        found: RunSeq,
    },
    /// The run belongs to a different tenant, project or environment than the event.
    #[error("run {run} belongs to another tenant, project or environment")]
    ForeignRun {
        /// Index of the event in the call, from 0.
        index: usize,
        /// The run that the event was addressed to.
        run: RunId,
    },
    /// An event with this id but another idempotency key already exists.
    #[error("event id {event_id} belongs to another event already")]
    EventIdTaken {
        /// Index of the event in the call, from 0.
        index: usize,
        /// The event id that is already in use.
        event_id: RunEventId,
    },
}

/// The reason why a call can never succeed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidRequest {
    /// The idempotency key of the event does not match its fields.
    #[error("{mismatch}")]
    IdempotencyKey {
        /// Index of the event in the call, from 0.
        index: usize,
        /// The expected key and the key found.
        mismatch: KeyMismatch,
    },
    /// The fields of the event contradict each other.
    #[error("{reason}")]
    Event {
        /// Index of the event in the call, from 0.
        index: usize,
        /// Description of the contradiction.
        reason: String,
    },
    /// The call exceeds one of the [`StoreLimits`](crate::StoreLimits).
    #[error("{what}: {found} is over the limit of {limit}")]
    Limit {
        /// The quantity that is over the limit.
        what: &'static str,
        /// The amount in the call.
        found: usize,
        /// The largest amount allowed.
        limit: usize,
    },
    /// A journal append has no events, or more than a journal can hold.
    #[error(
        "an append to the journal of {0} needs at least one event, and a journal has room for 2^64 of them"
    )]
    EmptyAppend(ExecutionId),
    /// The commit touches a shard fence, journal, row, set of unique values or reader position more
    /// than once.
    #[error("the commit touches {0} twice")]
    TouchedTwice(String),
    /// A value does not fit the column of the table.
    #[error("{table}.{column}: {reason}")]
    Value {
        /// Name of the table.
        table: &'static str,
        /// Name of the column.
        column: &'static str,
        /// Why the column does not accept the value.
        reason: &'static str,
    },
    /// A reader position may only move forward, and not past the end of the log.
    #[error(
        "the {reader} of run {run} cannot move from event {from} to {to}; the log ends at {last}"
    )]
    ReaderAdvance {
        /// The run that the position belongs to.
        run: RunId,
        /// The reader to move.
        reader: RunEventReader,
        /// The position before the move.
        from: RunSeq,
        /// The position that the caller asked for.
        to: RunSeq,
        /// The last event of the run; 0 if the run has no events.
        last: RunSeq,
    },
    /// The run does not exist.
    #[error("run {0} not found")]
    NoSuchRun(RunId),
    /// A constraint of the database rejected a row, for example because of an unknown status.
    #[error("the database rejected the row: {0}")]
    RefusedByDatabase(String),
}
