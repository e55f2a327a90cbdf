//! The I/O layer around the pure crates: it reads the store, asks the pure crates for the next
//! state, and commits that state and performs its side effects.
//!
//! - [`client`]: starts, signals, cancels and reads executions through the store, from any process.
//! - [`node`]: a process that owns shards and runs their executions.
//! - [`projector`]: keeps the snapshot of every run within a second of its log.
//! - [`shard`]: the core that runs executions, without performing any I/O.
//! - [`task_queue`]: tasks that workers in other processes claim and perform.
//! - [`task_matcher`]: workers that wait for tasks in this process.
//! - [`inbox`], [`row_state`]: rules that the engine follows and diagnostics check.

mod alert;
mod await_outcome;
pub mod client;
pub mod inbox;
pub mod node;
pub mod projector;
mod row_body;
pub mod row_state;
pub mod shard;
pub mod task_matcher;
pub mod task_queue;

pub use alert::PendingAlert;
