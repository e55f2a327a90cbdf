//! The append authority: where everything that happened is kept, and who decides in which order.
//!
//! - [`Store`]: what the engine needs. One atomic [`commit`](Store::commit) carries everything that must become true
//!   together: journal events, rows, run events, positions of readers. It is guarded by what the caller believes, and
//!   stores nothing when a guard does not hold.
//! - [`RunStateStore`]: the contract for run events, for producers and readers that need nothing else.
//! - [`decide()`]: the rules of a commit, written once. An adapter reads what [`Before`] asks for, calls it, and writes the
//!   [`Plan`] it gets, all in one transaction of its database.
//! - [`memory`]: the simplest store that can be right; the others are compared with it.
//! - `conformance` (a feature): the suite that every adapter has to pass, ours and yours.

mod admission;
mod clock;
mod column_codec;
mod commit;
mod commit_rules;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
mod ids;
pub mod memory;
pub mod migration;
mod policy;
mod query;
mod row_value;
mod run_state_store;
pub mod shard_lease;
mod store;
pub mod store_metrics;
mod table_schema;
pub mod tables;

pub use admission::AdmittedCommit;
pub use clock::{ManualClock, StoreClock, SystemClock};
pub use commit::{
    ChangeOutcome, Commit, CommitReceipt, EventReceipt, JournalAppend, PurgeTarget, ReaderAdvance,
    RowChange, ShardFence,
};
pub use commit_rules::{
    ChangedColumns, Duplicates, PlannedEvent, RowWrite, StoredEvent, StoredState, WritePlan,
    plan_commit,
};
pub use error::{CommitConflict, Error, InvalidRequest, StoreErrorKind};
pub use ids::{RunEventReader, SerialId, ShardEpoch, ShardId};
pub use policy::{IdempotencyKeyCheck, StoreLimits, StorePolicy};
pub use query::{JournalChunk, RunEventQuery, RunHead, TableScan};
pub use row_value::{ColumnType, ColumnValue, RowKey, StoredRow, TableRow};
pub use run_state_store::RunStateStore;
pub use store::{NotificationHandler, RecordReader, RegistrationGuard, Store};
pub use table_schema::{ColumnCodec, ColumnSchema, IndexSchema, TableRecord, TableSchema};
