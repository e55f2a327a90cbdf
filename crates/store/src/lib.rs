//! The append authority: durable storage for journals, rows and run events, and the single place
//! that decides their order.
//!
//! - [`Store`]: the database interface of the engine. One atomic [`commit`](Store::commit) carries
//!   everything that must become visible together: journal events, rows, run events, positions of
//!   readers. Its guards state what the caller expects to be stored; if one guard fails, the store
//!   writes nothing.
//! - [`RunStateStore`]: the contract for run events, for producers and readers that need nothing
//!   else.
//! - [`plan_commit()`]: the rules of a commit, written once. An adapter implements [`StoredState`],
//!   calls `plan_commit`, and writes the returned [`WritePlan`], all in one database transaction.
//! - [`memory`]: the reference store, kept as simple as possible; the conformance suite compares
//!   the others with it.
//! - `conformance` (a feature): the test suite that every adapter must pass, including adapters
//!   outside this repository.

mod admission;
mod clock;
mod column_codec;
mod commit;
mod commit_rules;
#[cfg(feature = "conformance")]
pub mod conformance;
mod error;
pub mod event_checksum;
mod ids;
mod journal_end;
pub mod memory;
pub mod migration;
mod policy;
mod query;
mod row_value;
mod run_event_scan;
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
pub use run_event_scan::{ReadableRunEvents, read_readable_events};
pub use run_state_store::RunStateStore;
pub use store::{NotificationHandler, RecordReader, RegistrationGuard, Store};
pub use table_schema::{
    ColumnCodec, ColumnSchema, IndexSchema, InvalidColumnValue, TableRecord, TableSchema,
};
