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
mod commit;
#[cfg(feature = "conformance")]
pub mod conformance;
mod commit_rules;
mod error;
mod column_codec;
mod ids;
pub mod shard_lease;
pub mod store_metrics;
pub mod memory;
pub mod migration;
mod policy;
mod query;
mod run_state_store;
mod store;
mod table_schema;
pub mod tables;
mod row_value;

pub use admission::AdmittedCommit;
pub use clock::{StoreClock, ManualClock, SystemClock};
pub use commit::{EventReceipt, RowChange, Commit, ShardFence, JournalAppend, ReaderAdvance, ChangeOutcome, PurgeTarget, CommitReceipt};
pub use commit_rules::{StoredState, Duplicates, ChangedColumns, StoredEvent, WritePlan, PlannedEvent, RowWrite, plan_commit};
pub use error::{CommitConflict, Error, InvalidRequest, StoreErrorKind};
pub use ids::{ShardEpoch, RunEventReader, SerialId, ShardId};
pub use policy::{IdempotencyKeyCheck, StoreLimits, StorePolicy};
pub use query::{JournalChunk, RunEventQuery, RunHead, TableScan};
pub use run_state_store::RunStateStore;
pub use store::{NotificationHandler, RegistrationGuard, RecordReader, Store};
pub use table_schema::{ColumnSchema, ColumnCodec, IndexSchema, TableRecord, TableSchema};
pub use row_value::{RowKey, TableRow, StoredRow, ColumnType, ColumnValue};
