//! Store operations as data, so that sequences of them can be generated, replayed and shrunk.

use onward_base::Timestamp;
use onward_journal::ExecutionId;
use onward_runs::RunId;

use crate::{
    Commit, PurgeTarget, RowKey, RunEventQuery, RunEventReader, ShardId, TableScan, TableSchema,
};

/// One call of a store. Serial numbers of rows are ordinals: n means the n-th number that the store
/// assigned.
#[derive(Debug, Clone)]
pub enum StoreOperation {
    /// Applies a commit.
    Commit(Commit),
    /// Reads one row by its key.
    Row(&'static TableSchema, RowKey),
    /// Reads one page of a scan.
    Rows(TableScan),
    /// Reads all pages of a scan.
    Pages(TableScan),
    /// Reads the chunks of a journal.
    Journal {
        /// The execution that the journal belongs to.
        execution: ExecutionId,
        /// Sequence number of the first event to read.
        from: u64,
        /// Maximum number of chunks.
        limit: usize,
    },
    /// Reads one page of the events of a run.
    RunEvents(RunId, RunEventQuery),
    /// Reads the head of a run.
    Run(RunId),
    /// Lists the heads of runs.
    Runs {
        /// Only runs with events that this reader has not processed.
        behind: Option<RunEventReader>,
        /// Only runs with a greater id than this one.
        after: Option<RunId>,
        /// Maximum number of runs.
        limit: usize,
    },
    /// Reads the stored snapshot of a run.
    Snapshot(RunId),
    /// Computes the snapshot of a run from its log.
    Project(RunId),
    /// Deletes a complete run or execution.
    Purge(PurgeTarget),
    /// Claims a shard.
    Claim {
        /// The shard to claim.
        shard: ShardId,
        /// Name of the node that claims the shard.
        node: &'static str,
        /// Duration of the lease in milliseconds.
        lease_ms: u64,
    },
    /// Renews the n-th lease that the store granted.
    Renew {
        /// Index of the lease among those granted, from 0.
        nth: usize,
        /// Duration of the lease in milliseconds.
        lease_ms: u64,
    },
    /// Releases the n-th lease that the store granted.
    Release {
        /// Index of the lease among those granted, from 0.
        nth: usize,
    },
    /// Sets the clock of the store.
    SetClock(Timestamp),
    /// Reads the current time of the store.
    Now,
}
