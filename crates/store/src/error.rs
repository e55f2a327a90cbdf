//! What can go wrong, and what to do about it: every error has a [`Kind`], and no caller ever reads its text.

use std::fmt;

use onward_journal::ExecutionId;
use onward_runs::{KeyMismatch, RunEventId, RunId, RunSeq};
use thiserror::Error;

use crate::{RowKey, RunEventReader, ShardEpoch, ShardId};

/// What a caller does about an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreErrorKind {
    /// Nothing was stored and the same call may succeed later.
    Retry,
    /// The commit may or may not be stored. Repeating it is safe: its guards, or its idempotency keys, tell which.
    Unknown,
    /// Nothing was stored: the store holds something else than the caller believed. Read again, decide again.
    Conflict,
    /// Nothing was stored: the call itself is wrong and will be wrong next time.
    Invalid,
    /// What is stored contradicts itself. Somebody has to look.
    Corrupt,
    /// The store refuses to go on. The process should stop.
    Fatal,
}

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The store cannot be reached, or is too busy.
    #[error("the store is unavailable: {0}")]
    Unavailable(String),
    /// The connection was lost while committing.
    #[error("it is not known whether the commit was stored: {0}")]
    OutcomeUnknown(String),
    /// The disk is full.
    #[error("the disk of the store is full: {0}")]
    DiskFull(String),
    /// A guard of the commit does not hold.
    #[error(transparent)]
    Conflict(#[from] CommitConflict),
    /// The call cannot be carried out as it is.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
    /// What was read back is not what can have been written.
    #[error("the store is damaged: {0}")]
    Corrupt(String),
    /// A write to disk failed in a way after which nothing more may be acknowledged.
    #[error("the store has stopped after a failed write, restart the process: {0}")]
    Poisoned(String),
    /// The store cannot be used by this program at all.
    #[error("{0}")]
    Unusable(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
}

impl Error {
    /// What to do about it.
    pub const fn kind(&self) -> StoreErrorKind {
        match self {
            Self::Unavailable(_) | Self::DiskFull(_) => StoreErrorKind::Retry,
            Self::OutcomeUnknown(_) => StoreErrorKind::Unknown,
            Self::Conflict(_) => StoreErrorKind::Conflict,
            Self::Invalid(_) => StoreErrorKind::Invalid,
            Self::Corrupt(_) => StoreErrorKind::Corrupt,
            Self::Poisoned(_) | Self::Unusable(_) | Self::Closed => StoreErrorKind::Fatal,
        }
    }

    /// What was read back is not what can have been written.
    pub fn corrupt(what: impl fmt::Display) -> Self {
        Self::Corrupt(what.to_string())
    }
}

/// The guard that did not hold. Nothing of the commit was stored.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommitConflict {
    /// Another node owns the shard by now.
    #[error(
        "shard {shard} is at epoch {held}, the commit was made under epoch {given}: another node has taken over"
    )]
    Fenced {
        /// The shard.
        shard: ShardId,
        /// The epoch in the store; 0 when nobody ever owned the shard.
        held: ShardEpoch,
        /// The epoch the commit was made under.
        given: ShardEpoch,
    },
    /// The journal has another length than the caller believed.
    #[error("the journal of {execution} has {found} events, expected {expected}")]
    JournalLength {
        /// The execution.
        execution: ExecutionId,
        /// What the caller believed.
        expected: u64,
        /// What the store holds.
        found: u64,
    },
    /// The row to insert is there already.
    #[error("{table} has a row {key} already")]
    RowExists {
        /// The table.
        table: &'static str,
        /// The row's key.
        key: RowKey,
    },
    /// Another row has the same values in columns that are unique together.
    #[error("{table} has another row with the same {}", columns.join(", "))]
    NotUnique {
        /// The table.
        table: &'static str,
        /// The columns.
        columns: &'static [&'static str],
        /// The key of that row.
        key: RowKey,
    },
    /// The row to change is not there, or was changed since it was read.
    #[error("{table} row {key} is at version {found}, expected {expected} (0 means absent)")]
    RowVersion {
        /// The table.
        table: &'static str,
        /// The row's key.
        key: RowKey,
        /// What the caller believed.
        expected: u64,
        /// What the store holds; 0 when there is no such row.
        found: u64,
    },
    /// The reader's position in a run is not where the caller believed.
    #[error("the {reader} is at event {found} of run {run}, expected {expected}")]
    ReaderPosition {
        /// The run.
        run: RunId,
        /// Whose position.
        reader: RunEventReader,
        /// What the caller believed.
        expected: RunSeq,
        /// What the store holds.
        found: RunSeq,
    },
    /// The run belongs to another tenant, project or environment than the event.
    #[error("run {run} belongs to another tenant, project or environment")]
    ForeignRun {
        /// Which event of the call, counted from 0.
        index: usize,
        /// The run.
        run: RunId,
    },
    /// An event with this id but another idempotency key is stored already.
    #[error("event id {event_id} belongs to another event already")]
    EventIdTaken {
        /// Which event of the call, counted from 0.
        index: usize,
        /// The id.
        event_id: RunEventId,
    },
}

/// Why a call can never succeed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidRequest {
    /// The event's idempotency key is not the one its fields give.
    #[error("{mismatch}")]
    IdempotencyKey {
        /// Which event of the call, counted from 0.
        index: usize,
        /// Expected and found.
        mismatch: KeyMismatch,
    },
    /// The event contradicts itself.
    #[error("{reason}")]
    Event {
        /// Which event of the call, counted from 0.
        index: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// More than one call may carry.
    #[error("{what}: {found} is over the limit of {limit}")]
    Limit {
        /// What there is too much of.
        what: &'static str,
        /// How much there is.
        found: usize,
        /// How much there may be.
        limit: usize,
    },
    /// A journal append without events, or with more than a journal can hold.
    #[error(
        "an append to the journal of {0} needs at least one event, and a journal has room for 2^64 of them"
    )]
    EmptyAppend(ExecutionId),
    /// A commit may touch each journal, row and position once.
    #[error("the commit touches {0} twice")]
    TouchedTwice(String),
    /// A value that the table's column does not take.
    #[error("{table}.{column}: {reason}")]
    Value {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
        /// Why not.
        reason: &'static str,
    },
    /// A reader's position can only move forward, and not beyond the log.
    #[error(
        "the {reader} of run {run} cannot move from event {from} to {to}; the log ends at {last}"
    )]
    ReaderAdvance {
        /// The run.
        run: RunId,
        /// Whose position.
        reader: RunEventReader,
        /// From where.
        from: RunSeq,
        /// To where.
        to: RunSeq,
        /// The last event of the run; 0 when there is none.
        last: RunSeq,
    },
    /// There is nothing by this name.
    #[error("there is no run {0}")]
    NoSuchRun(RunId),
    /// The database itself refuses a row: a status that does not exist, for example.
    #[error("the database refuses the row: {0}")]
    RefusedByDatabase(String),
}
