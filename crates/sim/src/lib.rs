//! The core of a shard in a world of its own: virtual time, a store in memory, and every kind of failure, by seed.
//!
//! A seed decides everything: which of the things under way ends next, what fails, when a node dies or is stopped for a while
//! and goes on as if nothing had happened. The same seed makes the same history, so a seed that fails is a test.

pub mod campaigns;
mod client;
mod drain;
mod driver;
mod invariants;
mod ready_future;
mod scripts;
mod workers;

pub use driver::{ShardSimulation, SimFaults, SimReport};
