//! The shell around the pure crates: it reads, asks them what follows, and makes it so.
//!
//! - [`projector`]: keeps the snapshot of every run within a second of its log.
//! - [`shard`]: the core that runs executions, without performing anything.
//! - [`verify`]: looks at what is stored and tells what cannot have happened.

mod alert;
pub mod client;
pub mod node;
pub mod projector;
pub mod shard;
pub mod verify;

pub use alert::{Alarm, Code, Severity};
