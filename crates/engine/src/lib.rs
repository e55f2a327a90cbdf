//! The shell around the pure crates: it reads, asks them what follows, and makes it so.
//!
//! - [`projector`]: keeps the snapshot of every run within a second of its log.
//! - [`shard`]: the core that runs executions, without performing anything.
//! - [`explain`]: what an execution waits for, and what happens next.
//! - [`doctor`]: whether any work is stuck.
//! - [`replay`]: whether code repeats what a journal records.
//! - [`work`]: tasks that workers in other processes perform.
//! - [`offers`]: workers that wait for tasks in this one.
//! - [`verify`]: looks at what is stored and tells what cannot have happened.

mod alert;
mod await_outcome;
pub mod client;
pub mod doctor;
pub mod explain;
mod inbox;
pub mod node;
pub mod projector;
pub mod replay;
mod row_state;
pub mod shard;
pub mod task_matcher;
pub mod task_queue;
pub mod verify;
pub mod waits;

pub use alert::{AlertCode, AlertSeverity, PendingAlert};
