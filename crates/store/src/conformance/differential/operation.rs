//! What is done to a store, as data.

use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::RunId;

use crate::{
    Commit, PurgeTarget, RowKey, RunEventQuery, RunEventReader, ShardId, TableScan, TableSchema,
};

/// One thing that is done to a store. Numbers that stores assign to rows stand for "the n-th that was assigned".
#[derive(Debug, Clone)]
pub enum StoreOperation {
    /// Commit.
    Commit(Commit),
    /// Read a row.
    Row(&'static TableSchema, RowKey),
    /// Read rows.
    Rows(TableScan),
    /// Read rows page by page, to the end.
    Pages(TableScan),
    /// Read a journal.
    Journal {
        /// Whose.
        execution: ExecutionId,
        /// From which event.
        from: u64,
        /// At most so many chunks.
        limit: usize,
    },
    /// Read run events.
    RunEvents(RunId, RunEventQuery),
    /// Read the head of a run.
    Run(RunId),
    /// List runs.
    Runs {
        /// Only those that this reader has not finished.
        behind: Option<RunEventReader>,
        /// Only those after this one.
        after: Option<RunId>,
        /// At most so many.
        limit: usize,
    },
    /// Read the snapshot that is kept.
    Snapshot(RunId),
    /// Project a run.
    Project(RunId),
    /// Remove the whole of something.
    Purge(PurgeTarget),
    /// Claim a shard.
    Claim {
        /// The shard.
        shard: ShardId,
        /// The name of the node.
        node: &'static str,
        /// For how long.
        lease_ms: u64,
    },
    /// Renew the n-th lease that was granted.
    Renew {
        /// Which lease.
        nth: usize,
        /// For how long.
        lease_ms: u64,
    },
    /// Release the n-th lease that was granted.
    Release {
        /// Which lease.
        nth: usize,
    },
    /// Set the clock.
    SetClock(Timestamp),
    /// Ask for the time.
    Now,
}
